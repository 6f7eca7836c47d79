"""Settings of the fabric, each with its section in the specification and its unit."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from crp_integrations.records import Part


class ChunkingSettings(Part):
    """How documents are cut into chunks.

    Spec: CRP-SPEC-009 §4.2

    Attributes:
        join_up_to_tokens: maximum total tokens up to which neighbouring paragraphs of one section
            are joined; 0 joins only those that are too short, as specified (§4.2).
        anchor_every: one paragraph in so many, chosen by the hash of its text, is never joined to
            the one before, so that an edit changes joins only up to there; 0 chooses none.
        split_above_tokens: a paragraph with more tokens is split at sentences (§4.2); 256, since
            the shipped embedder reads 256 tokens at once; the specification has 512.
        overlap_share: share of a chunk's tokens that the next chunk repeats (§4.2).
        overlap_between: `split`: chunks of one split paragraph overlap, since the cut goes through
            running text; `all`: any two adjacent chunks of a document overlap, as specified.
        decompose: when a chunk with several assertions becomes several facts (§4.3): `never`;
            `standalone`, if each can be understood alone; `always`, as specified.
        min_fact_tokens: minimum tokens of a fact; a shorter chunk joins a neighbour (§2.1).
        max_fact_tokens: maximum tokens of a fact (§2.1).
    """

    join_up_to_tokens: int = Field(default=200, ge=0)
    anchor_every: int = Field(default=64, ge=0)
    split_above_tokens: int = Field(default=256, ge=16)
    overlap_share: float = Field(default=0.10, ge=0.0, le=0.5)
    overlap_between: Literal["split", "all"] = "split"
    decompose: Literal["never", "standalone", "always"] = "never"
    min_fact_tokens: int = Field(default=10, ge=1)
    max_fact_tokens: int = Field(default=2048, ge=16)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, split, high = self.min_fact_tokens, self.split_above_tokens, self.max_fact_tokens
        # A short neighbour may join a full chunk on either side.
        if not low <= split <= high - 2 * low:
            raise ValueError(
                f"min_fact_tokens {low}, split_above_tokens {split} and max_fact_tokens {high} "
                "do not fit; wanted min <= split <= max - 2 * min"
            )
        if self.join_up_to_tokens > split:
            raise ValueError(
                f"join_up_to_tokens {self.join_up_to_tokens} is above split_above_tokens {split}; "
                "wanted join <= split, or 0 to join no paragraphs"
            )
        return self


class ImportanceSettings(Part):
    """Base importance weights by kind of source, and additions to them, all in [0, 1].

    Spec: CRP-SPEC-009 §4.4

    Attributes:
        regulatory, official, research, internal, web, user: base weight of a source of this kind.
        authoritative_domains: endings of authoritative host names.
        regulatory_article: addition for a passage of a numbered article or section.
        official_version: addition for a passage that names a version.
        research_meta_analysis: addition for the passages of a meta-analysis.
        internal_classification: additions by `classification` in a document's metadata.
        web_authoritative: addition for a host under one of `authoritative_domains`.
        user_modifier: addition for user-provided context.
    """

    regulatory: float = Field(default=0.90, ge=0.0, le=1.0)
    regulatory_article: float = Field(default=0.05, ge=0.0, le=1.0)
    official: float = Field(default=0.80, ge=0.0, le=1.0)
    official_version: float = Field(default=0.05, ge=0.0, le=1.0)
    research: float = Field(default=0.75, ge=0.0, le=1.0)
    research_meta_analysis: float = Field(default=0.10, ge=0.0, le=1.0)
    internal: float = Field(default=0.70, ge=0.0, le=1.0)
    internal_classification: dict[str, float] = {
        "public": 0.0,
        "internal": 0.0,
        "confidential": 0.05,
        "restricted": 0.10,
    }
    web: float = Field(default=0.50, ge=0.0, le=1.0)
    web_authoritative: float = Field(default=0.10, ge=0.0, le=1.0)
    authoritative_domains: tuple[str, ...] = (
        "gov",
        "mil",
        "edu",
        "int",
        "europa.eu",
        "gov.uk",
        "ac.uk",
        "gov.au",
        "edu.au",
        "gc.ca",
        "admin.ch",
        "govt.nz",
    )
    user: float = Field(default=0.60, ge=0.0, le=1.0)
    user_modifier: float = Field(default=0.0, ge=-1.0, le=1.0)


class VectorGraphSettings(Part):
    """The nearest-neighbour graph of namespaces that are too large for exact search.

    Spec: CRP-SPEC-009 §3.2, §3.3

    Attributes:
        exact_up_to: maximum number of facts for exact search (measured crossover), also of the
            neighbours that communities are made from.
        m: maximum connections of a node in a layer.
        ef_construction: number of candidates while the graph is built.
        ef_search: minimum number of candidates while it is searched; at least k is used. The index
            of PostgreSQL always has 16 connections and 200 candidates.
        ef_beyond: extra candidates besides the k wanted; if above 0, at least k more, since the
            k-th of k candidates is often not the k-th nearest (measured); 0 is as specified.
        metric: distance within the graph; scores are always cosines, since rows have length 1.
        rebuild_share: share of facts changed since the graph was built, above which it is
            rebuilt.
        seed: random seed for the choice of layers.
    """

    exact_up_to: int = Field(default=20_000, ge=0)
    m: int = Field(default=16, ge=2)
    ef_construction: int = Field(default=200, ge=1)
    ef_search: int = Field(default=100, ge=1)
    ef_beyond: int = Field(default=85, ge=0)
    metric: Literal["cosine", "ip", "l2"] = "cosine"
    rebuild_share: float = Field(default=0.20, gt=0.0, le=1.0)
    seed: int = 0


class CommunitySettings(Part):
    """The similarity graph, its communities, and when they are recomputed.

    Spec: CRP-SPEC-009 §5

    Attributes:
        engine: library for the Leiden algorithm; `graspologic` needs the extra `communities`,
            `leidenalg` the extra of its name.
        neighbours: number of nearest facts to which each fact is linked.
        similarity: minimum cosine of an edge; None uses `neighbour` of the embedder's card, or
            .60 if it has none.
        resolution, iterations, seed: parameters of the Leiden algorithm.
        min_size: minimum number of facts in a community; smaller ones are dissolved.
        label_facts: number of the most important facts from which a community's label is made.
        recluster_after: number of new facts since the last reclustering that triggers the next.
        recluster_share: minimum share of all facts that must be new as well; .01 limits the cost
            in a large namespace that grows by small batches.
        recluster_days: days after which `maintain` recomputes the communities.
    """

    engine: Literal["graspologic", "leidenalg"] = "graspologic"
    neighbours: int = Field(default=20, ge=1)
    similarity: float | None = Field(default=None, gt=0.0, le=1.0)
    resolution: float = Field(default=1.0, gt=0.0)
    iterations: int = Field(default=10, ge=1)
    min_size: int = Field(default=3, ge=1)
    label_facts: int = Field(default=5, ge=1)
    recluster_after: int = Field(default=50, ge=1)
    recluster_share: float = Field(default=0.0, ge=0.0, le=1.0)
    recluster_days: float = Field(default=7.0, gt=0.0)
    seed: int = 0


class LifecycleSettings(Part):
    """When time changes facts.

    Attributes:
        retention_days: days from deletion until the bytes are gone (§2.2).
        archive_after_days: days without use after which a fact is archived (§8.2); None never.
        quarantine: whether a fact that answers consistently distort is removed from retrieval
            automatically (§8.4); otherwise its findings are only counted, for
            `crp fabric stats --distorted`.
        quarantine_findings, quarantine_share: minimum findings against a fact, and their minimum
            share of its uses, that count as "consistently" (§8.4).
        session_idle_hours: hours without a call after which the facts that a `no-store` session
            keeps in memory are purged (§7.2).
        session_days: days after its last window after which a stored session is removed, with all
            answers of its windows; None never.
        prepared_days: days after which vectors of an interrupted ingestion that was not resumed
            are removed.
    """

    retention_days: float = Field(default=30.0, ge=0.0)
    archive_after_days: float | None = Field(default=180.0, gt=0.0)
    quarantine: bool = False
    quarantine_findings: int = Field(default=3, ge=1)
    quarantine_share: float = Field(default=0.5, gt=0.0, le=1.0)
    session_idle_hours: float = Field(default=24.0, gt=0.0)
    session_days: float | None = Field(default=30.0, gt=0.0)
    prepared_days: float = Field(default=7.0, ge=0.0)


class HotSettings(Part):
    """Limits on what `no-store` sessions keep in memory (§7.2).

    With the shipped embedder, both limits together allow about 100 MB of vectors, plus the texts.

    Attributes:
        facts_per_session: maximum number of facts in one session.
        sessions: maximum number of sessions in one region at a time.
    """

    facts_per_session: int = Field(default=256, ge=1)
    sessions: int = Field(default=256, ge=1)


class ShelfSettings(Part):
    """Limits on the record of recent uses: ids and labels, in memory (003 §5.2).

    Attributes:
        facts_per_session: maximum number of facts on a session's shelf (tier 1).
        sessions: maximum number of sessions with a shelf.
        subgraphs: maximum number of communities and sources on a subject's shelf (tier 2).
        subjects: maximum number of subjects with a shelf.
    """

    facts_per_session: int = Field(default=512, ge=1)
    sessions: int = Field(default=256, ge=1)
    subgraphs: int = Field(default=64, ge=1)
    subjects: int = Field(default=256, ge=1)


class FabricSettings(Part):
    """The fabric's part of the settings tree.

    Attributes:
        embed_slice: number of texts per call of the embedder; affects progress, never a vector.
        embed_workers: number of slices embedded in parallel.
        query_terms: maximum number of distinct words of a query in the lexical search.
        redacted_hits: maximum number of facts of one word search that are redacted for the subject,
            to check that the words are still in them; shared equally by the query's words.
        shared: names of shared namespaces that every tenant reads (§9.2).
        maintain_on_open: whether opening a relay runs due maintenance.
    """

    chunking: ChunkingSettings = ChunkingSettings()
    importance: ImportanceSettings = ImportanceSettings()
    graph: VectorGraphSettings = VectorGraphSettings()
    communities: CommunitySettings = CommunitySettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    hot: HotSettings = HotSettings()
    shelves: ShelfSettings = ShelfSettings()
    embed_slice: int = Field(default=64, ge=1)
    embed_workers: int = Field(default=2, ge=1)
    query_terms: int = Field(default=64, ge=1)
    redacted_hits: int = Field(default=128, ge=1)
    shared: tuple[str, ...] = ()
    maintain_on_open: bool = True

    @field_validator("shared")
    @classmethod
    def _named_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if any(not name.strip() for name in names) or len(set(names)) < len(names):
            raise ValueError(f"shared namespaces {list(names)} need names, each given once")
        return tuple(sorted(names))

    @classmethod
    def preset(cls, name: Literal["default", "literal"]) -> FabricSettings:
        """Return the settings of a preset.

        `literal` cuts paragraph by paragraph, splits above 512 tokens, lets any two adjacent chunks
        overlap (also those of two paragraphs), links facts at a cosine of .60 with any embedder,
        and builds the graph from the first fact on.
        """
        if name == "literal":
            return cls(
                chunking=ChunkingSettings(
                    join_up_to_tokens=0,
                    split_above_tokens=512,
                    overlap_between="all",
                    decompose="always",
                ),
                graph=VectorGraphSettings(exact_up_to=0, ef_beyond=0),
                communities=CommunitySettings(similarity=0.60),
            )
        return cls()

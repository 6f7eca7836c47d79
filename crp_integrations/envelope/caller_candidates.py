"""Select for a caller who brings the texts: `pack()` and wrapped retrievers enter here.

The texts have the fabric's path but its index: passages, scores mixed from vectors, words,
neighbours and a second hop, and stretches that are shown where the whole does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import ValidationError

from crp_integrations.envelope.candidates import Candidate, Candidates, ScoredSpan
from crp_integrations.envelope.hybrid import (
    HYBRID,
    WeighedPool,
    build_pool,
    cosine_candidates,
    hybrid_candidates,
    new_names,
    score_pool,
    weigh_pool,
)
from crp_integrations.envelope.near_duplicates import split_near_duplicates
from crp_integrations.envelope.passages import (
    PASSAGES,
    Span,
    cut_text,
    fold_passages,
    passage_id,
)
from crp_integrations.envelope.prompt import marker_text
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import FactRejected, RequestError
from crp_integrations.fabric.ports.facts import FactBrief
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.settings import ChunkingSettings
from crp_integrations.ports import Embedder, TokenCounter
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vectors import FloatRows, cosine, unit_rows
from crp_integrations.vocabulary import RETRIEVABLE

# Facts that are already at hand need no retrieval: tier 0 of the memory cascade.
ACTIVE_TIER = 0
CALLER_RELEVANCE = "caller-relevance@1"


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A text that is cut, counted and embedded.

    Attributes:
        tokens: of the whole and of each passage, with marker and separator.
        rows: a vector for each passage; empty until it is asked for.
    """

    spans: tuple[Span, ...]
    tokens: tuple[int, tuple[int, ...]]
    rows: FloatRows | None = None


class CallerTexts:
    """Candidates from a caller's texts, each of which is cut, counted and embedded once."""

    def __init__(
        self,
        *,
        embedder: Embedder,
        counter: TokenCounter,
        settings: EnvelopeSettings,
        chunking: ChunkingSettings,
    ) -> None:
        """Take what reads the texts."""
        self._embedder = embedder
        self._counter = counter
        self._settings = settings
        self._chunking = chunking
        self._known: dict[str, _Prepared] = {}
        self._needs: dict[str, FloatRows] = {}

    def candidates(
        self,
        query: str,
        facts: Sequence[Fact | str],
        *,
        sub_queries: Sequence[str] = (),
        vectors: FloatRows | None = None,
        relevance: Sequence[float] | None = None,
    ) -> Candidates:
        """The candidates of a question; see `build_candidates`."""
        if not isinstance(facts, Iterable):
            raise RequestError(f"facts is {type(facts).__name__}, wanted a list of texts or facts")
        for name, rows in (("vectors", vectors), ("relevance", relevance)):
            if rows is not None and len(rows) != len(facts):
                raise RequestError(f"{name} has {len(rows)} entries, wanted {len(facts)}")
        whole = [_fact(number, fact) for number, fact in enumerate(facts, start=1)]
        scores = None if relevance is None else _fixed(relevance)
        places = _unique(whole, scores)
        unique = [whole[place] for place in places]
        kept = None if scores is None else [scores[place] for place in places]
        needs = tuple(sub_queries) or (query,)
        return self._select(query, needs, unique, self._given(vectors, places, kept), kept)

    def further_questions(
        self, query: str, facts: Sequence[Fact | str], most: int
    ) -> tuple[str, ...]:
        """What a retriever may be asked next: what the best passages bring up (`second-look@1`).

        First all names together that the question does not have, then the question with each of
        the best passages, then the names one by one.
        """
        whole = [_fact(number, fact) for number, fact in enumerate(facts, start=1)]
        unique = [whole[place] for place in _unique(whole, None)]
        if most < 1 or not unique or not self._settings.hybrid.enabled:
            return ()
        prepared = self._prepare([fact.content for fact in unique])
        pool = self._weigh(query, self._briefs(unique, prepared), self._rows(unique, prepared))
        names = new_names(pool)[: self._settings.hybrid.hop_names]
        beside = [f"{query} {pool.pool.contents[at]}" for at in pool.best]
        asked = dict.fromkeys((" ".join(names), *beside, *names) if names else beside)
        return tuple(asked)[:most]

    def _given(
        self, vectors: FloatRows | None, places: Sequence[int], scores: Sequence[int] | None
    ) -> FloatRows | None:
        """The caller's own vectors of the facts that are kept."""
        if vectors is None:
            return None
        # Vectors of another embedder are welcome as long as nothing is compared with ours.
        wanted = self._embedder.dimensions if scores is None else None
        return unit_rows(np.asarray(vectors)[places], dimensions=wanted) if places else vectors

    def _select(
        self,
        query: str,
        needs: tuple[str, ...],
        facts: Sequence[Fact],
        vectors: FloatRows | None,
        scores: Sequence[int] | None,
    ) -> Candidates:
        settings = self._settings
        prepared = self._prepare([fact.content for fact in facts], embed=vectors is None)
        sizes = [len(one.spans) for one in prepared]
        briefs = self._briefs(facts, prepared)
        contents = [brief.content for brief in briefs]
        # A passage of a text that comes with a vector has the text's.
        rows = self._rows(facts, prepared) if vectors is None else np.repeat(vectors, sizes, axis=0)
        tokens = [count for one in prepared for count in one.tokens[1]]
        algorithms: tuple[str, ...] = ()
        found: tuple[Candidate, ...] = ()
        if briefs:
            near = self._cosines(rows, needs) if scores is None else _nothing(briefs)
            found = cosine_candidates(briefs, near, tokens)
        if settings.hybrid.enabled:
            algorithms = (HYBRID,)
            if briefs:
                pool = self._weigh(query, briefs, rows if scores is None else None)
                mixed = score_pool(pool, settings.hybrid)
                found = hybrid_candidates(
                    briefs, near, tokens, mixed, pool.profiles, settings.hybrid
                )
        if any(size > 1 for size in sizes):
            algorithms = (*algorithms, PASSAGES)
        if scores is not None:
            algorithms = (*algorithms, CALLER_RELEVANCE)
        rest = iter(found)
        texts: list[Candidate] = []
        whole = cosine_candidates(
            [FactBrief.of(fact) for fact in facts],
            _nothing(facts),
            [one.tokens[0] for one in prepared],
        )
        for at, one in enumerate(prepared):
            passages = [next(rest) for _ in one.spans]
            if scores is not None:
                passages = _keep_relevance(passages, scores[at])
            texts.append(fold_passages(whole[at], one.spans, passages))
        owners = [at for at, size in enumerate(sizes) for _ in range(size)]
        duplicates, conflicts = split_near_duplicates(
            contents,
            rows,
            settings.duplicate_similarity,
            owners if len(owners) > len(facts) else None,
        )
        return Candidates(
            query=query,
            sub_queries=needs,
            facts=tuple(texts),
            tokenizer=self._counter.identity,
            duplicates=duplicates,
            conflicts=conflicts,
            memory_tier_hit=ACTIVE_TIER,
            tier_hits=(len(facts), 0, 0, 0),
            algorithms=algorithms,
            relevant_floor=relevant_floor(self._embedder) if scores is None else None,
        )

    def _prepare(self, contents: Sequence[str], *, embed: bool = True) -> list[_Prepared]:
        """Each text cut, counted and embedded, those that are new all at once."""
        known = self._known
        new = [text for text in dict.fromkeys(contents) if text not in known]
        counts = self._counter.count_many([marker_text(text) for text in new])
        cut = [self._cut(text, tokens) for text, tokens in zip(new, counts, strict=True)]
        parts = [
            marker_text(text[start:end])
            for text, spans in zip(new, cut, strict=True)
            if len(spans) > 1
            for start, end in spans
        ]
        counted = iter(self._counter.count_many(parts) if parts else ())
        for text, spans, tokens in zip(new, cut, counts, strict=True):
            each = (tokens,) if len(spans) == 1 else tuple([next(counted) for _ in spans])
            known[text] = _Prepared(spans, (tokens, each))
        if embed:
            self._embed(contents)
        return [known[text] for text in contents]

    def _cut(self, text: str, tokens: int) -> tuple[Span, ...]:
        if not self._settings.hybrid.enabled:
            return ((0, len(text)),)
        return cut_text(text, tokens, self._counter, self._chunking)

    def _embed(self, contents: Sequence[str]) -> None:
        """Embed the passages of texts that have no vectors yet."""
        known = self._known
        new = [text for text in dict.fromkeys(contents) if known[text].rows is None]
        if not new:
            return
        passages = [text[start:end] for text in new for start, end in known[text].spans]
        rows = self._embedder.embed_passages(passages)
        done = 0
        for text in new:
            size = len(known[text].spans)
            known[text] = replace(known[text], rows=rows[done : done + size])
            done += size

    def _briefs(self, facts: Sequence[Fact], prepared: Sequence[_Prepared]) -> list[FactBrief]:
        """What scoring reads of each passage; those of one text are neighbours."""
        found: list[FactBrief] = []
        for fact, one in zip(facts, prepared, strict=True):
            brief = FactBrief.of(fact)
            if len(one.spans) == 1:
                found.append(brief)
                continue
            found += [
                replace(
                    brief,
                    fact_id=passage_id(fact.fact_id, number),
                    content=fact.content[start:end],
                    # Two texts of one source may have equal offsets.
                    source_id=f"{fact.source_id} {fact.fact_id}",
                    source_location=f"{start}-{end}",
                )
                for number, (start, end) in enumerate(one.spans)
            ]
        return found

    def _rows(self, facts: Sequence[Fact], prepared: Sequence[_Prepared]) -> FloatRows:
        rows = [one.rows for one in prepared if one.rows is not None]
        if not facts:
            return np.zeros((0, self._embedder.dimensions), dtype=np.float32)
        return np.concatenate(rows)

    def _weigh(
        self, query: str, briefs: Sequence[FactBrief], rows: FloatRows | None
    ) -> WeighedPool:
        """The pool of a question; without vectors words alone weigh."""
        hybrid = self._settings.hybrid
        near = _nothing(briefs) if rows is None else self._cosines(rows, (query,))
        return weigh_pool(build_pool(query, briefs, near, hybrid), hybrid)

    def _cosines(self, rows: FloatRows, needs: Sequence[str]) -> FloatRows:
        """Best cosine of each row to the vector of any information need.

        Spec: CRP-SPEC-003 §6.3
        """
        for need in needs:
            if need not in self._needs:
                self._needs[need] = self._embedder.embed_query(need)
        best: FloatRows = np.max([cosine(rows, self._needs[need]) for need in needs], axis=0)
        return best


def build_candidates(
    query: str,
    facts: Sequence[Fact | str],
    *,
    embedder: Embedder,
    counter: TokenCounter,
    settings: EnvelopeSettings,
    chunking: ChunkingSettings | None = None,
    vectors: FloatRows | None = None,
    relevance: Sequence[float] | None = None,
    sub_queries: Sequence[str] = (),
) -> Candidates:
    """Candidates from a caller's own facts, unique by id.

    Facts that are DELETED or QUARANTINED are no candidates, as in a fabric.

    Spec: CRP-SPEC-003 §5.2, §6.3

    Args:
        chunking: how texts that are long for an embedder are cut; None for the defaults.
        vectors: one for each fact; None embeds its passages.
        relevance: the caller's own score of each fact in [0, 1], by which facts are ranked; words
            then decide among the passages of one fact alone. None scores the facts.
    """
    texts = CallerTexts(
        embedder=embedder,
        counter=counter,
        settings=settings,
        chunking=chunking or ChunkingSettings(),
    )
    return texts.candidates(
        query, facts, sub_queries=sub_queries, vectors=vectors, relevance=relevance
    )


def relevant_floor(embedder: Embedder) -> int | None:
    """The relevance from which this embedder's card calls a fact relevant, in fixed point."""
    floor = embedder.thresholds.get("relevance_floor")
    return None if floor is None else to_fixed(floor)


def recount_tokens(candidates: Candidates, counter: TokenCounter) -> Candidates:
    """The same candidates with tokens as another counter counts them."""
    texts = [
        marker_text(text)
        for fact in candidates.facts
        for text in (
            fact.content,
            *(fact.content[one.start : one.end] for one in fact.passages),
        )
    ]
    counts = iter(counter.count_many(texts))
    facts = tuple(
        replace(
            fact,
            tokens=max(0, next(counts)),
            passages=tuple([one._replace(tokens=max(0, next(counts))) for one in fact.passages]),
        )
        for fact in candidates.facts
    )
    return replace(candidates, facts=facts, tokenizer=counter.identity)


def _nothing(facts: Sequence[object]) -> FloatRows:
    """A cosine of 0 for each."""
    return np.zeros(len(facts), dtype=np.float32)


def _keep_relevance(passages: Sequence[Candidate], relevance: int) -> list[Candidate]:
    """Passages of one text with the caller's score of it, the best of them in full."""
    best = max(one.merit for one in passages)
    shares = [one.merit * SCALE // best if best else SCALE for one in passages]
    return [
        replace(
            one,
            relevance=relevance,
            score=None if len(passages) == 1 else relevance * share // SCALE,
            lexical=0,
            hop=0,
            stretches=tuple(
                ScoredSpan(part.start, part.end, part.score * relevance // SCALE)
                for part in one.stretches
            ),
        )
        for one, share in zip(passages, shares, strict=True)
    ]


def _fixed(relevance: Sequence[float]) -> list[int]:
    try:
        return [to_fixed(float(score)) for score in relevance]
    except (TypeError, ValueError):
        raise RequestError("relevance holds something else than numbers, wanted [0, 1]") from None


def _fact(number: int, fact: Fact | str) -> Fact:
    if isinstance(fact, Fact):
        return fact
    if not isinstance(fact, str):
        raise FactRejected(f"fact {number} is {type(fact).__name__}, wanted a text or a fact")
    if not fact:
        raise FactRejected(f"fact {number} is empty, wanted at least one character")
    try:
        return Fact(content=fact)
    except (ValidationError, UnicodeEncodeError):
        # The library's message would quote the text.
        raise FactRejected(f"fact {number} is not text that can be encoded as UTF-8") from None


def _unique(facts: Sequence[Fact], scores: Sequence[int] | None) -> list[int]:
    """Positions of the facts to keep, by id; of copies the best, whatever their order."""
    best: dict[str, int] = {}

    def merit(place: int) -> tuple[int, float, str]:
        fact = facts[place]
        score = 0 if scores is None else scores[place]
        return score, fact.importance_weight, fact.model_dump_json()

    for place, fact in enumerate(facts):
        held = best.setdefault(fact.fact_id, place)
        if held == place:
            continue
        if facts[held].content_hash != fact.content_hash:
            raise RequestError(f"fact id {fact.fact_id} stands for two texts, wanted one each")
        if merit(place) > merit(held):
            best[fact.fact_id] = place
    shut_out = {fact.fact_id for fact in facts if fact.status not in RETRIEVABLE}
    return [best[fact_id] for fact_id in sorted(best) if fact_id not in shut_out]

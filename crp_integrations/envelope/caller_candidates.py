"""Select for texts that a caller passes in, as `pack()` and wrapped retrievers do.

Texts take the same path as stored facts, except that no index is used: passages, scores mixed
from vectors, words, neighbours and a second hop, and stretches for texts that do not fit whole.

With a first stage (`two-stage@1`) the embedder reads only some of many passages: those that rank
best by the first stage's cosine, by words, and by the mixed score of both, as many as the settings
say, and up to 64 more where the budget holds more. The others get an
estimated cosine: a straight line through the passages that were read, at most the lower quartile of
those. Near-duplicates are proposed by the first stage and confirmed by the embedder, which reads
what was proposed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from crp_integrations.envelope.candidates import Candidate, Candidates
from crp_integrations.envelope.hybrid import (
    HYBRID,
    build_pool,
    cosine_candidates,
    hybrid_candidates,
    new_names,
    score_pool,
    weigh_pool,
)
from crp_integrations.envelope.near_duplicates import least_similarity, split_near_duplicates
from crp_integrations.envelope.passages import PASSAGES, Span, cut_text, fold_passages, passage_id
from crp_integrations.envelope.prompt import marker_text
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import FactRejected, RequestError
from crp_integrations.fabric.ports.facts import FactBrief
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.settings import ChunkingSettings
from crp_integrations.ports import Embedder, TokenCounter, cached_values
from crp_integrations.scores import to_fixed
from crp_integrations.vectors import FloatRows, cosine
from crp_integrations.vocabulary import RETRIEVABLE

# Facts that the caller passes in need no retrieval: tier 0 of the memory cascade.
ACTIVE_TIER = 0
TWO_STAGE = "two-stage@1"
# Fewer passages are all read: a line through a few points is a poor estimate, and saves little.
_FEW = 20
# Passages are read until those read would fill the budget this often: the embedder's order
# differs from the first stage's, so that more than fit once have a chance to be packed.
_SHARE_READ = 1.5
# At most this many more than the settings say, so that a window of 128,000 tokens does not read
# nearly all; a budget of 4,096 tokens reads about 34 of 50.
_MOST_MORE = 64
# The usual constant of rank fusion, 60, is for long lists; here the first ranks decide.
_FUSION = 8.0
# Cosines of the static table lie nearer to 1 than the embedder's: nine tenths of the pairs above
# .95 by MiniLM are above .98 by the table.
_FIRST_STAGE_DISTANCE = 0.4
# Passages compared in one product.
_BLOCK = 512
# Replaced later: `fold_passages` gives each text the cosine of its best passage.
_NO_COSINE: FloatRows = np.zeros(1, dtype=np.float32)


class _CutText(NamedTuple):
    """A cut text: tokens of the whole and of each passage, with marker and separator."""

    spans: tuple[Span, ...]
    tokens: int
    each: tuple[int, ...]

    @classmethod
    def read(cls, value: bytes) -> _CutText:
        """A cut text from its numbers: tokens, both ends of each passage, tokens of each."""
        tokens, *rest = array("q", value)
        ends = len(rest) // 3 * 2
        spans = tuple(zip(rest[:ends:2], rest[1:ends:2], strict=True))
        return cls(spans, tokens, tuple(rest[ends:]))


class _Vectors:
    """Vectors of one embedder; each text is embedded only once."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._rows: dict[str, FloatRows] = {}
        self._needs: dict[str, FloatRows] = {}

    def rows(self, contents: Sequence[str]) -> FloatRows:
        """The vectors of passages."""
        if not contents:
            return np.zeros((0, self.embedder.dimensions), dtype=np.float32)
        known = self._rows
        if new := [text for text in dict.fromkeys(contents) if text not in known]:
            known.update(zip(new, self.embedder.embed_passages(new), strict=True))
        return np.stack([known[text] for text in contents])

    def cosines(self, rows: FloatRows, need: str) -> FloatRows:
        """Cosine of each row to the vector of an information need."""
        if need not in self._needs:
            self._needs[need] = self.embedder.embed_query(need)
        return cosine(rows, self._needs[need])


class _Nearness(NamedTuple):
    """Cosines of passages: to the question, and the best to any information need; vectors."""

    whole: FloatRows
    best: FloatRows
    rows: FloatRows


class CallerTexts:
    """Makes candidates of a caller's texts; each text is cut, counted and embedded only once."""

    def __init__(
        self,
        *,
        embedder: Embedder,
        counter: TokenCounter,
        settings: EnvelopeSettings,
        chunking: ChunkingSettings,
        first_stage: Embedder | None = None,
    ) -> None:
        """Take the engines and settings with which texts are cut, counted and embedded.

        Args:
            first_stage: a fast embedder that decides which of many passages `embedder` reads;
                None to have it read all.
        """
        self._vectors = _Vectors(embedder)
        self._first = None if first_stage is None else _Vectors(first_stage)
        self._floor = relevant_floor(embedder)
        self._counter = counter
        self._settings = settings
        self._chunking = chunking
        self._known: dict[str, _CutText] = {}
        whole = settings.hybrid.enabled
        self._cuts = f"cut {whole} {counter.identity} {chunking.model_dump_json()}"

    def candidates(
        self,
        query: str,
        facts: Sequence[Fact | str],
        *,
        sub_queries: Sequence[str] = (),
        budget_tokens: int = 0,
    ) -> Candidates:
        """The candidates of a question, unique by id.

        Facts that are DELETED or QUARANTINED are left out, as in a fabric.

        Spec: CRP-SPEC-003 §5.2, §6.3

        Args:
            budget_tokens: budget of the envelope, which decides how many passages are read.
        """
        needs = tuple(sub_queries) or (query,)
        settings = self._settings
        unique = _unique(_read(facts))
        cut = self._cut([fact.content for fact in unique])
        briefs = _briefs(unique, cut)
        near = self._nearness(query, needs, briefs, cut, budget_tokens)
        passages = iter(self._passages(query, briefs, near, cut))
        texts = []
        for fact, pieces in zip(unique, cut, strict=True):
            own = [next(passages) for _ in pieces.spans]
            if len(own) == 1:
                texts += own
                continue
            (text,) = cosine_candidates([FactBrief.of(fact)], _NO_COSINE, [pieces.tokens])
            texts.append(fold_passages(text, pieces.spans, own))
        owners = [at for at, pieces in enumerate(cut) for _ in pieces.spans]
        long, chooses = len(owners) > len(cut), self._chooses(len(briefs))
        contents = [brief.content for brief in briefs]
        similarity = least_similarity(self._vectors.embedder, settings)
        rows = self._confirming(contents, near.rows, similarity) if chooses else near.rows
        duplicates, conflicts = split_near_duplicates(
            contents, rows, similarity, owners if long else None
        )
        deciding = (
            (HYBRID, settings.hybrid.enabled),
            (PASSAGES, long),
            (TWO_STAGE, chooses),
        )
        return Candidates(
            query=query,
            sub_queries=needs,
            facts=tuple(texts),
            tokenizer=self._counter.identity,
            duplicates=duplicates,
            conflicts=conflicts,
            memory_tier_hit=ACTIVE_TIER,
            tier_hits=(len(texts), 0, 0, 0),
            algorithms=tuple(name for name, applied in deciding if applied),
            relevant_floor=self._floor,
        )

    def further_questions(
        self, query: str, facts: Sequence[Fact | str], most: int
    ) -> tuple[str, ...]:
        """Follow-up queries for a retriever, built from the best passages.

        First all names in them that the question does not contain, in one query, then the question
        with each of the best passages, then the names one by one.
        """
        hybrid = self._settings.hybrid
        unique = _unique(_read(facts))
        if most < 1 or not unique or not hybrid.enabled:
            return ()
        cut = self._cut([fact.content for fact in unique])
        briefs = _briefs(unique, cut)
        near = self._nearness(query, (query,), briefs, cut, 0)
        pool = weigh_pool(build_pool(query, briefs, near.whole, hybrid), hybrid)
        names = new_names(pool)[: hybrid.hop_names]
        beside = [f"{query} {pool.pool.contents[at]}" for at in pool.best]
        asked = dict.fromkeys((" ".join(names), *beside, *names) if names else beside)
        return tuple(asked)[:most]

    def _passages(
        self,
        query: str,
        briefs: Sequence[FactBrief],
        near: _Nearness,
        cut: Sequence[_CutText],
    ) -> tuple[Candidate, ...]:
        """A candidate with scores for each passage."""
        if not briefs:
            return ()
        hybrid = self._settings.hybrid
        tokens = [count for pieces in cut for count in pieces.each]
        if not hybrid.enabled:
            return cosine_candidates(briefs, near.best, tokens)
        pool = weigh_pool(build_pool(query, briefs, near.whole, hybrid), hybrid)
        return hybrid_candidates(
            briefs, near.best, tokens, score_pool(pool, hybrid), pool.profiles, hybrid
        )

    def _chooses(self, passages: int) -> bool:
        """Whether only some of this many passages are read."""
        hybrid = self._settings.hybrid
        few = max(_FEW, hybrid.read_passages + 1)
        chooses = self._first is not None and hybrid.enabled and hybrid.read_passages > 0
        return chooses and passages >= few

    def _nearness(
        self,
        query: str,
        needs: Sequence[str],
        briefs: Sequence[FactBrief],
        cut: Sequence[_CutText],
        budget_tokens: int,
    ) -> _Nearness:
        """The cosines of all passages, estimated for those that are not read.

        Spec: CRP-SPEC-003 §6.3
        """
        contents = [brief.content for brief in briefs]
        asked = dict.fromkeys((query, *needs) if self._settings.hybrid.enabled else needs)
        if not contents:
            nothing = np.zeros(0, dtype=np.float32)
            return _Nearness(nothing, nothing, self._vectors.rows(contents))
        if self._first is None or not self._chooses(len(contents)):
            rows = self._vectors.rows(contents)
            near = {need: self._vectors.cosines(rows, need) for need in asked}
        else:
            rows = self._first.rows(contents)
            quick = {need: self._first.cosines(rows, need) for need in asked}
            tokens = [count for pieces in cut for count in pieces.each]
            near = self._estimates(query, briefs, quick, tokens, budget_tokens)
        best: FloatRows = np.max([near[need] for need in needs], axis=0)
        return _Nearness(near.get(query, best), best, rows)

    def _estimates(
        self,
        query: str,
        briefs: Sequence[FactBrief],
        quick: Mapping[str, FloatRows],
        tokens: Sequence[int],
        budget_tokens: int,
    ) -> dict[str, FloatRows]:
        """Cosines to each need, from those of the first stage."""
        hybrid = self._settings.hybrid
        pool = weigh_pool(build_pool(query, briefs, quick[query], hybrid), hybrid)
        # The mixed scores contain the second hop, so passages that it names are read too.
        fused = _fused(pool.whole) + _fused(score_pool(pool, hybrid).total)
        fused += np.max([_fused(values) for values in quick.values()], axis=0)
        ranked = np.argsort(-fused, kind="stable")
        chosen = ranked[: hybrid.read_passages]
        # A large budget would be filled by estimates; one that holds everything has no choice.
        if budget_tokens < sum(tokens):
            filled = np.cumsum(np.array(tokens)[ranked])
            filling = 1 + int(np.searchsorted(filled, _SHARE_READ * budget_tokens))
            most = hybrid.read_passages + _MOST_MORE
            chosen = ranked[: max(hybrid.read_passages, min(filling, most))]
        rows = self._vectors.rows([briefs[at].content for at in chosen])
        return {
            need: _extended(values, chosen, self._vectors.cosines(rows, need))
            for need, values in quick.items()
        }

    def _confirming(
        self, contents: Sequence[str], quick: FloatRows, similarity: float
    ) -> FloatRows:
        """The embedder's vectors of what the first stage takes for near-duplicates; else zeros."""
        least = 1.0 - _FIRST_STAGE_DISTANCE * (1.0 - similarity)
        starts = range(0, len(quick), _BLOCK)
        # Each passage is near itself, so one with a near-duplicate has two.
        near = [((quick[at : at + _BLOCK] @ quick.T) >= least).sum(axis=1) > 1 for at in starts]
        chosen = np.flatnonzero(np.concatenate(near)).tolist()
        rows = np.zeros((len(contents), self._vectors.embedder.dimensions), dtype=np.float32)
        rows[chosen] = self._vectors.rows([contents[at] for at in chosen])
        return rows

    def _cut(self, contents: Sequence[str]) -> list[_CutText]:
        """Cut and count texts; new ones are processed together, others are cached."""
        known = self._known
        if new := [text for text in dict.fromkeys(contents) if text not in known]:
            cut = cached_values(self._vectors.embedder, self._cuts, new, self._cut_new)
            known.update(zip(new, map(_CutText.read, cut), strict=True))
        return [known[text] for text in contents]

    def _cut_new(self, new: Sequence[str]) -> list[bytes]:
        counter = self._counter
        counts = counter.count_many([marker_text(text) for text in new])
        spans = [
            cut_text(text, tokens, counter, self._chunking)
            if self._settings.hybrid.enabled
            else ((0, len(text)),)
            for text, tokens in zip(new, counts, strict=True)
        ]
        long = [text[i:j] for text, own in zip(new, spans, strict=True) for i, j in own if own[1:]]
        counted = iter(counter.count_many([marker_text(text) for text in long]) if long else ())
        return [
            array(
                "q",
                [tokens, *chain(*own), *([next(counted) for _ in own] if own[1:] else [tokens])],
            ).tobytes()
            for own, tokens in zip(spans, counts, strict=True)
        ]


def _fused(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """What each value adds in rank fusion; equal values add the same."""
    above = np.searchsorted(np.sort(-values), -values)
    return np.asarray(1.0 / (_FUSION + above), dtype=np.float64)


def _extended(
    quick: npt.NDArray[np.floating], chosen: npt.NDArray[np.intp], read: FloatRows
) -> FloatRows:
    """The cosines of the chosen passages, and for the others a line through these."""
    quick = quick.astype(np.float64)
    known, values = quick[chosen], read.astype(np.float64)
    apart = known - known.mean()
    slope = max(0.0, float((apart * values).sum() / max((apart * apart).sum(), 1e-12)))
    line = values.mean() + slope * (quick - known.mean())
    line = np.minimum(line, np.quantile(values, 0.25))
    line[chosen] = values
    return np.asarray(line, dtype=np.float32)


def _briefs(facts: Sequence[Fact], cut: Sequence[_CutText]) -> list[FactBrief]:
    """A `FactBrief` of each passage for scoring; passages of one text are neighbours."""
    briefs: list[FactBrief] = []
    for fact, pieces in zip(facts, cut, strict=True):
        brief = FactBrief.of(fact)
        if len(pieces.spans) == 1:
            briefs.append(brief)
            continue
        briefs += [
            replace(
                brief,
                fact_id=passage_id(fact.fact_id, number),
                content=fact.content[start:end],
                # With the text's id, as passages of two texts of one source are not neighbours.
                source_id=f"{fact.source_id} {fact.fact_id}",
                source_location=f"{start}-{end}",
            )
            for number, (start, end) in enumerate(pieces.spans)
        ]
    return briefs


def relevant_floor(embedder: Embedder) -> int | None:
    """Minimum relevance at which the embedder's card calls a fact relevant, in fixed point."""
    floor = embedder.thresholds.get("relevance_floor")
    return None if floor is None else to_fixed(floor)


def recount_tokens(candidates: Candidates, counter: TokenCounter) -> Candidates:
    """The candidates with their tokens counted by another counter."""
    texts = [
        marker_text(text)
        for fact in candidates.facts
        for text in (
            fact.content,
            *(fact.content[passage.start : passage.end] for passage in fact.passages),
        )
    ]
    counts = iter(counter.count_many(texts))
    facts = tuple(
        replace(
            fact,
            tokens=max(0, next(counts)),
            passages=tuple(
                [passage._replace(tokens=max(0, next(counts))) for passage in fact.passages]
            ),
        )
        for fact in candidates.facts
    )
    return replace(candidates, facts=facts, tokenizer=counter.identity)


def _read(facts: Sequence[Fact | str]) -> list[Fact]:
    """Turn a caller's texts and facts into facts."""
    if not isinstance(facts, Iterable):
        raise RequestError(f"facts is {type(facts).__name__}, wanted a list of texts or facts")
    return [_fact(number, fact) for number, fact in enumerate(facts, start=1)]


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


def _unique(facts: Sequence[Fact]) -> list[Fact]:
    """The facts that may be shown, by id; of copies the most important, whatever their order."""
    best: dict[str, Fact] = {}
    for fact in facts:
        held = best.setdefault(fact.fact_id, fact)
        if held is fact:
            continue
        if held.content_hash != fact.content_hash:
            raise RequestError(f"fact id {fact.fact_id} is used for two texts, wanted one each")
        best[fact.fact_id] = max(
            (held, fact), key=lambda copy: (copy.importance_weight, copy.model_dump_json())
        )
    shut_out = {fact.fact_id for fact in facts if fact.status not in RETRIEVABLE}
    return [best[fact_id] for fact_id in sorted(best) if fact_id not in shut_out]

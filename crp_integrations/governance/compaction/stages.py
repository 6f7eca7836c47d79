"""The context during compaction: what is shown of each entry, what it costs, what was removed.

Pieces are scored by their relevance to the question (`relevance@1`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

import numpy as np

from crp_integrations.envelope import hybrid
from crp_integrations.envelope.settings import HybridSettings
from crp_integrations.governance.compaction.json_data import read_text
from crp_integrations.governance.compaction.text_pieces import (
    FIGURE,
    ProseText,
    ShortenedText,
    Spans,
    has_words_outside,
    keep_whole,
    merge_spans,
    part_id,
    subtract_spans,
)
from crp_integrations.language.lexical_overlap import coverages, profiles
from crp_integrations.scores import to_fixed

RELEVANCE: Final = "relevance@1"
# Weights of a log entry's or data member's score: its own weight, its words, its whole text.
_OWN_WEIGHT, _WORDS_WEIGHT, _WHOLE_WEIGHT = 0.45, 0.40, 0.15
_NAME_MARGIN = 1e-5
# Share of a piece's own words in its score; the rest is the best stretch that it overlaps.
_OWN_WORDS = 0.30


class Relevance:
    """Scores of texts and their pieces for one question; texts are read on first use.

    Args:
        bonus: score added to a piece with a figure or a quotation.
        dense: known scores of the texts; None to use only the words.
    """

    def __init__(
        self,
        question: str,
        texts: Sequence[str],
        bonus: float,
        dense: Sequence[float] | None = None,
    ) -> None:
        self._question = question
        self._texts = texts
        self._bonus = bonus
        # The default powers were measured for whole facts; pieces are scored without them.
        settings = HybridSettings(cosine_power=1.0, lexical_power=1.0, stretch_power=1.0)
        self._readings: dict[int, ProseText] = {}
        self._fixed: dict[int, list[int]] = {}
        count = len(texts)
        prior = np.zeros(count) if dense is None else np.asarray(dense, dtype=np.float64)
        beside = np.full((count, 2), -1, dtype=np.intp)
        pool = hybrid.CandidatePool(question, texts, prior, beside)
        self._scores = hybrid.score_pool(hybrid.weigh_pool(pool, settings), settings)

    def of(self, at: int) -> int:
        """A text's score as a fixed-point number."""
        return to_fixed(float(self._scores.total[at]))

    @property
    def best(self) -> int:
        """The best text's score, fixed point; 0 if no text is relevant to the question."""
        return to_fixed(float(self._scores.total.max(initial=0.0)))

    def reading(self, at: int) -> ProseText:
        """A text divided into pieces by its kind."""
        if at not in self._readings:
            self._readings[at] = read_text(self._texts[at])
        return self._readings[at]

    def pieces(self, at: int) -> list[int]:
        """The scores of a text's pieces, as fixed-point numbers in [0, SCALE]."""
        if at not in self._fixed:
            reading = self.reading(at)
            # Share of the question's words in each piece, weighted by rarity among the pieces.
            own = coverages(self._question, [reading.text[p.start : p.end] for p in reading.pieces])
            scores = self._by_stretch(at, own) if reading.by_stretch else self._by_words(at, own)
            self._fixed[at] = [
                to_fixed(
                    (score + self._bonus * bool(FIGURE.search(reading.text[p.start : p.end])))
                    / (1.0 + self._bonus)
                )
                for score, p in zip(scores, reading.pieces, strict=True)
            ]
        return self._fixed[at]

    def _by_stretch(self, at: int, own: Sequence[float]) -> list[float]:
        """The best score among the stretches that a piece overlaps."""
        (profile,) = profiles([self._texts[at]])
        begin = self._scores.begins[at]
        scores, first = [], 0
        for piece, words in zip(self.reading(at).pieces, own, strict=True):
            while first < len(profile.ends) and profile.ends[first] <= piece.start:
                first += 1
            best, place = 0.0, first
            while place < len(profile.starts) and profile.starts[place] < piece.end:
                best = max(best, float(self._scores.parts[begin + place]))
                place += 1
            # A stretch may cover several pieces; their own words make the difference.
            scores.append((1.0 - _OWN_WORDS) * best + _OWN_WORDS * words)
        return scores

    def _by_words(self, at: int, own: Sequence[float]) -> list[float]:
        """A mix of the piece's own weight, the question's words in it, and the text's score."""
        reading = self.reading(at)
        whole = float(self._scores.total[at])
        scores = [
            _OWN_WEIGHT * piece.weight + _WORDS_WEIGHT * words + _WHOLE_WEIGHT * whole
            for piece, words in zip(reading.pieces, own, strict=True)
        ]
        # The names of a hit score just above its pieces, so they are removed after them.
        for number, names in reading.named.items():
            for name in names:
                scores[name] = max(scores[name], min(1.0, scores[number] + _NAME_MARGIN))
        return scores


class LossReason(StrEnum):
    """Why something is not shown unchanged, in the order in which the methods are tried."""

    DUPLICATE = "duplicate"
    TARGETED = "targeted"
    IRRELEVANT = "irrelevant"
    OFFLOADED = "offloaded"
    PRUNED = "pruned"
    SUMMARISED = "summarised"
    BUDGET = "budget"


class Firmness(IntEnum):
    """How firmly an entry is kept, loosest first."""

    FREE = 0
    RECENT = 1
    # The results of a call that the model has not seen yet: shortened, never removed.
    OPEN = 2
    PINNED = 3


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """A message, or an item of a pack.

    Attributes:
        unit: number shared by entries that are kept or removed together, as a call and its results.
        cuttable: whether it may be shown in part, in place.
        droppable: whether its unit may be dropped as irrelevant to the question.
        shelf: entries of one shelf may be summarised together.
        cluster: entries of one cluster are summarised before the clusters are combined.
        speaker: speaker that a summary names; may be empty.
    """

    id: str
    text: str
    unit: int
    firmness: Firmness
    cuttable: bool
    droppable: bool
    shelf: str = ""
    cluster: str = ""
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """Counts the tokens of entries and summaries including their formatting.

    Attributes:
        base: tokens that are used whatever is shown.
    """

    entries: Callable[[Sequence[int], Sequence[str]], list[int]]
    summaries: Callable[[Sequence[str]], list[int]]
    base: int = 0


class WorkingContext:
    """The entries as they are shown, with the tokens they cost. Used for one compaction.

    Attributes:
        total: tokens of everything shown, as the sum of its parts.
        cuts: what is shown of each entry; None if it was removed.
        folded: what was shown of entries that are to be summarised, by shelf and number.
        frames: handles of texts that were put into the store, by number.
    """

    def __init__(
        self, entries: Sequence[ContextEntry], costs: TokenCosts, relevance: Relevance
    ) -> None:
        self.entries = entries
        self.costs = costs
        self.relevance = relevance
        self.units: dict[int, list[int]] = {}
        for number, entry in enumerate(entries):
            self.units.setdefault(entry.unit, []).append(number)
        self.cuts: list[ShortenedText | None] = [keep_whole(entry.text, 0) for entry in entries]
        self.cost = costs.entries(range(len(entries)), [entry.text for entry in entries])
        self.total = costs.base + sum(self.cost)
        self.frames: dict[int, str] = {}
        self.folded: dict[str, dict[int, ShortenedText]] = {}
        self._losses: dict[LossReason, dict[int, list[tuple[int, int]]]] = {}
        self.savings: dict[LossReason, int] = {}

    def firmness(self, unit: int) -> Firmness:
        """The highest firmness in a unit."""
        return max(self.entries[number].firmness for number in self.units[unit])

    def is_whole(self, at: int) -> bool:
        """Whether an entry is shown unchanged."""
        cut = self.cuts[at]
        return cut is not None and cut.text == self.entries[at].text

    def shown_pieces(self, at: int) -> list[int]:
        """Numbers of the pieces of an entry that are shown, ascending."""
        cut = self.cuts[at]
        if cut is None:
            return []
        if self.is_whole(at):
            return list(range(len(self.relevance.reading(at).pieces)))
        return list(cut.pieces)

    def show(self, changes: Mapping[int, ShortenedText], reason: LossReason) -> int:
        """Change how entries are shown, each only if that saves tokens; return the tokens saved."""
        at = [number for number in changes if self.cuts[number] is not None]
        counts = self.costs.entries(at, [changes[number].text for number in at])
        saved = 0
        for number, cost in zip(at, counts, strict=True):
            if cost >= self.cost[number]:
                continue
            before, cut = self.cuts[number], changes[number]
            assert before is not None
            self._lose(number, subtract_spans(before.spans, cut.spans), reason)
            saved += self.cost[number] - cost
            self.cuts[number], self.cost[number] = cut, cost
        self._save(reason, saved)
        return saved

    def drop(self, unit: int, reason: LossReason) -> int:
        """Remove a unit and return the tokens saved."""
        saved = 0
        for number in self.units[unit]:
            cut = self.cuts[number]
            if cut is None:
                continue
            self._lose(number, cut.spans, reason)
            saved += self.cost[number]
            self.cuts[number], self.cost[number] = None, 0
        self._save(reason, saved)
        return saved

    def fold(self, unit: int) -> int:
        """Remove a unit to summarise it later; return the tokens saved before the summary."""
        for number in self.units[unit]:
            cut = self.cuts[number]
            if cut is not None:
                self.folded.setdefault(self.entries[number].shelf, {})[number] = cut
        return self.drop(unit, LossReason.SUMMARISED)

    def forgo(self, shelf: str) -> None:
        """Count folded entries as lost to the budget, because no summary fits."""
        saved = self.folded_tokens(shelf)
        folded = self.folded.pop(shelf)
        losses = self._losses.get(LossReason.SUMMARISED, {})
        for number in folded:
            spans = losses.pop(number, None)
            if spans is not None:
                self._lose(number, tuple(spans), LossReason.BUDGET)
        self._save(LossReason.SUMMARISED, -saved)
        self._save(LossReason.BUDGET, saved)

    def unfold(self, shelf: str) -> None:
        """Show folded entries again, because a summary would not be shorter."""
        folded = self.folded.pop(shelf)
        at = list(folded)
        counts = self.costs.entries(at, [folded[number].text for number in at])
        for number, cost in zip(at, counts, strict=True):
            self.cuts[number], self.cost[number] = folded[number], cost
            self._losses.get(LossReason.SUMMARISED, {}).pop(number, None)
        self._save(LossReason.SUMMARISED, -sum(counts))

    def folded_tokens(self, shelf: str) -> int:
        """Tokens that the folded entries cost when shown."""
        folded = self.folded[shelf]
        return sum(self.costs.entries(list(folded), [cut.text for cut in folded.values()]))

    def charge(self, reason: LossReason, tokens: int) -> None:
        """Subtract the tokens of a replacement from the savings of a reason."""
        self._save(reason, -tokens)

    def losses(self) -> dict[LossReason, list[str]]:
        """Names of the items and parts that were lost for each reason, in order."""
        by_reason: dict[LossReason, list[str]] = {}
        for reason in LossReason:
            names: list[str] = []
            for number, spans in sorted(self._losses.get(reason, {}).items()):
                entry = self.entries[number]
                text = entry.text
                gone = merge_spans(spans, text)
                # One reason removed the whole text, so its id is enough.
                if self.cuts[number] is None and not has_words_outside(text, gone):
                    names.append(entry.id)
                else:
                    names += [part_id(entry.id, *span) for span in gone]
            if names:
                by_reason[reason] = names
        return by_reason

    def _lose(self, number: int, spans: Spans, reason: LossReason) -> None:
        if spans:
            self._losses.setdefault(reason, {}).setdefault(number, []).extend(spans)

    def _save(self, reason: LossReason, tokens: int) -> None:
        self.total -= tokens
        self.savings[reason] = self.savings.get(reason, 0) + tokens

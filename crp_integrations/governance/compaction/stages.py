"""The methods of compaction in their order: deduplicate, drop, offload, prune, fold.

Each goes on until the aim is reached. Less firm entries go first; ties go by place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Final, Protocol

from crp_integrations.envelope.prompt import ELLIPSIS
from crp_integrations.governance.compaction.records import ArtifactRef, ArtifactStore
from crp_integrations.governance.compaction.relevance import Relevance
from crp_integrations.governance.compaction.text_pieces import (
    ShortenedText,
    Spans,
    has_words_outside,
    keep_whole,
    merge_spans,
    part_id,
    subtract_spans,
)


class LossReason(StrEnum):
    """Why something is not shown as it was, in the order in which the methods are tried."""

    DUPLICATE = "duplicate"
    TARGETED = "targeted"
    IRRELEVANT = "irrelevant"
    OFFLOADED = "offloaded"
    PRUNED = "pruned"
    SUMMARISED = "summarised"
    BUDGET = "budget"


class Firmness(IntEnum):
    """How firmly an entry stays, loosest first."""

    FREE = 0
    RECENT = 1
    # The results of a call that the model has not seen yet: shortened, never taken away.
    OPEN = 2
    PINNED = 3


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """A message, or an item of a pack.

    Attributes:
        unit: number of what stays or goes together, such as a call and its results.
        cuttable: it may be shown in part in its place.
        droppable: its unit may go for saying nothing to the question.
        shelf: entries of one shelf may be summed up together.
        cluster: entries of one cluster are summed up before the clusters are.
        speaker: who says it, as a summary tells it; may be empty.
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


class TokenCosts(Protocol):
    """Counts the tokens of entries and summaries in their place."""

    @property
    def base(self) -> int:
        """Tokens that are there whatever is shown."""
        ...

    def entries(self, at: Sequence[int], texts: Sequence[str]) -> list[int]:
        """Tokens of entries with these texts in their place."""
        ...

    def summaries(self, texts: Sequence[str]) -> list[int]:
        """Tokens of summaries as they will stand."""
        ...


class WorkingContext:
    """The entries as they are shown, with the tokens they cost. For one compaction alone.

    Attributes:
        total: tokens of everything shown, by the sum of its parts.
        cuts: what is shown of each entry; None for one that has gone from its place.
        folded: what was shown of entries that are to be summed up, by shelf and number.
        frames: handles of texts that are kept elsewhere, by number.
        savings: tokens saved by each reason.
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
        """Whether an entry is shown as it was."""
        cut = self.cuts[at]
        return cut is not None and cut.text == self.entries[at].text

    def kept(self, at: int) -> list[int]:
        """Numbers of the pieces of an entry that are shown, ascending."""
        cut = self.cuts[at]
        if cut is None:
            return []
        if self.is_whole(at):
            return list(range(len(self.relevance.reading(at).pieces)))
        return list(cut.kept)

    def show(self, changes: Mapping[int, ShortenedText], reason: LossReason) -> int:
        """Show entries in another way, each where that saves tokens; return the tokens saved."""
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
        """Take a unit away and return the tokens saved."""
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
        """Take a unit away to be summed up and return the tokens saved before the summary."""
        for number in self.units[unit]:
            cut = self.cuts[number]
            if cut is not None:
                self.folded.setdefault(self.entries[number].shelf, {})[number] = cut
        return self.drop(unit, LossReason.SUMMARISED)

    def forgo(self, shelf: str) -> None:
        """Count folded entries as lost to the budget, where no summary fits."""
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
        """Show folded entries again, where a summary would be no shorter."""
        folded = self.folded.pop(shelf)
        at = list(folded)
        counts = self.costs.entries(at, [folded[number].text for number in at])
        for number, cost in zip(at, counts, strict=True):
            self.cuts[number], self.cost[number] = folded[number], cost
            self._losses.get(LossReason.SUMMARISED, {}).pop(number, None)
        self._save(LossReason.SUMMARISED, -sum(counts))

    def folded_tokens(self, shelf: str) -> int:
        """Tokens that the folded entries had in their place."""
        folded = self.folded[shelf]
        return sum(self.costs.entries(list(folded), [cut.text for cut in folded.values()]))

    def charge(self, reason: LossReason, tokens: int) -> None:
        """Count the tokens of what replaces the lost entries."""
        self._save(reason, -tokens)

    def losses(self) -> dict[LossReason, list[str]]:
        """Names of the items and parts lost by each reason, in order."""
        found: dict[LossReason, list[str]] = {}
        for reason in LossReason:
            names: list[str] = []
            for number, spans in sorted(self._losses.get(reason, {}).items()):
                entry = self.entries[number]
                text = entry.text
                gone = merge_spans(spans, text)
                # All of it by one reason: its id says it in fewer words.
                if self.cuts[number] is None and not has_words_outside(text, gone):
                    names.append(entry.id)
                else:
                    names += [part_id(entry.id, *span) for span in gone]
            if names:
                found[reason] = names
        return found

    def _lose(self, number: int, spans: Spans, reason: LossReason) -> None:
        if spans:
            self._losses.setdefault(reason, {}).setdefault(number, []).extend(spans)

    def _save(self, reason: LossReason, tokens: int) -> None:
        self.total -= tokens
        self.savings[reason] = self.savings.get(reason, 0) + tokens


SAME: Final = "(a later call had the same result)"
HANDLE: Final = "(kept whole as {ref})"
# Rounds of estimating and counting before a method gives up; each comes nearer by the excess.
_ROUNDS: Final = 8


def deduplicate(context: WorkingContext, *, in_place: bool) -> None:
    """Show equal texts once: in a history the last, with a note before it; in a pack the first."""
    seen: dict[tuple[str, str], int] = {}
    order: Iterable[int] = range(len(context.entries))
    for at in reversed(list(order)) if in_place else order:
        entry = context.entries[at]
        words = " ".join(entry.text.split())
        if not words or not entry.cuttable or entry.firmness is Firmness.PINNED:
            continue
        first = seen.setdefault((entry.shelf, words), at)
        if first == at:
            continue
        if in_place:
            context.show({at: ShortenedText(SAME, (), ())}, LossReason.DUPLICATE)
        else:
            context.drop(entry.unit, LossReason.DUPLICATE)


def drop(context: WorkingContext, aim: int, below: float, firmness: Firmness) -> None:
    """Drop the least relevant units, as long as they score below a share of the best."""
    best = context.relevance.best
    if not best:
        return
    scored = sorted(
        (max(context.relevance.of(number) for number in numbers), unit)
        for unit, numbers in context.units.items()
        if context.firmness(unit) <= firmness
        and all(context.entries[number].droppable for number in numbers)
    )
    for score, unit in scored:
        if context.total <= aim or score >= below * best:
            return
        context.drop(unit, LossReason.IRRELEVANT)


def offload(
    context: WorkingContext,
    aim: int,
    artifacts: ArtifactStore | None,
    *,
    least: int,
    extract: int,
    firmness_range: tuple[Firmness, Firmness],
) -> list[tuple[int, ArtifactRef]]:
    """Put large texts into a store and show a handle with a short extract, largest first."""
    if artifacts is None:
        return []
    found: list[tuple[int, ArtifactRef]] = []
    large = sorted(
        (int(context.entries[at].firmness), -context.cost[at], at)
        for at in _find_cuttable(context, firmness_range[1])
        if context.entries[at].firmness >= firmness_range[0]
        and context.cost[at] >= least
        and context.is_whole(at)
    )
    for _, _, at in large:
        if context.total <= aim:
            break
        entry = context.entries[at]
        ref = artifacts.put(
            entry.text, kind=context.relevance.reading(at).kind, sources=(entry.id,)
        )
        cut = _best_extract(context, at, extract)
        context.frames[at] = HANDLE.format(ref=ref.ref)
        if context.show({at: _with_handle(context, at, cut)}, LossReason.OFFLOADED):
            found.append((at, ref))
        else:
            del context.frames[at]
    return found


def prune(
    context: WorkingContext,
    aim: int,
    firmness: Firmness,
    *,
    reason: LossReason = LossReason.PRUNED,
    only: Sequence[int] | None = None,
    keep: float,
) -> None:
    """Take the pieces away that say least to the question, from all texts that may be cut."""
    places = _find_cuttable(context, firmness) if only is None else list(only)
    excess = context.total - aim
    for _ in range(_ROUNDS):
        if context.total <= aim:
            return
        stay = {at: context.kept(at) for at in places}
        gone = _least_relevant(context, stay, excess, keep)
        if not gone:
            return
        changes = {
            at: _with_handle(
                context,
                at,
                context.relevance.reading(at).cut([n for n in stay[at] if n not in numbers]),
            )
            for at, numbers in gone.items()
        }
        # What went may have saved nothing by itself, since a sign stands in its place.
        excess = context.total - aim if context.show(changes, reason) else 2 * excess


def _least_relevant(
    context: WorkingContext, stay: dict[int, list[int]], excess: int, keep: float
) -> dict[int, set[int]]:
    """Pieces that say least, as many as come to the excess by their share of the characters."""
    ranked: list[tuple[int, int, int]] = []
    rate: dict[int, float] = {}
    for at, kept in stay.items():
        scores, pieces = context.relevance.pieces(at), context.relevance.reading(at).pieces
        size = sum(pieces[number].end - pieces[number].start for number in kept)
        rate[at] = context.cost[at] / max(1, size)
        best = sorted(kept, key=lambda number: (-scores[number], number))
        most = math.ceil(keep * len(pieces))
        ranked += [(scores[number], -at, -number) for number in best[most:]]
    ranked.sort()
    taken: list[tuple[int, int, float]] = []
    freed = 0.0
    for _, at, number in ranked:
        if freed >= excess:
            break
        piece = context.relevance.reading(-at).pieces[-number]
        taken.append((-at, -number, rate[-at] * (piece.end - piece.start)))
        freed += taken[-1][2]
    gone: dict[int, set[int]] = {}
    # The last one may free more than is needed: what says more and fits comes back.
    for at, number, tokens in reversed(taken):
        if tokens <= freed - excess:
            freed -= tokens
        else:
            gone.setdefault(at, set()).add(number)
    return gone


def fold(
    context: WorkingContext, aim: int, most_items: int, order: Sequence[int], room: int
) -> None:
    """Take units away to be summed up, in the order given."""
    left = sum(1 for cut in context.cuts if cut is not None)
    for unit in order:
        shown = [number for number in context.units[unit] if context.cuts[number] is not None]
        if not shown:
            continue
        reserve = room if context.folded else 0
        if context.total + reserve <= aim and left + len(context.folded) <= most_items:
            return
        context.fold(unit)
        left -= len(shown)


def _find_cuttable(context: WorkingContext, firmness: Firmness) -> list[int]:
    return [
        at
        for at, entry in enumerate(context.entries)
        if entry.cuttable and entry.firmness <= firmness and context.cuts[at] is not None
    ]


def _with_handle(context: WorkingContext, at: int, cut: ShortenedText) -> ShortenedText:
    """A cut behind the handle of the whole text, where that is kept elsewhere."""
    frame = context.frames.get(at)
    text = cut.text or ELLIPSIS.strip()
    if frame is not None:
        text = f"{frame}\n{cut.text}" if cut.text else frame
    return replace(cut, text=text)


def _best_extract(context: WorkingContext, at: int, tokens: int) -> ShortenedText:
    """The best pieces of a text that fit, by their share of its characters."""
    reading, scores = context.relevance.reading(at), context.relevance.pieces(at)
    size = max(1, sum(piece.end - piece.start for piece in reading.pieces))
    kept: list[int] = []
    used = 0
    for number in sorted(range(len(scores)), key=lambda n: (-scores[n], n)):
        piece = reading.pieces[number]
        cost = context.cost[at] * (piece.end - piece.start) // size
        if used + cost <= tokens:
            kept.append(number)
            used += cost
    return reading.cut(sorted(kept)) if kept else ShortenedText("", (), (), ("text",))

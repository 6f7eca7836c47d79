"""The methods in their order: deduplicate, drop, offload, prune by the question, fold.

Each goes on until the aim is reached. Less firm entries go first; ties go by place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from crp_integrations.envelope.prompt import ELLIPSIS
from crp_integrations.governance.compaction.records import ArtifactRef, ArtifactStore
from crp_integrations.governance.compaction.text_pieces import ShortenedText
from crp_integrations.governance.compaction.working_context import (
    Firmness,
    LossReason,
    WorkingContext,
)

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

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


def deduplicate(board: WorkingContext, *, in_place: bool) -> None:
    """Show equal texts once."""
    seen: dict[tuple[str, str], int] = {}
    order: Iterable[int] = range(len(board.entries))
    for at in reversed(list(order)) if in_place else order:
        entry = board.entries[at]
        words = " ".join(entry.text.split())
        if not words or not entry.cuttable or entry.standing is Firmness.PINNED:
            continue
        first = seen.setdefault((entry.shelf, words), at)
        if first == at:
            continue
        if in_place:
            board.show({at: ShortenedText(SAME, (), ())}, LossReason.DUPLICATE)
        else:
            board.drop(entry.unit, LossReason.DUPLICATE)


def drop(board: WorkingContext, aim: int, below: float, standing: Firmness) -> None:
    """Take away units that say least to the question, as long as they say little."""
    best = board.relevance.best
    if not best:
        return
    scored = sorted(
        (max(board.relevance.of(number) for number in numbers), unit)
        for unit, numbers in board.units.items()
        if board.standing(unit) <= standing
        and all(board.entries[number].droppable for number in numbers)
    )
    for score, unit in scored:
        if board.total <= aim or score >= below * best:
            return
        board.drop(unit, LossReason.IRRELEVANT)


def offload(
    board: WorkingContext,
    aim: int,
    artifacts: ArtifactStore | None,
    *,
    least: int,
    extract: int,
    standings: tuple[Firmness, Firmness],
) -> list[tuple[int, ArtifactRef]]:
    """Put large texts into a store and show a handle with a short extract, largest first."""
    if artifacts is None:
        return []
    found: list[tuple[int, ArtifactRef]] = []
    large = sorted(
        (int(board.entries[at].standing), -board.cost[at], at)
        for at in _find_cuttable(board, standings[1])
        if board.entries[at].standing >= standings[0]
        and board.cost[at] >= least
        and board.is_whole(at)
    )
    for _, _, at in large:
        if board.total <= aim:
            break
        entry = board.entries[at]
        ref = artifacts.put(entry.text, kind=board.relevance.reading(at).kind, sources=(entry.id,))
        cut = _best_extract(board, at, extract)
        board.frames[at] = HANDLE.format(ref=ref.ref)
        if board.show({at: _with_handle(board, at, cut)}, LossReason.OFFLOADED):
            found.append((at, ref))
        else:
            del board.frames[at]
    return found


def prune(
    board: WorkingContext,
    aim: int,
    standing: Firmness,
    *,
    reason: LossReason = LossReason.PRUNED,
    only: Sequence[int] | None = None,
    keep: float,
) -> None:
    """Take the pieces away that say least to the question, from all texts that may be cut."""
    places = _find_cuttable(board, standing) if only is None else list(only)
    excess = board.total - aim
    for _ in range(_ROUNDS):
        if board.total <= aim:
            return
        stay = {at: board.kept(at) for at in places}
        gone = _least_relevant(board, stay, excess, keep)
        if not gone:
            return
        changes = {
            at: _with_handle(
                board,
                at,
                board.relevance.reading(at).cut([n for n in stay[at] if n not in numbers]),
            )
            for at, numbers in gone.items()
        }
        # What went may have saved nothing by itself, since a sign stands in its place.
        excess = board.total - aim if board.show(changes, reason) else 2 * excess


def _least_relevant(
    board: WorkingContext, stay: dict[int, list[int]], excess: int, keep: float
) -> dict[int, set[int]]:
    """Pieces that say least, as many as come to the excess by their share of the characters."""
    ranked: list[tuple[int, int, int]] = []
    rate: dict[int, float] = {}
    for at, kept in stay.items():
        scores, pieces = board.relevance.pieces(at), board.relevance.reading(at).pieces
        size = sum(pieces[number].end - pieces[number].start for number in kept)
        rate[at] = board.cost[at] / max(1, size)
        best = sorted(kept, key=lambda number: (-scores[number], number))
        most = math.ceil(keep * len(pieces))
        ranked += [(scores[number], -at, -number) for number in best[most:]]
    ranked.sort()
    taken: list[tuple[int, int, float]] = []
    freed = 0.0
    for _, at, number in ranked:
        if freed >= excess:
            break
        piece = board.relevance.reading(-at).pieces[-number]
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


def fold(board: WorkingContext, aim: int, most_items: int, order: Sequence[int], room: int) -> None:
    """Take units away to be summed up, in the order given."""
    left = sum(1 for cut in board.cuts if cut is not None)
    for unit in order:
        shown = [number for number in board.units[unit] if board.cuts[number] is not None]
        if not shown:
            continue
        reserve = room if board.folded else 0
        if board.total + reserve <= aim and left + len(board.folded) <= most_items:
            return
        board.fold(unit)
        left -= len(shown)


def _find_cuttable(board: WorkingContext, standing: Firmness) -> list[int]:
    return [
        at
        for at, entry in enumerate(board.entries)
        if entry.cuttable and entry.standing <= standing and board.cuts[at] is not None
    ]


def _with_handle(board: WorkingContext, at: int, cut: ShortenedText) -> ShortenedText:
    """A cut behind the handle of the whole text, where that is kept elsewhere."""
    frame = board.frames.get(at)
    text = cut.text or ELLIPSIS.strip()
    if frame is not None:
        text = f"{frame}\n{cut.text}" if cut.text else frame
    return replace(cut, text=text)


def _best_extract(board: WorkingContext, at: int, tokens: int) -> ShortenedText:
    """The best pieces of a text that fit, by their share of its characters."""
    reading, scores = board.relevance.reading(at), board.relevance.pieces(at)
    size = max(1, sum(piece.end - piece.start for piece in reading.pieces))
    kept: list[int] = []
    used = 0
    for number in sorted(range(len(scores)), key=lambda n: (-scores[n], n)):
        piece = reading.pieces[number]
        cost = board.cost[at] * (piece.end - piece.start) // size
        if used + cost <= tokens:
            kept.append(number)
            used += cost
    return reading.cut(sorted(kept)) if kept else ShortenedText("", (), (), ("text",))

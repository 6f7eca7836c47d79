"""One compaction from the triggers to the reports, the same for histories and for packs.

The methods in their order: deduplicate, drop, offload, prune, fold, summarise. Each continues until
its target is reached. Less firm entries go first, ties by position. Summaries quote in levels:
source, cluster, session (`extractive@1`); each selects the best pieces of the level below, so a
sentence in a session's summary is also in those of its cluster and source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Final

from crp_integrations.envelope.prompt import ELLIPSIS
from crp_integrations.governance.compaction.records import (
    EXTRACTIVE,
    ArtifactRef,
    ArtifactStore,
    Citation,
    Summary,
    SummaryLevel,
    Trigger,
    budget_share,
)
from crp_integrations.governance.compaction.stages import (
    RELEVANCE,
    Firmness,
    LossReason,
    WorkingContext,
)
from crp_integrations.governance.compaction.text_pieces import (
    ShortenedText,
    merge_spans,
    quote_spans,
)
from crp_integrations.governance.context_pack import DropReport
from crp_integrations.governance.settings import CompactionSettings

COMPACTION: Final = "compaction@1"
ALGORITHMS: Final = (COMPACTION, RELEVANCE, EXTRACTIVE)
SAME: Final = "(a later call had the same result)"
HANDLE: Final = "(kept whole as {ref})"
# Multiples of an equal share that a source's or cluster's summary may take; others need less.
_SOURCE_PART, _CLUSTER_PART = 3, 2
# Maximum rounds of pruning, as removed tokens are only estimated; each aims at the excess left.
_MAX_ROUNDS: Final = 8

# Numbers of chosen pieces, by the number of their entry.
Chosen = dict[int, list[int]]
# Writes a line of a summary from its mark, the speaker, and the quotation.
Line = Callable[[int, str, str], str]


@dataclass(slots=True)
class CompactionRun:
    """Compacts a context once, as far as the triggers demand.

    Spec: Summit §Compression Strategy

    Attributes:
        slack: tokens to stay below the budget, since the whole may count more than its parts.
        in_place: a repeated result is replaced by a note, as in a history, instead of dropped.
        order: units that may be summarised, in the order in which they are taken.
        offloaded: texts and summaries that were put into the store.
    """

    context: WorkingContext
    settings: CompactionSettings
    budget: int
    slack: int
    triggers: Sequence[Trigger]
    head: str
    line: Line
    in_place: bool
    order: Sequence[int]
    artifacts: ArtifactStore | None = None
    offloaded: list[ArtifactRef] = field(default_factory=list)
    shown: dict[str, Summary] = field(default_factory=dict)
    summaries: list[Summary] = field(default_factory=list)
    limit: int = field(init=False)
    _room: int = field(init=False)

    def __post_init__(self) -> None:
        # Maximum tokens of the parts, and of the summaries.
        self.limit = self.budget - self.slack
        self._room = budget_share(self.budget, self.settings.summary_share)

    @property
    def _reserve(self) -> int:
        """Tokens to keep free for the summaries that are still to be made."""
        return self._room if self.context.folded else 0

    def go(self) -> None:
        """Run all methods."""
        if Trigger.TOOL_CALL in self.triggers:
            self._shorten_results()
        if set(self.triggers) - {Trigger.TOOL_CALL}:
            self._reduce_loose()
            if self.context.total + self._reserve > self.limit:
                self._reduce_firm()
        elif self.context.total > self.limit:
            # A tool call alone fires below the trigger's share, so the budget was just exceeded.
            self._reduce_firm()
        self._sum_up()
        self._record_shortened()

    def reports(self, now: datetime) -> tuple[DropReport, ...]:
        """One report for each reason for which something was left out.

        Spec: Summit §Context Assembly Data Contracts
        """
        savings = self.context.savings
        return tuple(
            DropReport.of(reason.value, names, max(0, savings.get(reason, 0)), now)
            for reason, names in self.context.losses().items()
        )

    def _shorten_results(self) -> None:
        """Shorten the results of the last call, each by its kind."""
        context = self.context
        at = self._cuttable(Firmness.OPEN, Firmness.OPEN)
        excess = sum(context.cost[n] for n in at) - budget_share(
            self.budget, self.settings.blob_share
        )
        if excess <= 0:
            return
        aim = context.total - excess
        self._offload(aim, Firmness.OPEN, least=Firmness.OPEN)
        self._prune(aim, Firmness.OPEN, reason=LossReason.TARGETED, only=at, keep=0.0)

    def _reduce_loose(self) -> None:
        """Reduce the entries that may go even if the budget itself is large enough for them."""
        target = budget_share(self.budget, self.settings.target_share)
        aim = min(self.limit, target - self.slack)
        self._deduplicate()
        self._drop(aim)
        self._offload(aim, Firmness.FREE)
        self._prune(aim, Firmness.FREE, keep=self.settings.prune_to)
        self._fold(aim, lambda firmness: firmness is Firmness.FREE)

    def _reduce_firm(self) -> None:
        """Reduce recent entries, and last the results that the model has not seen yet."""
        self._offload(self.limit - self._room, Firmness.OPEN)
        self._prune(self.limit - self._room, Firmness.RECENT, keep=self.settings.prune_to)
        self._fold(self.limit, lambda firmness: firmness <= Firmness.RECENT)
        for keep in (self.settings.prune_to, 0.0):
            self._prune(self.limit - self._reserve, Firmness.OPEN, keep=keep)

    def _deduplicate(self) -> None:
        """Keep one of equal texts: in a history the last, with notes before it; else the first."""
        context = self.context
        first_of: dict[tuple[str, str], int] = {}
        places: Iterable[int] = range(len(context.entries))
        for at in reversed(list(places)) if self.in_place else places:
            entry = context.entries[at]
            words = " ".join(entry.text.split())
            if not words or not entry.cuttable or entry.firmness is Firmness.PINNED:
                continue
            if first_of.setdefault((entry.shelf, words), at) == at:
                continue
            if self.in_place:
                context.show({at: ShortenedText(SAME, (), ())}, LossReason.DUPLICATE)
            else:
                context.drop(entry.unit, LossReason.DUPLICATE)

    def _drop(self, aim: int) -> None:
        """Drop the least relevant units, if they score below a share of the best score."""
        context = self.context
        best = context.relevance.best
        scored = sorted(
            (max(context.relevance.of(number) for number in numbers), unit)
            for unit, numbers in context.units.items()
            if context.firmness(unit) is Firmness.FREE
            and all(context.entries[number].droppable for number in numbers)
        )
        for score, unit in scored:
            if context.total <= aim or score >= self.settings.drop_below * best:
                return
            context.drop(unit, LossReason.IRRELEVANT)

    def _offload(self, aim: int, most: Firmness, least: Firmness = Firmness.FREE) -> None:
        """Put large texts into a store and show a handle with a short extract, largest first."""
        context = self.context
        if self.artifacts is None:
            return
        large = sorted(
            (int(context.entries[at].firmness), -context.cost[at], at)
            for at in self._cuttable(most, least)
            if context.cost[at] >= self.settings.offload_tokens and context.is_whole(at)
        )
        for _, _, at in large:
            if context.total <= aim:
                break
            entry = context.entries[at]
            ref = self.artifacts.put(
                entry.text, kind=context.relevance.reading(at).kind, sources=(entry.id,)
            )
            cut = self._best_extract(at, self.settings.extract_tokens)
            context.frames[at] = HANDLE.format(ref=ref.ref)
            if context.show({at: self._with_handle(at, cut)}, LossReason.OFFLOADED):
                self.offloaded.append(ref)
            else:
                del context.frames[at]

    def _prune(
        self,
        aim: int,
        most: Firmness,
        *,
        keep: float,
        reason: LossReason = LossReason.PRUNED,
        only: Sequence[int] | None = None,
    ) -> None:
        """Remove the pieces that are least relevant to the question, from all cuttable texts."""
        context = self.context
        places = self._cuttable(most) if only is None else only
        excess = context.total - aim
        for _ in range(_MAX_ROUNDS):
            if context.total <= aim:
                return
            stay = {at: context.shown_pieces(at) for at in places}
            gone = self._least_relevant(stay, excess, keep)
            if not gone:
                return
            changes = {
                at: self._with_handle(
                    at,
                    context.relevance.reading(at).cut([n for n in stay[at] if n not in numbers]),
                )
                for at, numbers in gone.items()
            }
            # A removed piece may save nothing, because a gap marker replaces it.
            excess = context.total - aim if context.show(changes, reason) else 2 * excess

    def _least_relevant(
        self, stay: dict[int, list[int]], excess: int, keep: float
    ) -> dict[int, set[int]]:
        """The least relevant pieces that free the excess; tokens are estimated by characters."""
        context = self.context
        ranked: list[tuple[int, int, int]] = []
        rate: dict[int, float] = {}
        for at, numbers in stay.items():
            scores, pieces = context.relevance.pieces(at), context.relevance.reading(at).pieces
            size = sum(pieces[number].end - pieces[number].start for number in numbers)
            rate[at] = context.cost[at] / max(1, size)
            best = sorted(numbers, key=lambda number: (-scores[number], number))
            ranked += [(scores[n], -at, -n) for n in best[math.ceil(keep * len(pieces)) :]]
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
        # The last piece may free more than needed: more relevant ones that fit are kept again.
        for at, number, tokens in reversed(taken):
            if tokens <= freed - excess:
                freed -= tokens
            else:
                gone.setdefault(at, set()).add(number)
        return gone

    def _fold(self, aim: int, goes: Callable[[Firmness], bool]) -> None:
        """Remove units to be summarised, in their order."""
        context = self.context
        left = sum(1 for cut in context.cuts if cut is not None)
        for unit in [unit for unit in self.order if goes(context.firmness(unit))]:
            numbers = [n for n in context.units[unit] if context.cuts[n] is not None]
            if not numbers:
                continue
            fits = left + len(context.folded) <= self.settings.max_items
            if context.total + self._reserve <= aim and fits:
                return
            context.fold(unit)
            left -= len(numbers)

    def _sum_up(self) -> None:
        """Summarise what was folded; each shelf gets its share of the tokens."""
        context = self.context
        room = min(self._room, self.limit - context.total)
        folded = context.folded.items()
        weights = {shelf: sum(len(c.text) for c in cuts.values()) for shelf, cuts in folded}
        total = max(1, sum(weights.values()))
        for shelf in sorted(weights):
            own = room * weights[shelf] // total
            levels, tokens = build_summary(context, shelf, own, self.head, self.line)
            if not levels:
                context.forgo(shelf)
                continue
            # If there are too many items, a summary is used even if it saves no tokens.
            if tokens >= context.folded_tokens(shelf) and Trigger.ITEMS not in self.triggers:
                context.unfold(shelf)
                continue
            context.charge(LossReason.SUMMARISED, tokens)
            self.shown[shelf] = levels[-1]
            self.summaries += levels
            if self.artifacts is not None:
                for level in levels:
                    sources = [citation.item_id for citation in level.citations]
                    self.offloaded.append(
                        self.artifacts.put(level.text, kind="summary", sources=sources)
                    )

    def _record_shortened(self) -> None:
        """Record the texts that are shown in part, in place."""
        context = self.context
        for at, cut in enumerate(context.cuts):
            if cut is None or context.is_whole(at) or not (cut.spans or at in context.frames):
                continue
            self.summaries.append(
                Summary.of(
                    "targeted",
                    cut.text,
                    [Citation(item_id=context.entries[at].id, spans=cut.spans)],
                    kind=context.relevance.reading(at).kind,
                    dropped_fields=cut.fields,
                )
            )

    def _cuttable(self, most: Firmness, least: Firmness = Firmness.FREE) -> list[int]:
        return [
            at
            for at, entry in enumerate(self.context.entries)
            if entry.cuttable
            and least <= entry.firmness <= most
            and self.context.cuts[at] is not None
        ]

    def _with_handle(self, at: int, cut: ShortenedText) -> ShortenedText:
        """A cut, after the handle of the whole text if that is in the store."""
        frame = self.context.frames.get(at)
        text = cut.text or ELLIPSIS.strip()
        if frame is not None:
            text = f"{frame}\n{cut.text}" if cut.text else frame
        return replace(cut, text=text)

    def _best_extract(self, at: int, tokens: int) -> ShortenedText:
        """The best pieces of a text that fit; tokens are estimated by characters."""
        context = self.context
        reading, scores = context.relevance.reading(at), context.relevance.pieces(at)
        size = max(1, sum(piece.end - piece.start for piece in reading.pieces))
        chosen: list[int] = []
        used = 0
        for number in sorted(range(len(scores)), key=lambda n: (-scores[n], n)):
            piece = reading.pieces[number]
            cost = context.cost[at] * (piece.end - piece.start) // size
            if used + cost <= tokens:
                chosen.append(number)
                used += cost
        return reading.cut(sorted(chosen)) if chosen else ShortenedText("", (), (), ("text",))


def build_summary(
    context: WorkingContext, shelf: str, room: int, head: str, line: Line
) -> tuple[list[Summary], int]:
    """Summaries of a shelf's folded entries within a number of tokens, and the tokens used.

    The last summary is that of the session and is shown; it was made from those before it. The list
    is empty if nothing fits.

    Spec: Summit §Compression Strategy
    """
    folded = context.folded[shelf]
    stay: Chosen = {}
    for at, cut in sorted(folded.items()):
        whole = cut.text == context.entries[at].text
        numbers = range(len(context.relevance.reading(at).pieces)) if whole else cut.pieces
        if numbers:
            stay[at] = list(numbers)
    if not stay or room <= 0:
        return [], 0
    clusters: dict[str, list[int]] = {}
    for at in stay:
        clusters.setdefault(context.entries[at].cluster, []).append(at)
    pick = _PiecePicker(context, list(folded), head, line)
    by_source: Chosen = {}
    for at, pieces in stay.items():
        by_source |= pick.best({at: pieces}, _SOURCE_PART * room // len(stay))
    of_cluster = {
        name: pick.best(
            {at: by_source[at] for at in members}, _CLUSTER_PART * room // len(clusters)
        )
        for name, members in clusters.items()
    }
    united = {at: numbers for chosen in of_cluster.values() for at, numbers in chosen.items()}
    chosen = pick.best({at: united[at] for at in sorted(united)}, room, least=False)
    tokens = 0
    while chosen:
        (tokens,) = context.costs.summaries([pick.text(chosen)])
        if tokens <= room:
            break
        chosen = pick.drop_least(chosen, tokens - room)
    if not chosen:
        return [], 0
    sources = {at: pick.summary("source", {at: by_source[at]}) for at in stay}
    middle = [
        pick.summary("cluster", of_cluster[name], [sources[at].id for at in members])
        for name, members in clusters.items()
    ]
    session = pick.summary("session", chosen, [each.id for each in middle])
    return [*sources.values(), *middle, session], tokens


class _PiecePicker:
    """Chooses pieces by score, and writes them as lines with marks, in the order of the entries.

    A piece whose words were already chosen is skipped.
    """

    def __init__(self, context: WorkingContext, folded: list[int], head: str, line: Line) -> None:
        self._context, self._head, self._line = context, head, line
        texts = [context.entries[at].text for at in folded]
        counts = context.costs.summaries(texts)
        self._rate = {
            at: tokens / max(1, len(text))
            for at, tokens, text in zip(folded, counts, texts, strict=True)
        }

    def best(self, offered: Chosen, room: int, *, least: bool = True) -> Chosen:
        """The best pieces that fit by estimate; with `least` at least one in total."""
        chosen: Chosen = {at: [] for at in offered}
        quoted: set[str] = set()
        used = 0.0
        for at, number in self._ranked(offered):
            words = self._words(at, number)
            tokens = self._rate[at] * len(words)
            first = least and not quoted
            if words in quoted or (used + tokens > room and not first):
                continue
            quoted.add(words)
            used += tokens
            chosen[at].append(number)
        return {at: sorted(numbers) for at, numbers in chosen.items() if numbers or least}

    def drop_least(self, chosen: Chosen, excess: int) -> Chosen:
        """The choice without its least relevant pieces; at least one is removed."""
        left = {at: set(numbers) for at, numbers in chosen.items()}
        freed = 0.0
        for at, number in reversed(self._ranked(chosen)):
            left[at].discard(number)
            freed += self._rate[at] * len(self._words(at, number))
            if 2 * freed >= excess:
                break
        return {at: sorted(numbers) for at, numbers in left.items() if numbers}

    def text(self, chosen: Chosen) -> str:
        """The whole text of a summary."""
        lines = [self._head] if self._head else []
        for mark, at in enumerate(_used(chosen), start=1):
            # The speaker, with the handle of the whole text if that is in the store.
            speaker = f"{self._context.entries[at].speaker} {self._context.frames.get(at, '')}"
            quoted = quote_spans(self._context.entries[at].text, self._spans(at, chosen[at]))
            lines.append(self._line(mark, speaker.strip(), quoted))
        return "\n".join(lines)

    def summary(self, level: SummaryLevel, chosen: Chosen, children: Sequence[str] = ()) -> Summary:
        """The record of a summary."""
        used = _used(chosen)
        kinds = {self._context.relevance.reading(at).kind for at in used}
        citations = [
            Citation(
                mark=mark, item_id=self._context.entries[at].id, spans=self._spans(at, chosen[at])
            )
            for mark, at in enumerate(used, start=1)
        ]
        lost = [self._context.relevance.reading(at).lost_fields(chosen[at]) for at in chosen]
        return Summary.of(
            level,
            self.text(chosen),
            citations,
            kind=kinds.pop() if len(kinds) == 1 else "mixed",
            children=tuple(children),
            dropped_fields=tuple(dict.fromkeys(chain.from_iterable(lost))),
        )

    def _ranked(self, offered: Chosen) -> list[tuple[int, int]]:
        scores = self._context.relevance.pieces
        every = [(at, number) for at, numbers in offered.items() for number in numbers]
        return sorted(every, key=lambda each: (-scores(each[0])[each[1]], *each))

    def _words(self, at: int, number: int) -> str:
        piece = self._context.relevance.reading(at).pieces[number]
        return self._context.entries[at].text[piece.start : piece.end]

    def _spans(self, at: int, numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
        pieces = self._context.relevance.reading(at).pieces
        return merge_spans(
            [(pieces[n].start, pieces[n].end) for n in numbers], self._context.entries[at].text
        )


def _used(chosen: Chosen) -> list[int]:
    return [at for at in sorted(chosen) if chosen[at]]

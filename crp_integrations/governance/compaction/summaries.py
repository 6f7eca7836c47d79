"""Summaries by quotation in levels: source, cluster, session (`extractive@1`).

Each level takes the best pieces of the one below, so a sentence in a session's summary stands in
its cluster's and its source's as well, and is cited with its characters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crp_integrations.governance.compaction.records import Citation, Summary, SummaryLevel
from crp_integrations.governance.compaction.stages import WorkingContext
from crp_integrations.governance.compaction.text_pieces import merge_spans, quote_spans

# A level below the last one may have so many times its even part of the room.
_SOURCE_PART, _CLUSTER_PART = 3, 2

# Numbers of pieces by the number of their entry.
Chosen = dict[int, list[int]]
Line = Callable[[int, str, str], str]


def build_summary(
    context: WorkingContext, shelf: str, room: int, head: str, line: Line
) -> tuple[list[Summary], int]:
    """A shelf's folded entries summed up within so many tokens, and the tokens.

    The last summary is that of the session, to be shown; it was made from those before it. The list
    is empty where nothing fits.

    Spec: Summit §Compression Strategy
    """
    folded = context.folded[shelf]
    stay: Chosen = {}
    for at, cut in sorted(folded.items()):
        whole = cut.text == context.entries[at].text
        numbers = range(len(context.relevance.reading(at).pieces)) if whole else cut.kept
        if numbers:
            stay[at] = list(numbers)
    if not stay or room <= 0:
        return [], 0
    clusters: dict[str, list[int]] = {}
    for at in stay:
        clusters.setdefault(context.entries[at].cluster, []).append(at)
    pick = _Pieces(context, list(folded), head, line)
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
        chosen = pick.lightened(chosen, tokens - room)
    if not chosen:
        return [], 0
    sources = {at: pick.summary("source", {at: by_source[at]}) for at in stay}
    middle = [
        pick.summary("cluster", of_cluster[name], [sources[at].id for at in members])
        for name, members in clusters.items()
    ]
    session = pick.summary("session", chosen, [each.id for each in middle])
    return [*sources.values(), *middle, session], tokens


class _Pieces:
    """Chooses pieces by their scores, and writes them as lines with marks, in the entries' order.

    What repeats another's words is chosen once.
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
        """The best pieces that fit, about; at least one of all of them."""
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

    def lightened(self, chosen: Chosen, excess: int) -> Chosen:
        """The same without the pieces that say least, at least one."""
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
            # Who says it, with the handle of its whole text where that is kept elsewhere.
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
        fields: dict[str, None] = {}
        for at in chosen:
            lost = self._context.relevance.reading(at).lost_fields(chosen[at])
            fields |= dict.fromkeys(lost)
        return Summary.of(
            level,
            self.text(chosen),
            citations,
            kind=kinds.pop() if len(kinds) == 1 else "mixed",
            children=tuple(children),
            dropped_fields=tuple(fields),
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

"""Logs: entries with their level; repeated ones say less than new ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crp_integrations.governance.compaction.protected import joined, protected
from crp_integrations.governance.compaction.readings import Cut, Kind, Piece, lost_fields, whole
from crp_integrations.governance.compaction.spans import merged
from crp_integrations.language.text import Span

_LINE = re.compile(r"[^\n]+")
_STAMP = re.compile(
    r"\s*[\[(]?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|\d{10,13}\b"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d{1,2}\s\d\d:\d\d)"
)
_LEVEL = re.compile(
    r"(?<![\w.])(?P<level>TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|SEVERE|FATAL|CRITICAL|PANIC"
    r"|trace|debug|info|notice|warn(?:ing)?|error|severe|fatal|critical|panic)(?![\w-])"
)
_BAD = re.compile(
    r"(?<![\w])(?:Traceback|[A-Z]\w*(?:Error|Exception)|exception|failed|failure|refused|denied"
    r"|timed out|timeout|exit code)(?!\w)"
)
_WEIGHTS = {"warn": 0.5, "warning": 0.5}
_WEIGHTS |= dict.fromkeys(("error", "severe", "fatal", "critical", "panic"), 1.0)
_CALM = frozenset({"trace", "debug", "info", "notice"})
_VARIES = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}|\d+")
_FEWEST, _SHARE = 5, 0.6
_FIRST_OF_ITS_KIND, _EDGE, _FAULT = 0.2, 0.3, 0.8
GAP = "\n\u2026\n"


def is_log(text: str) -> bool:
    """Whether most lines of a text begin with a moment or name a level."""
    lines = [match.group() for match in _LINE.finditer(text) if match.group().strip()]
    if len(lines) < _FEWEST:
        return False
    heads = [line for line in lines if not line[0].isspace()]
    marked = sum(1 for line in heads if _STAMP.match(line) or _LEVEL.search(line[:80]))
    return marked >= _SHARE * max(1, len(heads))


@dataclass(frozen=True)
class Log:
    """A log by its entries: a line with the indented ones below it."""

    text: str
    kind: Kind = "log"

    @cached_property
    def pieces(self) -> Sequence[Piece]:
        """Entries; faults, first ones of their kind, the first and the last weigh most."""
        text = self.text
        spans: list[Span] = []
        for match in _LINE.finditer(text):
            line = match.group()
            if not line.strip():
                continue
            end = match.start() + len(line.rstrip())
            stamped = _STAMP.match(line) or _LEVEL.search(line[:80])
            follows = line[0].isspace() or (spans and not stamped and _BAD.match(line))
            if spans and follows:
                spans[-1] = Span(spans[-1].start, end)
            else:
                spans.append(Span(match.start(), end))
        spans = joined(spans, protected(text))
        seen: set[str] = set()
        found = []
        for number, span in enumerate(spans):
            entry = span.of(text)
            level = _LEVEL.search(entry[:160])
            name = level["level"].lower() if level is not None else ""
            weight = _WEIGHTS.get(name, 0.0)
            if weight < _FAULT and name not in _CALM and _BAD.search(entry):
                weight = _FAULT
            kind = _VARIES.sub("0", entry)
            if kind not in seen:
                seen.add(kind)
                weight += _FIRST_OF_ITS_KIND
            if number in (0, len(spans) - 1):
                weight += _EDGE
            field = f"lines.{name or 'other'}"
            found.append(Piece(span.start, span.end, min(1.0, weight), field))
        return found

    def cut(self, kept: Sequence[int]) -> Cut:
        """The kept entries, a line with an ellipsis where others stood."""
        pieces = self.pieces
        if len(kept) == len(pieces):
            return whole(self.text, len(pieces))
        spans = merged([(pieces[n].start, pieces[n].end) for n in kept], self.text)
        text = GAP.join(self.text[start:end] for start, end in spans)
        if kept and kept[0] > 0:
            text = GAP.lstrip() + text
        if kept and kept[-1] < len(pieces) - 1:
            text += GAP.rstrip()
        return Cut(text, spans, tuple(kept), lost_fields(pieces, kept))

"""The question's score of each text and piece, and how texts and logs are read (`relevance@1`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from crp_integrations.envelope import hybrid
from crp_integrations.envelope.selection import HybridSettings
from crp_integrations.governance.compaction.json_data import JsonData, read_json
from crp_integrations.governance.compaction.text_pieces import (
    FIGURE,
    ProseText,
    ShortenedText,
    TextKind,
    TextPiece,
    TextReading,
    find_protected,
    join_across,
    keep_whole,
    lost_fields,
    merge_spans,
)
from crp_integrations.language.overlap import coverages
from crp_integrations.language.profile import profiles
from crp_integrations.language.spans import Span
from crp_integrations.scores import to_fixed

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
class LogText:
    """A log by its entries: a line with the indented ones below it."""

    text: str
    kind: TextKind = "log"

    @cached_property
    def pieces(self) -> Sequence[TextPiece]:
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
        spans = join_across(spans, find_protected(text))
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
            found.append(TextPiece(span.start, span.end, min(1.0, weight), field))
        return found

    def cut(self, kept: Sequence[int]) -> ShortenedText:
        """The kept entries, a line with an ellipsis where others stood."""
        pieces = self.pieces
        if len(kept) == len(pieces):
            return keep_whole(self.text, len(pieces))
        spans = merge_spans([(pieces[n].start, pieces[n].end) for n in kept], self.text)
        text = GAP.join(self.text[start:end] for start, end in spans)
        if kept and kept[0] > 0:
            text = GAP.lstrip() + text
        if kept and kept[-1] < len(pieces) - 1:
            text += GAP.rstrip()
        return ShortenedText(text, spans, tuple(kept), lost_fields(pieces, kept))


RELEVANCE: Final = "relevance@1"
# Share of the kind's own weight in the score of an entry of a log or a member of data.
_OWN, _WORDS, _WHOLE = 0.45, 0.40, 0.15
_AFTER = 1e-5
# Share of a piece's own words beside the stretches that it overlaps.
_OWN_WORDS = 0.30


def read_text(text: str) -> TextReading:
    """A text as data, as a log, or as prose."""
    found = read_json(text)
    if found is not None:
        return found
    return LogText(text) if is_log(text) else ProseText(text)


class Relevance:
    """Scores of texts and of their pieces for one question; readings are made when asked for."""

    def __init__(
        self,
        question: str,
        texts: Sequence[str],
        bonus: float,
        dense: Sequence[float] | None = None,
    ) -> None:
        """Score whole texts."""
        self._question = question
        self._texts = texts
        self._bonus = bonus
        # Powers were measured for whole facts; pieces of a history are weighed as they are.
        self._settings = HybridSettings(cosine_power=1.0, lexical_power=1.0, stretch_power=1.0)
        self._readings: dict[int, TextReading] = {}
        self._fixed: dict[int, list[int]] = {}
        count = len(texts)
        prior = np.zeros(count) if dense is None else np.asarray(dense, dtype=np.float64)
        beside = np.full((count, 2), -1, dtype=np.intp)
        pool = hybrid.Pool(question, texts, prior, beside)
        self._scores = hybrid.scores(hybrid.weighed(pool, self._settings), self._settings)

    def of(self, at: int) -> int:
        """A text's score, fixed point."""
        return to_fixed(float(self._scores.total[at]))

    @property
    def best(self) -> int:
        """The best text's score, fixed point; 0 when the question says nothing for any."""
        return to_fixed(float(self._scores.total.max(initial=0.0)))

    def reading(self, at: int) -> TextReading:
        """How a text is read."""
        if at not in self._readings:
            self._readings[at] = read_text(self._texts[at])
        return self._readings[at]

    def pieces(self, at: int) -> list[int]:
        """The scores of a text's pieces, fixed point, in [0, SCALE]."""
        if at not in self._fixed:
            reading = self.reading(at)
            found = self._by_stretch(at) if isinstance(reading, ProseText) else self._by_words(at)
            self._fixed[at] = [
                to_fixed(
                    (score + self._bonus * bool(FIGURE.search(reading.text[p.start : p.end])))
                    / (1.0 + self._bonus)
                )
                for score, p in zip(found, reading.pieces, strict=True)
            ]
        return self._fixed[at]

    def _by_stretch(self, at: int) -> list[float]:
        """The best score among the stretches that a piece overlaps."""
        (profile,) = profiles([self._texts[at]])
        begin = self._scores.begins[at]
        reading = self.reading(at)
        found, first = [], 0
        for piece, own in zip(reading.pieces, self._own(reading), strict=True):
            while first < len(profile.ends) and profile.ends[first] <= piece.start:
                first += 1
            best, place = 0.0, first
            while place < len(profile.starts) and profile.starts[place] < piece.end:
                best = max(best, float(self._scores.parts[begin + place]))
                place += 1
            # A stretch may reach over several pieces; their own words tell them apart.
            found.append((1.0 - _OWN_WORDS) * best + _OWN_WORDS * own)
        return found

    def _by_words(self, at: int) -> list[float]:
        """Words of the question, weighed by rarity among the pieces, and the kind's own weight."""
        reading = self.reading(at)
        whole = float(self._scores.total[at])
        found = [
            _OWN * piece.weight + _WORDS * own + _WHOLE * whole
            for piece, own in zip(reading.pieces, self._own(reading), strict=True)
        ]
        if isinstance(reading, JsonData):
            # What names a hit goes after everything that it names.
            for number, names in reading.named.items():
                for name in names:
                    found[name] = max(found[name], min(1.0, found[number] + _AFTER))
        return found

    def _own(self, reading: TextReading) -> list[float]:
        """Share of the question's words that each piece has, by their rarity among the pieces."""
        pieces = reading.pieces
        return coverages(self._question, [reading.text[p.start : p.end] for p in pieces])

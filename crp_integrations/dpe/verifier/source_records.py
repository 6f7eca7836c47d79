"""Records in the context, "key: value" lines or JSON, read slot by slot.

A line such as "Outdoor Seating: False" says nothing by its words that a claim of outdoor seating
lacks; what counts is the value. Each word of an answer that names a key is told the key's value
and whether the claim affirms or denies it; times of day are held against the days named.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from crp_integrations.language.negation import negations
from crp_integrations.language.text import fold
from crp_integrations.language.words import STOP_WORDS, stem

State = Literal["yes", "no", "unknown", "text"]

_LINE = re.compile(r"^[ \t\-*•]*([A-Za-z][\w &()/'.-]{0,60}?)\s?:[ \t]+(\S[^\n]*?)\.?[ \t]*$", re.M)
_JSON = re.compile(
    r"[\"']([\w &()/.-]{1,60})[\"']\s*:\s*(\"[^\"]{0,300}\"|'[^']{0,300}'|[\w.+-]{1,40})"
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_PART = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_YES = frozenset({"true", "yes", "y"})
_NO = frozenset({"false", "no", "n"})
_UNKNOWN = frozenset({"none", "null", "nan", "n/a", "unknown", "na"})
_CLOCK = re.compile(
    r"(?<![\d:.])(\d{1,2})(?::(\d{1,2}))?\s?(?:([ap])\.?\s?m\b\.?)?(?![\d:])", re.IGNORECASE
)
_SPAN = re.compile(r"(\d{1,2}):(\d{1,2})\s?[-\u2013]\s?(\d{1,2}):(\d{1,2})")
DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY = re.compile(r"\b(mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?s?\b", re.I)
_TO = re.compile(r"\s*(?:-|\u2013|to|through|thru|until|till)\s*\Z", re.I)
_RATED = re.compile(
    r"(\d(?:\.\d+)?)(?:\s?-?\s?(?:stars?\b|out of\b|/\s?5)|\s+rating)|"
    r"(?:rating|rated|stars?|score)\D{0,24}?(\d(?:\.\d+)?)",
    re.IGNORECASE,
)
# So many keys make a record; fewer are a sentence with a colon.
FEWEST: Final = 4
# Words of more keys than this name a group, such as "attributes".
COMMON: Final = 2
LONGEST_KEY: Final = 7
LONGEST_VALUE: Final = 300


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and its value.

    Attributes:
        words: the key's words that tell it from others, as stems.
        joined: those words as one, as "wifi".
    """

    words: frozenset[str]
    joined: str
    state: State
    value: str


@dataclass(frozen=True, slots=True)
class Named:
    """A word of a text that names a key.

    Attributes:
        start, end: character offsets in the text.
        verdict: 1 the record says so, -1 it says otherwise, 0 it gives no value.
    """

    start: int
    end: int
    verdict: int


class Records:
    """The entries of all passages, and what a claim says of them."""

    def __init__(self, passages: Sequence[str]) -> None:
        texts = [fold(text).text for text in passages]
        pairs = [pair for text in texts for pair in _pairs(text)]
        self.share = min(1.0, sum(len(k) + len(v) for k, v in pairs) / max(1, sum(map(len, texts))))
        if len(pairs) < FEWEST:
            pairs, self.share = [], 0.0
        keys = [_key_words(key) for key, _ in pairs]
        counts = Counter(word for key in keys for word in {stem(part) for part in key})
        self.entries: list[Entry] = []
        self.by_word: dict[str, list[Entry]] = {}
        self.hours: dict[int, list[tuple[int, int]]] = {}
        self.ratings: list[float] = []
        for key, (_, value) in zip(keys, pairs, strict=True):
            self._take(key, value, counts)

    def __bool__(self) -> bool:
        return bool(self.entries)

    def _take(self, key: list[str], value: str, counts: Counter[str]) -> None:
        days = [place for place, day in enumerate(DAYS) if day in key]
        for span in _SPAN.findall(value) if days else ():
            start, end = int(span[0]) * 60 + int(span[1]), int(span[2]) * 60 + int(span[3])
            for day in days:
                self.hours.setdefault(day, []).append((start, end))
        if any(word in ("stars", "star", "rating") for word in key):
            with contextlib.suppress(ValueError):
                self.ratings.append(float(value))
        own = [word for word in key if counts[stem(word)] <= COMMON] or key[-1:]
        content = [word for word in own if word not in STOP_WORDS] or own
        entry = Entry(frozenset(stem(word) for word in content), "".join(own), _state(value), value)
        self.entries.append(entry)
        for word in {*entry.words, entry.joined}:
            self.by_word.setdefault(word, []).append(entry)

    def named(self, text: str) -> list[Named]:
        """The words of a claim that name a key with a yes, a no or no value."""
        if not self.entries:
            return []
        parts = list(_PART.finditer(text))
        stems = [stem(part.group()) for part in parts]
        present = frozenset(stems)
        cues = [cue.start for cue in negations(text)]
        found = []
        for at, part in enumerate(parts):
            entries = self.by_word.get(stems[at], [])
            end = part.end()
            if at + 1 < len(parts):
                pair = (part.group() + parts[at + 1].group()).casefold()
                if pair in self.by_word:
                    entries, end = self.by_word[pair], parts[at + 1].end()
            entries = [
                entry
                for entry in entries
                if entry.state != "text" and _fits(entry, present, stems[at], end > part.end())
            ]
            if not entries:
                continue
            denied = any(cue < part.start() for cue in cues)
            verdicts = [_verdict(entry.state, denied) for entry in entries]
            found.append(Named(part.start(), end, max(verdicts)))
        return found

    def times(self, text: str) -> tuple[int, int]:
        """How many times of day in a claim the record has for its days, and how many not."""
        if not self.hours:
            return 0, 0
        days = days_of(text) or list(self.hours)
        known = {
            minute % 1440 for day in days for span in self.hours.get(day, ()) for minute in span
        }
        good = bad = 0
        for minutes in clocks(text):
            if minutes & known:
                good += 1
            else:
                bad += 1
        return good, bad

    def rated(self, text: str) -> tuple[int, int]:
        """How many ratings in a claim are the record's, and how many are others."""
        if not self.ratings:
            return 0, 0
        seen = [float(one or other) for one, other in _RATED.findall(text)]
        good = sum(value in self.ratings for value in seen)
        return good, sum(value <= 5 for value in seen) - good


def _pairs(text: str) -> list[tuple[str, str]]:
    found = [match.groups() for match in _LINE.finditer(text)]
    if text.count('":') + text.count("':") >= FEWEST:
        found += [(key, value.strip("\"'")) for key, value in _JSON.findall(text)]
    return [
        (key, value.strip())
        for key, value in found
        if len(key.split()) <= LONGEST_KEY and len(value) <= LONGEST_VALUE
    ]


def _key_words(key: str) -> list[str]:
    return [part.casefold() for part in _PART.findall(_CAMEL.sub(" ", key.replace("_", " ")))]


def _state(value: str) -> State:
    plain = value.strip("\"' ").casefold()
    if plain in _YES:
        return "yes"
    if plain in _NO:
        return "no"
    return "unknown" if plain in _UNKNOWN else "text"


def _fits(entry: Entry, present: frozenset[str], word: str, joined: bool) -> bool:
    return joined or word == entry.joined or len(entry.words & present) * 2 >= len(entry.words)


def _verdict(state: State, denied: bool) -> int:
    if state == "unknown":
        return 0
    return 1 if (state == "yes") != denied else -1


def days_of(text: str) -> list[int]:
    """The weekdays that a text names, intervals filled.

    >>> days_of("Monday through Wednesday and on Sundays")
    [0, 1, 2, 6]
    """
    lower = text.casefold()
    if re.search(r"\b(?:daily|every day|all week|seven days|7 days)\b", lower):
        return list(range(7))
    found: list[int] = []
    last, end = -1, 0
    for match in _DAY.finditer(lower):
        day = next(n for n, name in enumerate(DAYS) if name.startswith(match[1][:3]))
        if (
            last >= 0
            and _TO.search(lower[end : match.start()])
            and lower[end : match.start()].strip()
        ):
            found += [(last + step) % 7 for step in range(1, (day - last) % 7)]
        found.append(day)
        last, end = day, match.end()
    if "weekday" in lower:
        found += range(5)
    if "weekend" in lower:
        found += (5, 6)
    return sorted(set(found))


def clocks(text: str) -> list[frozenset[int]]:
    """The times of day of a text, each as the minutes that it can mean.

    >>> [sorted(time) for time in clocks("from 9 am to 5:30")]
    [[540], [330, 1050]]
    """
    found = []
    for match in _CLOCK.finditer(text):
        hour, minute, half = int(match[1]), int(match[2] or 0), (match[3] or "").lower()
        if (match[2] is None and not half) or hour > 24 or minute > 59:
            continue
        if half:
            found.append(frozenset({(hour % 12 + (12 if half == "p" else 0)) * 60 + minute}))
        elif hour < 12:
            found.append(frozenset({hour * 60 + minute, (hour + 12) * 60 + minute}))
        else:
            found.append(frozenset({hour % 24 * 60 + minute}))
    return found

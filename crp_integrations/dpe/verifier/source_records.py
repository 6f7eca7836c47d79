"""Records and tables in the context, read slot by slot, and values given to the wrong row.

A line such as "Outdoor Seating: False" says nothing by its words that a claim of outdoor seating
lacks; what counts is the value. Each word of an answer that names a key is told the key's value
and whether the claim affirms or denies it; times of day are held against the days named.

In tables, CSV and lists of JSON objects a value is bound to its row's key and its column's head. A
claim that names one row and gives it another row's value is wrong wherever else that value stands.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from crp_integrations.dpe.verifier.values import Value, read, same_value
from crp_integrations.language.negation import negations
from crp_integrations.language.quantities import Quantity, same_kind
from crp_integrations.language.text import fold, plain
from crp_integrations.language.words import STOP_WORDS, content_stems, stem

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


FEWEST_ROWS: Final = 2
_CELL: Final = re.compile(r"[^|\n]+")
_RULE: Final = re.compile(r"[|\s:+=-]+\Z")
_LEAF: Final = re.compile(
    r"\"(?P<key>[^\"\\\n]{1,60})\"\s*:\s*(?P<value>\"[^\"\n]{0,200}\"|[-\w.+]{1,40})"
)
_BRACE: Final = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|[{}]")
_LETTERS: Final = re.compile(r"[^\W\d_]{2,}")
LONGEST_ROW_KEY: Final = 60
# A claim with more figures speaks of more than one row.
MOST_FIGURES: Final = 2


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with the stems of its head, by character offsets in the passage."""

    head: frozenset[str]
    start: int
    end: int
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of one table.

    Attributes:
        table: number of the table within the context.
        key: what the row is about, in plain form.
    """

    passage: int
    table: int
    key: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A value that a claim gives to a row that has another one there."""

    value: Value
    cell: Cell
    passage: int
    expected: str


def rows_of(passages: Sequence[str]) -> list[Row]:
    """The rows of all tables, lists of comma-separated values and JSON objects."""
    found: list[Row] = []
    table = 0
    for number, text in enumerate(passages):
        for group in (*_tables(text), *_objects(text)):
            table += 1
            if len(group) >= FEWEST_ROWS:
                found += [Row(number, table, key, cells) for key, cells in group]
    return found


def _tables(text: str) -> Iterator[list[tuple[str, tuple[Cell, ...]]]]:
    head: list[frozenset[str]] = []
    rows: list[tuple[str, tuple[Cell, ...]]] = []
    start = 0
    for line in (*text.splitlines(keepends=True), "\n"):
        body = line.rstrip("\n")
        spans = _cells(body)
        if len(spans) < FEWEST_ROWS or (head and len(spans) != len(head)):
            if rows:
                yield rows
            head, rows = [], []
        if len(spans) >= FEWEST_ROWS and not _RULE.fullmatch(body):
            if not head:
                head = [frozenset(content_stems(body[low:high])) for low, high in spans]
            else:
                cells = tuple(
                    _cell(top, body[low:high], start + low)
                    for top, (low, high) in zip(head, spans, strict=True)
                )
                rows.append((_key(body[slice(*spans[0])]), cells))
        start += len(line)


def table_heads(text: str) -> list[tuple[int, int, frozenset[str]]]:
    """Offsets of each cell of a text's tables, with the stems of its head."""
    return [
        (cell.start, cell.end, cell.head)
        for rows in _tables(text)
        for _, cells in rows
        for cell in cells
    ]


def _cells(line: str) -> list[tuple[int, int]]:
    if line.count("|") >= FEWEST_ROWS:
        return [match.span() for match in _CELL.finditer(line) if match.group().strip()]
    if line.count(",") >= 1 and ", " not in line and not line.rstrip().endswith((".", "{", "}")):
        ends = [match.start() for match in re.finditer(",", line)] + [len(line)]
        return [(low, high) for low, high in zip([0, *(at + 1 for at in ends)], ends, strict=False)]
    return []


def _objects(text: str) -> Iterator[list[tuple[str, tuple[Cell, ...]]]]:
    """Objects without objects in them, grouped by the object around them."""
    stack: list[tuple[int, list[tuple[str, tuple[Cell, ...]]]]] = [(-1, [])]
    inner = False
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            stack.append((match.end(), []))
            inner = True
        elif match.group() == "}" and len(stack) > 1:
            start, children = stack.pop()
            if inner:
                leaves = [
                    leaf.span() and leaf for leaf in _LEAF.finditer(text, start, match.start())
                ]
                cells = tuple(
                    _cell(
                        frozenset(_stems(leaf["key"])),
                        leaf["value"].strip('"'),
                        leaf.start("value"),
                    )
                    for leaf in leaves
                )
                names = [leaf["value"].strip('"') for leaf in leaves if leaf["value"][:1] == '"']
                if len(cells) >= FEWEST_ROWS and names:
                    stack[-1][1].append((_key(names[0]), cells))
            elif children:
                yield children
            inner = False
    yield stack[0][1]


def _stems(key: str) -> list[str]:
    return content_stems(re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", key))


def _cell(head: frozenset[str], text: str, start: int) -> Cell:
    return Cell(head, start, start + len(text), tuple(read(text.strip(" *`")).values))


def _key(text: str) -> str:
    return plain(text).strip(" *`'\"|")


def misplaced(
    text: str,
    heads: Sequence[tuple[int, int, frozenset[str]]],
    rows: Sequence[Row],
    *,
    small: bool,
) -> list[Misplaced]:
    """Figures and dates of a claim that belong to another row than the one that it names.

    Args:
        text: the claim.
        heads: in a row of the answer's own table, each cell's offsets in the claim and the stems
            of its head.
        small: the context holds little else, so that a head need not be named.
    """
    stems = frozenset(content_stems(text))
    folded = f" {plain(text)} "
    named = [row for row in rows if _names(row.key, folded)]
    tables = {row.table for row in named}
    if not named or len(tables) != 1 or len({row.key for row in named}) != 1:
        return []
    mine = [row for row in named if row.table in tables]
    others = [row for row in rows if row.table in tables and row not in mine]
    figures = read(text).of("quantity", "date")
    if len(mine) != 1 or (len(figures) > MOST_FIGURES and not heads):
        return []
    keys = " ".join(row.key for row in rows)
    source_heads = {cell.head for cell in mine[0].cells}
    copied = sum(head in source_heads for *_, head in heads) * 2 >= max(1, len(heads))
    found = []
    for value in figures:
        if _has(mine[0], value) or _names(plain(value.text), f" {keys} "):
            continue
        head = next((top for low, high, top in heads if low <= value.start < high), frozenset())
        for cell in mine[0].cells:
            column = [c for row in others for c in row.cells if c.head == cell.head]
            rivals = [v for v in cell.values if _measures_alike(v, value)]
            elsewhere = sum(same_value(value, v) for c in column for v in c.values) == 1
            under = bool(heads) and copied and bool(head) and cell.head == head
            measured = isinstance(value.of, Quantity) and bool(value.of.unit)
            meant = small or measured or (bool(cell.head) and cell.head <= stems)
            if rivals and (under or (elsewhere and meant and not heads)):
                found.append(Misplaced(value, cell, mine[0].passage, rivals[0].text))
                break
    return found


def _measures_alike(one: Value, other: Value) -> bool:
    if isinstance(one.of, Quantity) and isinstance(other.of, Quantity):
        bare = "" in (one.of.unit, other.of.unit) and other.text[-1:].isdigit()
        return same_kind(one.of, other.of) or bare
    return one.family == other.family


def _names(key: str, folded: str) -> bool:
    if not key or len(key) > LONGEST_ROW_KEY or _LETTERS.search(key) is None:
        return False
    return re.search(rf"(?<!\w){re.escape(key)}(?!\w)", folded) is not None


def _has(row: Row, value: Value) -> bool:
    return any(same_value(value, other) for cell in row.cells for other in cell.values)

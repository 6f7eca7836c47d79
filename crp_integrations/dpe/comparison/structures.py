"""Compares objects and table rows of an answer with those of the evidence, field by field.

An object is compared with the evidence's object of the same identifying value. There is a result
only if all other fields are equal or exactly one differs; everything else stays unread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from crp_integrations.dpe.comparison.clause_words import figures
from crp_integrations.dpe.comparison.evidence_index import EvidenceIndex
from crp_integrations.dpe.verifier.values import change_kind, same_value
from crp_integrations.language.blocks import blocks, is_row
from crp_integrations.language.text import plain
from crp_integrations.vocabulary import DistortionType, ErrorKind

_TOKEN: Final = re.compile(
    r'"(?:\\.|[^"\\\n])*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}\[\]:,]'
)
_JSON_START: Final = re.compile(r"[{\[]")
_RULE: Final = re.compile(r"[\s|:+-]+")
# Keys that identify the thing that an object is about, at any position in it.
_IDENTITY: Final = frozenset("id key code name number sku title uuid slug iban email".split())
_WORD: Final = re.compile(r"[\w-]+")
# Names of rows that summarise the other rows of their own table.
_SUMS: Final = frozenset("total sum subtotal average mean overall all other others".split())
_KEY: Final = re.compile(r"[a-z0-9]+")
# Maximum number of objects and rows of evidence that are compared, to bound the work.
_MAX_STRUCTURES: Final = 4_000


@dataclass(frozen=True, slots=True)
class Field:
    """A scalar field of an object, or a cell of a table."""

    key: str
    text: str
    start: int
    end: int


@dataclass(slots=True)
class Structure:
    """An object, or a row of a table."""

    start: int
    end: int = 0
    table: bool = False
    fields: list[Field] = field(default_factory=list)

    def identity(self) -> Field | None:
        """The identifying field: the first with an identifying key, else the first in words."""
        for entry in self.fields:
            if not self.table and (_KEY.findall(entry.key) or [""])[-1] in _IDENTITY:
                return entry
        first = self.fields[0] if self.fields else None
        return first if first is not None and any(c.isalpha() for c in first.text) else None


@dataclass(frozen=True, slots=True)
class FieldChange:
    """How a field or claim differs from the evidence."""

    kind: str
    error: ErrorKind
    expected: str | None


@dataclass(frozen=True, slots=True)
class FieldVerdict:
    """The result for one field of the answer.

    Attributes:
        supported: True if an object of the evidence has the same value for this field.
        place: offsets in the passage of that object or of the differing value.
        other: how the evidence differs; None if it does not, or if nothing is known.
    """

    start: int
    end: int
    supported: bool
    passage: int = 0
    place: tuple[int, int] = (0, 0)
    other: FieldChange | None = None


def compare_structures(answer: str, evidence: EvidenceIndex) -> list[FieldVerdict]:
    """Compare each field of the answer's objects and rows with the evidence."""
    own = structures_of(answer)
    if not own:
        return []
    known = [
        (number, structure)
        for number, (_, text) in enumerate(evidence.passages)
        for structure in structures_of(text)
    ][:_MAX_STRUCTURES]
    result: list[FieldVerdict] = []
    for structure in own:
        verdicts = list(_compared(structure, known))
        wrong = next((verdict for verdict in verdicts if verdict.other is not None), None)
        if wrong is not None and _explained(structure, wrong, evidence):
            # It may be another view of the same thing, so its other fields stay unread too.
            verdicts = [FieldVerdict(entry.start, entry.end, False) for entry in structure.fields]
        result += verdicts
    return result


def _compared(own: Structure, known: Sequence[tuple[int, Structure]]) -> Iterator[FieldVerdict]:
    unread = [FieldVerdict(entry.start, entry.end, False) for entry in own.fields]
    name = own.identity()
    peers = [
        (number, other)
        for number, other in known
        if name is not None and _same_identity(name, other)
    ]
    sums = name is not None and not _SUMS.isdisjoint(_KEY.findall(plain(name.text)))
    if name is None or sums or len(own.fields) < 2 or not peers:
        yield from unread
        return
    results = []
    for number, other in peers:
        theirs = {entry.key: entry for entry in other.fields}
        if len(theirs) < len(other.fields) or any(entry.key not in theirs for entry in own.fields):
            continue
        apart = [entry for entry in own.fields if not _equal(entry.text, theirs[entry.key].text)]
        results.append((number, other, theirs, apart))
    if len({tuple(entry.start for entry in row[3]) for row in results}) != 1:
        # No object has all of the fields, or two objects of the same name differ.
        yield from unread
        return
    number, other, theirs, apart = results[0]
    if not apart:
        place = (other.start, other.end)
        yield from (FieldVerdict(f.start, f.end, True, number, place) for f in own.fields)
        return
    wrong = apart[0]
    change = _change(wrong.text, theirs[wrong.key].text) if len(apart) == 1 else None
    if change is None or len({row[2][wrong.key].text for row in results}) > 1:
        yield from unread
        return
    there = theirs[wrong.key]
    for entry in own.fields:
        if entry is wrong:
            yield FieldVerdict(
                entry.start, entry.end, False, number, (there.start, there.end), change
            )
        else:
            yield FieldVerdict(entry.start, entry.end, True, number, (other.start, other.end))


def _explained(own: Structure, verdict: FieldVerdict, evidence: EvidenceIndex) -> bool:
    """Whether other evidence on the same thing has the field's value, or arithmetic gives it."""
    name = own.identity()
    wrong = next(entry for entry in own.fields if entry.start == verdict.start)
    values = figures(wrong.text)
    if name is None or not values:
        return False
    return evidence.explains(values[0], _WORD.findall(plain(name.text)))


def _same_identity(name: Field, other: Structure) -> bool:
    theirs = other.identity()
    return theirs is not None and theirs.key == name.key and plain(theirs.text) == plain(name.text)


def _equal(own: str, other: str) -> bool:
    if _bare(own) == _bare(other):
        return True
    mine, theirs = figures(own), figures(other)
    if len(mine) != 1 or len(theirs) != 1 or not _alone(own, mine[0].text):
        return False
    return _alone(other, theirs[0].text) and same_value(mine[0], theirs[0])


def _alone(text: str, value: str) -> bool:
    return not any(c.isalnum() for c in text.replace(value, "", 1))


def _bare(text: str) -> str:
    return plain(text).strip(" *_`\"'")


def _change(own: str, other: str) -> FieldChange | None:
    """The change of a figure, date or truth value; names and texts may be worded differently."""
    truths = {"true", "false"}
    if _bare(own) in truths and _bare(other) in truths:
        return FieldChange(DistortionType.NEGATION_FLIP, ErrorKind.NEGATION, other)
    mine, theirs = figures(own), figures(other)
    if len(mine) != 1 or len(theirs) != 1:
        return None
    if not (_alone(own, mine[0].text) and _alone(other, theirs[0].text)):
        return None
    change = change_kind(mine[0], theirs[0])
    return None if change is None else FieldChange(change[0], change[1], theirs[0].text)


def structures_of(text: str) -> list[Structure]:
    """The objects with at least one scalar field and the table rows of a text."""
    structures = _rows(text) if "|" in text else []
    done = 0
    for match in _JSON_START.finditer(text):
        if match.start() < done:
            continue
        end = _json_end(text, match.start())
        if end:
            structures += _objects(text, match.start(), end)
            done = end
    return [structure for structure in structures if structure.fields]


def _json_end(text: str, start: int) -> int:
    """The end of the JSON that begins at `start`; 0 if there is none."""
    before = text[:start].rstrip(" \t")
    if before and before[-1] not in "\n`" and before[-1:].isalnum():
        return 0
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return 0
    return end if isinstance(value, dict) or _has_objects(value) else 0


_DECODER: Final = json.JSONDecoder()


def _has_objects(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _objects(text: str, start: int, end: int) -> list[Structure]:
    """The objects in JSON that is known to be well-formed, each with its own scalars."""
    structures: list[Structure] = []
    open_: list[Structure | None] = []
    key: str | None = None
    tokens = list(_TOKEN.finditer(text, start, end))
    for place, match in enumerate(tokens):
        token = match.group()
        if token in "{[":
            structure = Structure(match.start()) if token == "{" else None
            if structure is not None:
                structures.append(structure)
            open_.append(structure)
            key = None
        elif token in "}]":
            closed = open_.pop()
            if closed is not None:
                closed.end = match.end()
            key = None
        elif token in ":,":
            key = key if token == ":" else None
        elif open_ and open_[-1] is not None:
            following = tokens[place + 1].group() if place + 1 < len(tokens) else ""
            if key is None and following == ":":
                key = plain(json.loads(token))
            elif key is not None:
                quoted = token[0] == '"'
                value = str(json.loads(token)) if quoted else token
                low, high = match.span()
                span = (low + 1, high - 1) if quoted and high - low > 2 else (low, high)
                open_[-1].fields.append(Field(key, value, *span))
                key = None
    return structures


def _rows(text: str) -> list[Structure]:
    """The rows of tables that have a header."""
    structures: list[Structure] = []
    header: list[str] = []
    before: list[str] = []
    last = -1
    for block in blocks(text):
        own = text[block.start : block.end]
        if text[last : block.start].strip() or text.count("\n", max(last, 0), block.start) > 1:
            header, before = [], []
        last = block.end
        if block.kind == "rule" or (is_row(own) and _RULE.fullmatch(own)):
            header = before
            continue
        if block.kind != "row" or "|" not in own:
            header, before = [], []
            continue
        cells = list(_cells(own, block.start))
        before = [plain(cell.text).strip(" *_`") for cell in cells]
        if header and len(cells) == len(header):
            named = [
                Field(key, cell.text, cell.start, cell.end)
                for key, cell in zip(header, cells, strict=True)
            ]
            structures.append(Structure(block.start, block.end, True, named))
    return structures


def _cells(row: str, shift: int) -> Iterator[Field]:
    body = row.strip()
    offset = shift + row.index(body)
    inner = body.removeprefix("|")
    offset += len(body) - len(inner)
    for piece in inner.removesuffix("|").split("|"):
        text = piece.strip()
        start = offset + (piece.index(text) if text else 0)
        yield Field("", text, start, start + len(text))
        offset += len(piece) + 1

"""JSON texts by their members: members are removed, the rest stays valid JSON, no value changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from crp_integrations.envelope.prompt import ELLIPSIS
from crp_integrations.governance.compaction.text_pieces import (
    LogText,
    ProseText,
    ShortenedText,
    TextKind,
    TextPiece,
    is_log,
    keep_whole,
    split_pieces,
)

_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = r'[^"\\\x00-\x1f]*'
_STRING = re.compile(rf'"{_PLAIN}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_PLAIN})*"')
_OTHER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_MAX_DEPTH = 60


@dataclass(slots=True)
class JsonNode:
    """A value of a JSON text, with its position.

    Attributes:
        path: field name of the value, with `[]` for array elements, such as `results[].title`.
        key: span of its key, including quotation marks; None for an element and for the root.
        children: members of an object or array, in order; None for a plain value.
        pieces: numbers of the pieces that a plain value is divided into.
    """

    start: int
    end: int
    path: str
    key: tuple[int, int] | None = None
    children: list[JsonNode] | None = None
    is_object: bool = False
    pieces: list[int] = field(default_factory=list)

    @property
    def field_name(self) -> str:
        """The last part of the path, in lower case."""
        return self.path.rsplit(".", 1)[-1].removesuffix("[]").lower()

    def walk(self) -> Iterator[JsonNode]:
        """This node and all nodes below it, in order."""
        yield self
        for child in self.children or ():
            yield from child.walk()


class _NotJsonError(Exception):
    pass


def parse_json(text: str) -> JsonNode | None:
    """The tree of a JSON object or array; None for any other text.

    The standard library's parser does not report positions.

    >>> tree = parse_json('{"a": [1, {"b": "x"}]}')
    >>> [child.path for child in tree.children]
    ['a']
    """
    start = _skip_space(text, 0)
    if text[start : start + 1] not in ("{", "["):
        return None
    try:
        root = _parse_value(text, start, "", 0)
    except _NotJsonError:
        return None
    return root if _skip_space(text, root.end) == len(text) else None


def _skip_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match is not None else place


def _parse_value(text: str, start: int, path: str, depth: int) -> JsonNode:
    if depth > _MAX_DEPTH:
        raise _NotJsonError
    opening = text[start : start + 1]
    if opening not in ("{", "["):
        match = (_STRING if opening == '"' else _OTHER).match(text, start)
        if match is None:
            raise _NotJsonError
        return JsonNode(start, match.end(), path)
    is_object, closing = opening == "{", "}" if opening == "{" else "]"
    children: list[JsonNode] = []
    place = _skip_space(text, start + 1)
    if text[place : place + 1] == closing:
        return JsonNode(start, place + 1, path, children=children, is_object=is_object)
    while True:
        key, below = None, path + "[]"
        if is_object:
            match = _STRING.match(text, place)
            if match is None:
                raise _NotJsonError
            place = _skip_space(text, match.end())
            if text[place : place + 1] != ":":
                raise _NotJsonError
            place = _skip_space(text, place + 1)
            key, name = match.span(), match.group()[1:-1]
            below = f"{path}.{name}" if path else name
        value = _parse_value(text, place, below, depth + 1)
        value.key = key
        children.append(value)
        place = _skip_space(text, value.end)
        sign = text[place : place + 1]
        if sign == closing:
            return JsonNode(start, place + 1, path, children=children, is_object=is_object)
        if sign != ",":
            raise _NotJsonError
        place = _skip_space(text, place + 1)


# Roles of fields by name: they identify a hit, contain its text, report a fault, or are noise.
_IDS = frozenset(
    """id _id uid uuid doc_id document_id title name url uri link href source path file filename
    page date published published_at published_date updated_at author key ref citation""".split()
)
_CONTENT = frozenset(
    """snippet content text description summary answer body passage message value result output
    abstract quote""".split()
)
_FAULTS = frozenset(
    "error errors status state code exit_code reason exception warning warnings total".split()
)
_NOISE = frozenset(
    """raw_content raw_html html thumbnail favicon image images embedding vector score rank
    position highlights cache_id request_id trace_id session_id cookies headers _meta
    metadata""".split()
)
_WEIGHTS = ((_FAULTS, 0.70), (_IDS, 0.45), (_NOISE, 0.0), (_CONTENT, 0.30))
_FIRST_BONUS, _DEFAULT_WEIGHT = 0.10, 0.1
# Characters: a longer text is divided into sentences; a longer value does not identify a hit.
_LONG_TEXT, _LONG_NAME = 160, 300
_MIN_SHARE_OF_HITS = 0.5
GAP = '"\u2026"'


def read_text(text: str) -> ProseText:
    """Read a text as JSON data, as a log, or as prose."""
    root = parse_json(text)
    if root is not None:
        return JsonData(text, root)
    return LogText(text) if is_log(text) else ProseText(text)


@dataclass(frozen=True)
class JsonData(ProseText):
    """A JSON text, divided into its members."""

    root: JsonNode
    by_stretch = False

    @property
    def kind(self) -> TextKind:
        """`search` if it lists hits with names and texts, else `data`."""
        return "search" if self._hits else "data"

    @cached_property
    def _hits(self) -> list[JsonNode]:
        """The elements of arrays whose objects mostly have a name and a text each."""
        return [
            child
            for node in self.root.walk()
            if node.children is not None and not node.is_object and self._lists_hits(node)
            for child in node.children
            if child.is_object
        ]

    def _lists_hits(self, array: JsonNode) -> bool:
        """Whether an array lists at least two objects, most of them with a name and a text."""
        # An array that was shortened before contains gap markers among its hits.
        elements = [c for c in array.children or () if self.text[c.start : c.end] != GAP]
        objects = [child for child in elements if child.is_object]
        if len(objects) < 2 or len(objects) < len(elements):
            return False
        keys = [{child.field_name for child in each.children or ()} for each in objects]
        hits = sum(1 for names in keys if names & _IDS and names & _CONTENT)
        return hits > _MIN_SHARE_OF_HITS * len(objects)

    @cached_property
    def pieces(self) -> Sequence[TextPiece]:
        """Members, and the sentences of long texts."""
        pieces: list[TextPiece] = []
        self._read(self.root, pieces, first=True)
        return pieces

    @cached_property
    def named(self) -> dict[int, tuple[int, ...]]:
        """For each piece of a hit, the pieces that identify the hit."""
        every = self.pieces
        named: dict[int, tuple[int, ...]] = {}
        for hit in self._hits:
            inside = [number for node in hit.walk() for number in node.pieces]
            names = tuple(
                number
                for leaf in hit.children or ()
                if leaf.children is None and leaf.field_name in _IDS and len(leaf.pieces) == 1
                for number in leaf.pieces
                if every[number].end - every[number].start <= _LONG_NAME
            )
            named |= dict.fromkeys(inside, names)
        return named

    def cut(self, numbers: Sequence[int]) -> ShortenedText:
        """The kept members; if a piece of a hit is kept, so are the hit's names."""
        stay = {other for number in numbers for other in (number, *self.named.get(number, ()))}
        if len(stay) == len(self.pieces):
            return keep_whole(self.text, len(stay))
        spans: list[tuple[int, int]] = []
        text = self._written(self.root, stay, spans) or ("{}" if self.root.is_object else "[]")
        if not text.endswith(GAP + "]"):
            # Mark at the end that something was left out.
            gap = f"{GAP}: {GAP}" if self.root.is_object else GAP
            text = f"{text[:-1]}{', ' if len(text) > 2 else ''}{gap}{text[-1]}"
        left = sorted(stay)
        return ShortenedText(text, tuple(spans), tuple(left), self.lost_fields(left))

    def _read(self, node: JsonNode, pieces: list[TextPiece], *, first: bool) -> None:
        if node.children:
            for number, child in enumerate(node.children):
                self._read(child, pieces, first=first and (node.is_object or number == 0))
            return
        weights = (weight for names, weight in _WEIGHTS if node.field_name in names)
        weight = next(weights, _DEFAULT_WEIGHT) + (_FIRST_BONUS if first else 0.0)
        inner = self.text[node.start + 1 : node.end - 1]
        long = self.text[node.start] == '"' and len(inner) > _LONG_TEXT
        parts = split_pieces(inner) if long else []
        offset = node.start + 1
        spans = [(offset + part.start, offset + part.end) for part in parts]
        for start, end in spans if len(spans) > 1 else [(node.start, node.end)]:
            node.pieces.append(len(pieces))
            pieces.append(TextPiece(start, end, min(1.0, weight), node.path or "[]"))

    def _written(self, node: JsonNode, stay: set[int], spans: list[tuple[int, int]]) -> str | None:
        """The kept part of a value, or None; appends the spans that are shown."""
        if not node.children:
            numbers = [number for number in node.pieces if number in stay]
            return self._leaf(node, numbers, spans) if numbers else None
        written: list[str] = []
        gap = False
        for child in node.children:
            mark = len(spans)
            if child.key is not None:
                spans.append(child.key)
            value = self._written(child, stay, spans)
            if value is None:
                del spans[mark:]
                gap = True
                continue
            if gap and not node.is_object:
                written.append(GAP)
            gap = False
            key = self.text[slice(*child.key)] + ": " if child.key is not None else ""
            written.append(key + value)
        if not written:
            return None
        if gap and not node.is_object:
            written.append(GAP)
        inside = ", ".join(written)
        return f"{{{inside}}}" if node.is_object else f"[{inside}]"

    def _leaf(self, node: JsonNode, numbers: list[int], spans: list[tuple[int, int]]) -> str:
        if len(node.pieces) == 1:
            spans.append((node.start, node.end))
            return self.text[node.start : node.end]
        runs: list[tuple[int, int]] = []
        for number in numbers:
            piece = self.pieces[number]
            if runs and number - 1 in numbers:
                runs[-1] = (runs[-1][0], piece.end)
            else:
                runs.append((piece.start, piece.end))
        spans += runs
        inner = ELLIPSIS.join(self.text[start:end] for start, end in runs)
        head = "" if numbers[0] == node.pieces[0] else ELLIPSIS.lstrip()
        tail = "" if numbers[-1] == node.pieces[-1] else ELLIPSIS.rstrip()
        return f'"{head}{inner}{tail}"'

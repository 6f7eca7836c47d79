"""JSON texts by their members: members go, the rest is still JSON, and no value is rewritten."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from crp_integrations.envelope.prompt import ELLIPSIS
from crp_integrations.governance.compaction.text_pieces import (
    ShortenedText,
    TextKind,
    TextPiece,
    keep_whole,
    lost_fields,
    split_pieces,
)

_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = r'[^"\\\x00-\x1f]*'
_STRING = re.compile(rf'"{_PLAIN}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_PLAIN})*"')
_OTHER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_DEEPEST = 60


@dataclass(slots=True)
class JsonNode:
    """A value.

    Attributes:
        start, end: of the value in the text.
        path: its field, with `[]` for any element of an array, such as `results[].title`.
        key: where its key stands, with quotation marks; None for an element and for the root.
        children: of an object or array, in order; None for a plain value.
        pieces: numbers of the pieces that it is shown in, for a plain value.
    """

    start: int
    end: int
    path: str
    key: tuple[int, int] | None = None
    children: list[JsonNode] | None = None
    is_object: bool = False
    pieces: list[int] = field(default_factory=list)


class _NotJsonError(Exception):
    pass


def parse_json(text: str) -> JsonNode | None:
    """The tree of a text that is an object or array of JSON; None for any other text.

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


def _parse_value(text: str, place: int, path: str, depth: int) -> JsonNode:
    if depth > _DEEPEST:
        raise _NotJsonError
    opening = text[place : place + 1]
    if opening == "{":
        return _parse_object(text, place, path, depth)
    if opening == "[":
        return _parse_array(text, place, path, depth)
    match = (_STRING if opening == '"' else _OTHER).match(text, place)
    if match is None:
        raise _NotJsonError
    return JsonNode(place, match.end(), path)


def _parse_object(text: str, start: int, path: str, depth: int) -> JsonNode:
    children: list[JsonNode] = []
    place = _skip_space(text, start + 1)
    if text[place : place + 1] == "}":
        return JsonNode(start, place + 1, path, children=children, is_object=True)
    while True:
        key = _STRING.match(text, place)
        if key is None:
            raise _NotJsonError
        place = _skip_space(text, key.end())
        if text[place : place + 1] != ":":
            raise _NotJsonError
        name = key.group()[1:-1]
        value = _parse_value(
            text, _skip_space(text, place + 1), f"{path}.{name}" if path else name, depth + 1
        )
        value.key = key.span()
        children.append(value)
        place = _skip_space(text, value.end)
        sign = text[place : place + 1]
        if sign not in (",", "}"):
            raise _NotJsonError
        if sign == "}":
            return JsonNode(start, place + 1, path, children=children, is_object=True)
        place = _skip_space(text, place + 1)


def _parse_array(text: str, start: int, path: str, depth: int) -> JsonNode:
    children: list[JsonNode] = []
    place = _skip_space(text, start + 1)
    if text[place : place + 1] == "]":
        return JsonNode(start, place + 1, path, children=children)
    while True:
        value = _parse_value(text, place, path + "[]", depth + 1)
        children.append(value)
        place = _skip_space(text, value.end)
        sign = text[place : place + 1]
        if sign not in (",", "]"):
            raise _NotJsonError
        if sign == "]":
            return JsonNode(start, place + 1, path, children=children)
        place = _skip_space(text, place + 1)


_NAMES = frozenset(
    """id _id uid uuid doc_id document_id title name url uri link href source path file filename
    page date published published_at published_date updated_at author key ref citation""".split()
)
_SAYS = frozenset(
    """snippet content text description summary answer body passage message value result output
    abstract quote""".split()
)
_TELLS = frozenset(
    "error errors status state code exit_code reason exception warning warnings total".split()
)
_NOISE = frozenset(
    """raw_content raw_html html thumbnail favicon image images embedding vector score rank
    position highlights cache_id request_id trace_id session_id cookies headers _meta
    metadata""".split()
)
_NAMED, _SAID, _TOLD = 0.45, 0.30, 0.70
_FIRST = 0.10
# Characters: a longer text is shown by its sentences; a longer name of a hit is no name.
_LONG_TEXT, _LONG_NAME = 160, 300
_MOST_HITS_WITHOUT_NAMES = 0.5
GAP = '"\u2026"'


def read_json(text: str) -> JsonData | None:
    """The reading of a text of JSON; None for any other text."""
    root = parse_json(text)
    return JsonData(text, root) if root is not None else None


@dataclass(frozen=True)
class JsonData:
    """A text of JSON by its members."""

    text: str
    root: JsonNode

    @property
    def kind(self) -> TextKind:
        """`search` where it lists hits with names and texts, else `data`."""
        return "search" if self._hits else "data"

    @cached_property
    def _hits(self) -> list[JsonNode]:
        """The elements of the lists whose objects have a name and a text each."""
        return [
            node
            for array in _find_arrays(self.root)
            if _lists_hits(self.text, array)
            for node in array.children or ()
            if node.is_object
        ]

    @cached_property
    def pieces(self) -> Sequence[TextPiece]:
        """Members, and sentences of long texts."""
        found: list[TextPiece] = []
        self._read(self.root, found, first=True)
        return found

    @cached_property
    def named(self) -> dict[int, tuple[int, ...]]:
        """For each piece of a hit the pieces that name the hit."""
        every = self.pieces
        found: dict[int, tuple[int, ...]] = {}
        for hit in self._hits:
            inside = [number for leaf in _find_leaves(hit) for number in leaf.pieces]
            names = tuple(
                number
                for leaf in hit.children or ()
                if leaf.children is None and _field_name(leaf) in _NAMES and len(leaf.pieces) == 1
                for number in leaf.pieces
                if every[number].end - every[number].start <= _LONG_NAME
            )
            found |= dict.fromkeys(inside, names)
        return found

    def cut(self, kept: Sequence[int]) -> ShortenedText:
        """The kept members; a hit of which something is kept keeps its names."""
        every = self.pieces
        if len(kept) == len(every):
            return keep_whole(self.text, len(every))
        named = self.named
        stay = {other for number in kept for other in (number, *named.get(number, ()))}
        if len(stay) == len(every):
            return keep_whole(self.text, len(every))
        spans: list[tuple[int, int]] = []
        text = self._written(self.root, stay, spans) or ("{}" if self.root.is_object else "[]")
        if not text.endswith(GAP + "]"):
            # So that a reader sees that there was more.
            gap = f"{GAP}: {GAP}" if self.root.is_object else GAP
            text = f"{text[:-1]}{', ' if len(text) > 2 else ''}{gap}{text[-1]}"
        return ShortenedText(
            text, tuple(spans), tuple(sorted(stay)), lost_fields(every, sorted(stay))
        )

    def _read(self, node: JsonNode, found: list[TextPiece], *, first: bool) -> None:
        if node.children:
            for number, child in enumerate(node.children):
                self._read(child, found, first=first and (node.is_object or number == 0))
            return
        weight = _field_weight(node) + (_FIRST if first else 0.0)
        field = node.path or "[]"
        inner = self.text[node.start + 1 : node.end - 1]
        long = self.text[node.start] == '"' and len(inner) > _LONG_TEXT
        parts = split_pieces(inner) if long else []
        if len(parts) > 1:
            offset = node.start + 1
            spans = [(offset + part.start, offset + part.end) for part in parts]
        else:
            spans = [(node.start, node.end)]
        for start, end in spans:
            node.pieces.append(len(found))
            found.append(TextPiece(start, end, min(1.0, weight), field))

    def _written(self, node: JsonNode, stay: set[int], spans: list[tuple[int, int]]) -> str | None:
        """A value with what stays of it; None when nothing does. Adds the spans shown."""
        if not node.children:
            kept = [number for number in node.pieces if number in stay]
            return self._leaf(node, kept, spans) if kept else None
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

    def _leaf(self, node: JsonNode, kept: list[int], spans: list[tuple[int, int]]) -> str:
        if len(node.pieces) == 1:
            spans.append((node.start, node.end))
            return self.text[node.start : node.end]
        runs: list[tuple[int, int]] = []
        before = -2
        for number in kept:
            piece = self.pieces[number]
            if number == before + 1:
                runs[-1] = (runs[-1][0], piece.end)
            else:
                runs.append((piece.start, piece.end))
            before = number
        spans += runs
        inner = ELLIPSIS.join(self.text[start:end] for start, end in runs)
        head = "" if kept[0] == node.pieces[0] else ELLIPSIS.lstrip()
        tail = "" if kept[-1] == node.pieces[-1] else ELLIPSIS.rstrip()
        return f'"{head}{inner}{tail}"'


def _field_name(node: JsonNode) -> str:
    return node.path.rsplit(".", 1)[-1].removesuffix("[]").lower()


def _field_weight(node: JsonNode) -> float:
    key = _field_name(node)
    if key in _TELLS:
        return _TOLD
    if key in _NAMES:
        return _NAMED
    return 0.0 if key in _NOISE else _SAID if key in _SAYS else 0.1


def _find_arrays(node: JsonNode) -> Iterator[JsonNode]:
    if node.children is None:
        return
    if not node.is_object:
        yield node
    for child in node.children:
        yield from _find_arrays(child)


def _find_leaves(node: JsonNode) -> Iterator[JsonNode]:
    if not node.children:
        yield node
        return
    for child in node.children:
        yield from _find_leaves(child)


def _lists_hits(text: str, array: JsonNode) -> bool:
    """Whether an array lists at least two objects, most with a name and a text."""
    # One that was shortened before has a sign among its hits.
    elements = [c for c in array.children or () if text[c.start : c.end] != GAP]
    objects = [child for child in elements if child.is_object]
    if len(objects) < 2 or len(objects) < len(elements):
        return False
    keys = [{_field_name(child) for child in one.children or ()} for one in objects]
    hits = sum(1 for one in keys if one & _NAMES and one & _SAYS)
    return hits > _MOST_HITS_WITHOUT_NAMES * len(objects)

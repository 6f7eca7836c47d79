"""Data that a tool answered in JSON: members go, what is left is still JSON.

No value is written anew: a number or a text stands in the result as it stood in the source. Of
search results what names a hit (its title, address, id, date) stays with what is quoted of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from crp_integrations.envelope.prompt import ELLIPSIS
from crp_integrations.governance.compaction.json_text import Node, parse
from crp_integrations.governance.compaction.readings import (
    Cut,
    Kind,
    Piece,
    lost_fields,
    sentences,
    whole,
)

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


def data(text: str) -> Data | None:
    """The reading of a text of JSON; None for any other text."""
    root = parse(text)
    return Data(text, root) if root is not None else None


@dataclass(frozen=True)
class Data:
    """A text of JSON by its members."""

    text: str
    root: Node

    @property
    def kind(self) -> Kind:
        """`search` where it lists hits with names and texts, else `data`."""
        return "search" if self._hits else "data"

    @cached_property
    def _hits(self) -> list[Node]:
        """The elements of the lists whose objects have a name and a text each."""
        return [
            node
            for array in _arrays(self.root)
            if _lists_hits(self.text, array)
            for node in array.children or ()
            if node.is_object
        ]

    @cached_property
    def pieces(self) -> Sequence[Piece]:
        """Members, and sentences of long texts."""
        found: list[Piece] = []
        self._read(self.root, found, first=True)
        return found

    @cached_property
    def named(self) -> dict[int, tuple[int, ...]]:
        """For each piece of a hit the pieces that name the hit."""
        every = self.pieces
        found: dict[int, tuple[int, ...]] = {}
        for hit in self._hits:
            inside = [number for leaf in _leaves(hit) for number in leaf.pieces]
            names = tuple(
                number
                for leaf in hit.children or ()
                if leaf.children is None and _key(leaf) in _NAMES and len(leaf.pieces) == 1
                for number in leaf.pieces
                if every[number].end - every[number].start <= _LONG_NAME
            )
            found |= dict.fromkeys(inside, names)
        return found

    def cut(self, kept: Sequence[int]) -> Cut:
        """The kept members; a hit of which something is kept keeps its names."""
        every = self.pieces
        if len(kept) == len(every):
            return whole(self.text, len(every))
        named = self.named
        stay = {other for number in kept for other in (number, *named.get(number, ()))}
        if len(stay) == len(every):
            return whole(self.text, len(every))
        spans: list[tuple[int, int]] = []
        text = self._written(self.root, stay, spans) or ("{}" if self.root.is_object else "[]")
        if not text.endswith(GAP + "]"):
            # So that a reader sees that there was more.
            gap = f"{GAP}: {GAP}" if self.root.is_object else GAP
            text = f"{text[:-1]}{', ' if len(text) > 2 else ''}{gap}{text[-1]}"
        return Cut(text, tuple(spans), tuple(sorted(stay)), lost_fields(every, sorted(stay)))

    def _read(self, node: Node, found: list[Piece], *, first: bool) -> None:
        if node.children:
            for number, child in enumerate(node.children):
                self._read(child, found, first=first and (node.is_object or number == 0))
            return
        weight = _weight(node) + (_FIRST if first else 0.0)
        field = node.path or "[]"
        inner = self.text[node.start + 1 : node.end - 1]
        long = self.text[node.start] == '"' and len(inner) > _LONG_TEXT
        parts = sentences(inner) if long else []
        if len(parts) > 1:
            offset = node.start + 1
            spans = [(offset + part.start, offset + part.end) for part in parts]
        else:
            spans = [(node.start, node.end)]
        for start, end in spans:
            node.pieces.append(len(found))
            found.append(Piece(start, end, min(1.0, weight), field))

    def _written(self, node: Node, stay: set[int], spans: list[tuple[int, int]]) -> str | None:
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

    def _leaf(self, node: Node, kept: list[int], spans: list[tuple[int, int]]) -> str:
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


def _key(node: Node) -> str:
    return node.path.rsplit(".", 1)[-1].removesuffix("[]").lower()


def _weight(node: Node) -> float:
    key = _key(node)
    if key in _TELLS:
        return _TOLD
    if key in _NAMES:
        return _NAMED
    return 0.0 if key in _NOISE else _SAID if key in _SAYS else 0.1


def _arrays(node: Node) -> Iterator[Node]:
    if node.children is None:
        return
    if not node.is_object:
        yield node
    for child in node.children:
        yield from _arrays(child)


def _leaves(node: Node) -> Iterator[Node]:
    if not node.children:
        yield node
        return
    for child in node.children:
        yield from _leaves(child)


def _lists_hits(text: str, array: Node) -> bool:
    """Whether an array lists at least two objects, most with a name and a text."""
    # One that was shortened before has a sign among its hits.
    elements = [c for c in array.children or () if text[c.start : c.end] != GAP]
    objects = [child for child in elements if child.is_object]
    if len(objects) < 2 or len(objects) < len(elements):
        return False
    keys = [{_key(child) for child in one.children or ()} for one in objects]
    hits = sum(1 for one in keys if one & _NAMES and one & _SAYS)
    return hits > _MOST_HITS_WITHOUT_NAMES * len(objects)

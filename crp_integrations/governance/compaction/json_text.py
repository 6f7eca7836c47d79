"""A text of JSON as a tree of stretches of that text, so that no value is ever written anew."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = r'[^"\\\x00-\x1f]*'
_STRING = re.compile(rf'"{_PLAIN}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_PLAIN})*"')
_OTHER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_DEEPEST = 60


@dataclass(slots=True)
class Node:
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
    children: list[Node] | None = None
    is_object: bool = False
    pieces: list[int] = field(default_factory=list)


class _NotJson(Exception):
    pass


def parse(text: str) -> Node | None:
    """The tree of a text that is an object or array of JSON; None for any other text.

    >>> tree = parse('{"a": [1, {"b": "x"}]}')
    >>> [child.path for child in tree.children]
    ['a']
    """
    start = _skip(text, 0)
    if text[start : start + 1] not in ("{", "["):
        return None
    try:
        root = _value(text, start, "", 0)
    except _NotJson:
        return None
    return root if _skip(text, root.end) == len(text) else None


def _skip(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match is not None else place


def _value(text: str, place: int, path: str, depth: int) -> Node:
    if depth > _DEEPEST:
        raise _NotJson
    opening = text[place : place + 1]
    if opening == "{":
        return _object(text, place, path, depth)
    if opening == "[":
        return _array(text, place, path, depth)
    match = (_STRING if opening == '"' else _OTHER).match(text, place)
    if match is None:
        raise _NotJson
    return Node(place, match.end(), path)


def _object(text: str, start: int, path: str, depth: int) -> Node:
    children: list[Node] = []
    place = _skip(text, start + 1)
    if text[place : place + 1] == "}":
        return Node(start, place + 1, path, children=children, is_object=True)
    while True:
        key = _STRING.match(text, place)
        if key is None:
            raise _NotJson
        place = _skip(text, key.end())
        if text[place : place + 1] != ":":
            raise _NotJson
        name = key.group()[1:-1]
        value = _value(text, _skip(text, place + 1), f"{path}.{name}" if path else name, depth + 1)
        value.key = key.span()
        children.append(value)
        place = _skip(text, value.end)
        sign = text[place : place + 1]
        if sign not in (",", "}"):
            raise _NotJson
        if sign == "}":
            return Node(start, place + 1, path, children=children, is_object=True)
        place = _skip(text, place + 1)


def _array(text: str, start: int, path: str, depth: int) -> Node:
    children: list[Node] = []
    place = _skip(text, start + 1)
    if text[place : place + 1] == "]":
        return Node(start, place + 1, path, children=children)
    while True:
        value = _value(text, place, path + "[]", depth + 1)
        children.append(value)
        place = _skip(text, value.end)
        sign = text[place : place + 1]
        if sign not in (",", "]"):
            raise _NotJson
        if sign == "]":
            return Node(start, place + 1, path, children=children)
        place = _skip(text, place + 1)

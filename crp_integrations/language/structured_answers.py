"""Structured answers: the leaves of a JSON object or array, with their keys and offsets."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from pydantic import JsonValue

from crp_integrations.language.text import Span

# Behind a fence that holds all of the answer stands the same object.
_FENCED = re.compile(
    r"\s*(?:`{3,}|~{3,})[ \t]*(?:json[5lc]?)?[ \t]*\n(.*?)\n[ \t]*(?:`{3,}|~{3,})\s*\Z", re.S | re.I
)
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


@dataclass(frozen=True, slots=True)
class JsonLeaf:
    """One value of a structured answer that holds no other, and what it is called.

    Attributes:
        start, end: offsets in the answer, from its own key on; the first leaf of a container
            begins with the container's key, so that every key lies in a leaf.
        keys: where the keys of the objects around it stand, outermost first, its own last.
        path: the same keys as texts, and places in arrays.
        value: text, number, truth value or None; an empty container.
        value_span: where the value stands, quotation marks included.
    """

    start: int
    end: int
    keys: tuple[Span, ...]
    path: tuple[str | int, ...]
    value: JsonValue
    value_span: Span


def json_leaves(text: str) -> tuple[JsonLeaf, ...] | None:
    """The leaves of a text that is a JSON object or array, alone or in a fence; None for others.

    >>> [(leaf.path, leaf.value) for leaf in json_leaves('{"a": {"b": [1, true]}}')]
    [(('a', 'b', 0), 1), (('a', 'b', 1), True)]
    """
    fenced = _FENCED.match(text)
    low, high = fenced.span(1) if fenced is not None else (0, len(text))
    body = text[low:high].strip()
    if body[:1] + body[-1:] not in ("{}", "[]"):
        return None
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return None
    tokens = list(_TOKEN.finditer(text, low, high))
    leaves: list[JsonLeaf] = []
    # For each open container its key and span, or the next place where it is an array.
    keys: list[Span | None] = []
    path: list[str | int] = []
    pending: int | None = None  # where keys stand that no leaf holds yet
    place = 0
    while place < len(tokens):
        token, sign = tokens[place], tokens[place].group()
        span = Span(*token.span())
        following = tokens[place + 1].group() if place + 1 < len(tokens) else ""
        if path and isinstance(path[-1], str) and following == ":" and sign[0] == '"':
            path[-1], keys[-1] = json.loads(sign, strict=False), span
            pending = span.start if pending is None else pending
            place += 2
            continue
        empty = sign + following in ("{}", "[]")
        if sign in "{[" and not empty:
            path.append("" if sign == "{" else 0)
            keys.append(None)
        elif sign in "}]":
            path.pop()
            keys.pop()
        elif sign == ",":
            if isinstance(path[-1], int):
                path[-1] += 1
        elif path:
            end = tokens[place + 1].end() if empty else span.end
            start = span.start if pending is None else pending
            pending = None
            around = tuple(key for key in keys if key is not None)
            value = json.loads(text[span.start : end], strict=False)
            leaves.append(JsonLeaf(start, end, around, tuple(path), value, Span(span.start, end)))
        place += 2 if empty else 1
    return tuple(leaves)

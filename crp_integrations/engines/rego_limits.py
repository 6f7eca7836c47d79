"""What regopy 1.5.2 evaluates to something else than it says; such a policy is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# `not` within `every` is taken for true, so that such a rule would allow everything.
_NOT_IN_EVERY: Final = re.compile(r"\bevery\b[^{}]*\{[^}]*\bnot\b")
_COMMENT: Final = re.compile(r"#[^\n]*")
_TEXT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`')
# The beginning of a comprehension up to its bar; what it gives holds no other one.
_HEAD: Final = re.compile(r"[\[{]([^\[\]{}|\n]+|\s*\[[^\[\]{}|\n]*\]\s*)\|")
# A variable: no name of a field, of a function, and no key before a colon of an object's.
_VARIABLE: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w*\()")
_BOUND: Final = r"\bsome\b[^\n;]*\b{0}\b[^\n;]*\bin\b|\b{0}\s*:="
_CLOSES: Final = {"[": "]", "{": "}"}


def misread(source: str) -> str:
    """Why a source would be misread; empty where nothing is known against it.

    Two things are known. A `not` within an `every` counts as true. A comprehension that gives a
    variable of what is around it, and does not name that variable in its body, is evaluated before
    the variable has a value, and gives nothing.

    >>> misread("x := [label | some role in roles; granted[role]] if some label in labels")[:37]
    'a comprehension that gives `label` an'
    >>> misread("x := [role | some role in roles]")
    ''
    """
    plain = _COMMENT.sub("", _TEXT.sub('""', source))
    if _NOT_IN_EVERY.search(plain):
        return (
            "a `not` in an `every`, which this interpreter takes for true whatever follows; "
            "count what does not hold instead"
        )
    for name in _unnamed(plain):
        return (
            f"a comprehension that gives `{name:.60}` and does not name it in its body, which this "
            f"interpreter evaluates too early; say `given := {name:.60}` there and give that"
        )
    return ""


def _unnamed(plain: str) -> Iterator[str]:
    """Variables that a comprehension gives, are bound around it and not named in its body."""
    for head in _HEAD.finditer(plain):
        body = _body(plain, head.end(), plain[head.start()])
        around = plain[: head.start()] + plain[head.end() + len(body) :]
        for found in _VARIABLE.finditer(head[1]):
            name = found[0]
            if not re.search(rf"\b{name}\b", body) and re.search(
                _BOUND.format(name), _inner(around)
            ):
                yield name


def _inner(source: str) -> str:
    """A source without the names of its rules, which have a value wherever they are read."""
    return re.sub(r"(?m)^(?:default\s+)?[A-Za-z_]\w*\s*:?=", "", source)


def _body(plain: str, start: int, opened: str) -> str:
    """The text up to where a bracket closes that was opened before it."""
    waiting = [_CLOSES[opened]]
    for place in range(start, len(plain)):
        sign = plain[place]
        if sign in _CLOSES:
            waiting.append(_CLOSES[sign])
        elif sign == waiting[-1]:
            waiting.pop()
            if not waiting:
                return plain[start:place]
    return plain[start:]

"""A judge's replies, read from whatever form they came in: behind thoughts, in a fence, cut off."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from crp_integrations.vocabulary import ClaimStatus, ErrorKind

_Said = TypeVar("_Said")

# Nobody needs more to see why.
MOST_QUOTES: Final = 12
LONGEST_QUOTE: Final = 1_000
LONGEST_REASON: Final = 400
# Braces at which an object is looked for: a reply of braces alone ends.
MOST_BRACES: Final = 1_000
# Of unnumbered assertions, needs and conflicts, each.
MOST_LISTED: Final = 50
# Where a reference to a passage ends, at the latest.
LONGEST_NAME: Final = 20
# Figures of a whole number from which on it is read as one with a point.
EXACT: Final = 16

_STATUSES: Final = {
    status.value: status for status in ClaimStatus if status is not ClaimStatus.NOT_CHECKED
}
_KINDS: Final = {kind.value: kind for kind in ErrorKind}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HEAD: Final = re.compile(r'"id"\s*:\s*"([0-9a-f]{16})"\s*,\s*"claims"\s*:\s*\[')
# What a model thought before it replied, drafts and all.
_THOUGHTS: Final = re.compile(
    r"\s*<(think|thinking|reasoning|scratchpad)>.*?</\1>", re.DOTALL | re.IGNORECASE
)
_DIGITS: Final = re.compile(r"[0-9]{1,9}")
_NEXT: Final = re.compile(r"[\s,]*")


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without the fields that it gives twice with different values."""
    fields: dict[str, Any] = {}
    twice = set()
    for name, value in pairs:
        if name in fields and fields[name] != value:
            twice.add(name)
        fields[name] = value
    return {name: value for name, value in fields.items() if name not in twice}


def _figures(text: str) -> int | float:
    """A whole number, as far as every reader of JSON has it exactly."""
    return int(text) if len(text) < EXACT else float(text)


def _refused(constant: str) -> None:
    raise ValueError(constant)


# Models copy line breaks into a text as they are. NaN and Infinity are no JSON, and other readers
# of a recorded reply do not take them.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_fields, parse_int=_figures, parse_constant=_refused, strict=False
)


@dataclass(frozen=True, slots=True)
class Word:
    """A judge's word on one claim, as it came.

    Attributes:
        quotes: where each is said to stand, and its words.
        fix: the claim as the evidence supports it; empty for none.
        text: words of an assertion that has no number; empty for a numbered claim.
    """

    status: ClaimStatus
    kind: ErrorKind | None = None
    wrong: str = ""
    quotes: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    fix: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class SaidNeed:
    """Whether the answer tells a part of the question, by its number, and the claims that do."""

    number: int
    answered: bool
    by: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SaidConflict:
    """Claims, by their numbers, or quotations of passages that cannot both be true."""

    claims: tuple[int, ...] = ()
    quotes: tuple[tuple[str, str], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """What a reply says.

    Attributes:
        numbered: by the claim's number; a claim that two verdicts differ on is not among them.
        unnumbered: assertions of the answer that stand in no numbered claim.
        needs: one for each number; one that is said twice in two ways is not among them.
        whole: the object came to its end.
    """

    numbered: Mapping[int, Word]
    unnumbered: tuple[Word, ...] = ()
    needs: tuple[SaidNeed, ...] = ()
    conflicts: tuple[SaidConflict, ...] = ()
    whole: bool = True


def read_reply(text: str, id_: str) -> Words | None:
    """The verdicts of a reply; None where it holds none to this question.

    Two different objects with the question's id count as none: nobody can tell which of them is
    the judge's word and which was copied from the text that it read.
    """
    thoughts = _THOUGHTS.match(text)
    text = text[thoughts.end() :] if thoughts else text
    replies: list[dict[str, Any]] = []
    last = 0
    for value, end in _objects(text):
        # Some models put the object into another one.
        for candidate in (value, *value.values()):
            if isinstance(candidate, dict) and candidate.get("id") == id_ and "claims" in candidate:
                replies.append(candidate)
                last = end
    if not replies:
        return _cut_off(text, id_)
    differ = any(reply != replies[0] for reply in replies[1:])
    # An object that begins behind it and is cut off counts as a second one.
    if differ or not isinstance(replies[0]["claims"], list) or _begun(text, id_, last) is not None:
        return None
    return _words(replies[0]["claims"], replies[0], whole=True)


def _objects(text: str) -> Iterator[tuple[dict[str, Any], int]]:
    """The outermost JSON objects of a text, in order, with where they end."""
    at = text.find("{")
    for _ in range(MOST_BRACES):
        if at < 0:
            return
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(value, dict):
                yield value, end
        at = text.find("{", end)


def _begun(text: str, id_: str, start: int) -> int | None:
    """Where the list of claims begins in an object that is cut off; None for none."""
    heads = [head for head in _HEAD.finditer(text, start) if head[1] == id_]
    return heads[-1].end() if heads else None


def _cut_off(text: str, id_: str) -> Words | None:
    """The complete verdicts in an object that is cut off."""
    at = _begun(text, id_, 0)
    if at is None:
        return None
    items: list[Any] = []
    while True:
        blank = _NEXT.match(text, at)
        start = blank.end() if blank else at
        try:
            item, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        items.append(item)
    return _words(items, {}, whole=False) if items else None


def _words(claims: list[Any], reply: dict[str, Any], *, whole: bool) -> Words:
    numbered: list[tuple[int, Word | None]] = []
    for item in claims:
        number = _number(item.get("n")) if isinstance(item, dict) else None
        if number is not None:
            # An unreadable verdict is listed as None, so that it disagrees with any other.
            numbered.append((number, _word(item)))
    others = [_word(item) for item in _items(reply, "unnumbered")]
    needs = [
        (number, SaidNeed(number, item["answered"], _numbers(item.get("by"))))
        for item in _items(reply, "needs")
        if isinstance(item, dict)
        and (number := _number(item.get("n"))) is not None
        and isinstance(item.get("answered"), bool)
    ]
    conflicts = [
        SaidConflict(_numbers(item.get("claims")), _quotes(item.get("passages")), _reason(item))
        for item in _items(reply, "conflicts")
        if isinstance(item, dict)
    ]
    return Words(
        {number: word for number, word in _agreed(numbered).items() if word is not None},
        tuple(word for word in others if word is not None and word.text),
        tuple(_agreed(needs).values()),
        tuple(conflicts),
        whole,
    )


def _agreed(statements: Iterable[tuple[int, _Said]]) -> dict[int, _Said]:
    """What is said of each number, without the numbers that have two different statements."""
    first: dict[int, _Said] = {}
    twice: set[int] = set()
    for number, item in statements:
        if first.setdefault(number, item) != item:
            twice.add(number)
    return {number: item for number, item in first.items() if number not in twice}


def _items(reply: dict[str, Any], name: str) -> list[Any]:
    items = reply.get(name)
    return items[:MOST_LISTED] if isinstance(items, list) else []


def _word(item: Any) -> Word | None:
    if not isinstance(item, dict):
        return None
    status = _STATUSES.get(_upper(item.get("status")))
    if status is None:
        return None
    return Word(
        status=status,
        kind=_KINDS.get(_upper(item.get("kind"))),
        wrong=_text(item.get("wrong")),
        quotes=_quotes(item.get("quotes")),
        reason=_reason(item),
        fix=_text(item.get("fix")),
        text=_text(item.get("text")),
    )


def _quotes(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple(
        (_place(item.get("in")), _text(item.get("text")))
        for item in (value[:MOST_QUOTES] if isinstance(value, list) else ())
        if isinstance(item, dict) and item.get("text") != ""
    )


def _reason(item: dict[str, Any]) -> str:
    return _text(item.get("reason"), LONGEST_REASON)


def _numbers(value: Any) -> tuple[int, ...]:
    """Numbers of claims, each once; anything that is no number is left out."""
    numbers = map(_number, value[:MOST_LISTED] if isinstance(value, list) else ())
    return tuple(dict.fromkeys(number for number in numbers if number is not None))


def _number(value: Any) -> int | None:
    """A claim's number: `2.0` is 2, and some models write it as a text."""
    if isinstance(value, str):
        value = value.strip()
        return int(value) if _DIGITS.fullmatch(value) else None
    return _whole(value)


def _whole(value: Any) -> int | None:
    """A whole number, however it is written."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if type(value) is int else None


def _place(value: Any) -> str:
    """Where a quotation is said to stand: a name, or a number as one."""
    number = _whole(value)
    name = value if isinstance(value, str) else "" if number is None else str(number)
    return name[:LONGEST_NAME].strip().lower()


def _upper(value: Any) -> str:
    return value.strip().upper().replace(" ", "_") if isinstance(value, str) else ""


def _text(value: Any, most: int = LONGEST_QUOTE) -> str:
    return readable(value.strip()[:most]) if isinstance(value, str) else ""


def readable(text: str) -> str:
    """A text without lone surrogates, which no report could hold."""
    return _SURROGATE.sub("\ufffd", text)

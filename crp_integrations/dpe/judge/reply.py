"""What a judge's reply says, read from whatever form it came in. Nothing is believed here yet.

The reply may stand in a code fence, behind chatter or a model's thoughts, or be cut off. What
counts is the JSON object that repeats the id of what was asked; of one that was cut off, the
verdicts that came whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from crp_integrations.vocabulary import ClaimStatus, ErrorKind

# Nobody needs more to see why.
MOST_QUOTES: Final = 12
LONGEST_QUOTE: Final = 1_000
LONGEST_REASON: Final = 400
# Braces at which an object is looked for: a reply of braces alone ends.
MOST_BRACES: Final = 1_000
MOST_UNNUMBERED: Final = 50
# Where a reference to a passage ends, at the latest.
LONGEST_NAME: Final = 20
# Figures of a whole number from which on it is read as one with a point.
EXACT: Final = 16

_STATUSES: Final = {one.value: one for one in ClaimStatus if one is not ClaimStatus.NOT_CHECKED}
_KINDS: Final = {one.value: one for one in ErrorKind}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HEAD: Final = re.compile(r'"id"\s*:\s*"([0-9a-f]{16})"\s*,\s*"claims"\s*:\s*\[')
_DIGITS: Final = re.compile(r"[0-9]{1,9}")
_NEXT: Final = re.compile(r"[\s,]*")


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without the fields that stand in it twice with two values."""
    found: dict[str, Any] = {}
    twice = set()
    for name, value in pairs:
        if name in found and found[name] != value:
            twice.add(name)
        found[name] = value
    return {name: value for name, value in found.items() if name not in twice}


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
        text: words of an assertion that has no number; empty for a numbered claim.
    """

    status: ClaimStatus
    kind: ErrorKind | None = None
    wrong: str = ""
    quotes: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """What a reply says.

    Attributes:
        numbered: by the claim's number; a claim that two verdicts differ on is not among them.
        unnumbered: assertions of the answer that stand in no numbered claim.
        whole: the object came to its end.
    """

    numbered: Mapping[int, Word]
    unnumbered: tuple[Word, ...] = ()
    whole: bool = True


def read_reply(text: str, id_: str) -> Words | None:
    """The verdicts of a reply; None where it holds none to this question."""
    for found, end in reversed(list(_objects(text))):
        # Some models put the object into another one.
        for one in (found, *found.values()):
            claims = one.get("claims") if isinstance(one, dict) and one.get("id") == id_ else None
            if isinstance(claims, list):
                # What was begun again behind it, and cut off, is the last word.
                later = _cut_off(text, id_, end)
                return later or _words(claims, one.get("unnumbered"), whole=True)
    return _cut_off(text, id_, 0)


def _objects(text: str) -> Iterator[tuple[dict[str, Any], int]]:
    """The outermost JSON objects of a text, in order, with where they end."""
    at = text.find("{")
    for _ in range(MOST_BRACES):
        if at < 0:
            return
        try:
            found, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(found, dict):
                yield found, end
        at = text.find("{", end)


def _cut_off(text: str, id_: str, start: int) -> Words | None:
    """The verdicts that came whole in an object that did not."""
    heads = [one for one in _HEAD.finditer(text, start) if one[1] == id_]
    if not heads:
        return None
    found: list[Any] = []
    at = heads[-1].end()
    while True:
        blank = _NEXT.match(text, at)
        start = blank.end() if blank else at
        try:
            one, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        found.append(one)
    return _words(found, None, whole=False) if found else None


def _words(claims: list[Any], unnumbered: Any, *, whole: bool) -> Words:
    numbered: dict[int, Word] = {}
    twice: set[int] = set()
    for item in claims:
        number = _number(item.get("n")) if isinstance(item, dict) else None
        if number is None:
            continue
        word = _word(item)
        if word is None:
            # It is named, and what is said of it cannot be read.
            twice.add(number)
            continue
        if number in numbered and numbered[number].status is not word.status:
            twice.add(number)
        numbered.setdefault(number, word)
    others = []
    for item in unnumbered[:MOST_UNNUMBERED] if isinstance(unnumbered, list) else ():
        word = _word(item)
        if word is not None and word.text:
            others.append(word)
    kept = {number: word for number, word in numbered.items() if number not in twice}
    return Words(kept, tuple(others), whole)


def _word(item: Any) -> Word | None:
    if not isinstance(item, dict):
        return None
    status = _STATUSES.get(_upper(item.get("status")))
    if status is None:
        return None
    quotes = item.get("quotes")
    return Word(
        status=status,
        kind=_KINDS.get(_upper(item.get("kind"))),
        wrong=_text(item.get("wrong")),
        quotes=tuple(
            (_place(one.get("in")), _text(one.get("text")))
            for one in (quotes[:MOST_QUOTES] if isinstance(quotes, list) else ())
            if isinstance(one, dict) and one.get("text") != ""
        ),
        reason=_text(item.get("reason"), LONGEST_REASON),
        text=_text(item.get("text")),
    )


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

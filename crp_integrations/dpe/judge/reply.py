"""Parses a judge's replies in any form: after reasoning, in a code fence, or cut off."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from crp_integrations.vocabulary import ClaimStatus, ErrorKind

_Statement = TypeVar("_Statement")

# Limits of quotations for a claim and of characters: an explanation needs no more.
MOST_QUOTES: Final = 12
LONGEST_QUOTE: Final = 1_000
LONGEST_REASON: Final = 400
# Maximum number of braces at which an object is tried, so that a reply of braces ends.
MOST_BRACES: Final = 1_000
# Maximum number of unnumbered assertions, of needs and of conflicts.
MOST_LISTED: Final = 50
# Maximum characters of a reference to a passage.
LONGEST_NAME: Final = 20
# Minimum digits at which a whole number is read as a float, as JavaScript does.
EXACT: Final = 16

_STATUSES: Final = {
    status.value: status for status in ClaimStatus if status is not ClaimStatus.NOT_CHECKED
}
_KINDS: Final = {kind.value: kind for kind in ErrorKind}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HEAD: Final = r'"id"\s*:\s*"{}"\s*,\s*"{}"\s*:\s*\['
# A model's reasoning before its reply, which may contain drafts.
_THOUGHTS: Final = re.compile(
    r"\s*<(think|thinking|reasoning|scratchpad)>.*?</\1>", re.DOTALL | re.IGNORECASE
)
_DIGITS: Final = re.compile(r"[0-9]{1,9}")
_NEXT: Final = re.compile(r"[\s,]*")


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without the fields that occur twice with different values."""
    fields: dict[str, Any] = {}
    twice = set()
    for name, value in pairs:
        if name in fields and fields[name] != value:
            twice.add(name)
        fields[name] = value
    return {name: value for name, value in fields.items() if name not in twice}


def _figures(text: str) -> int | float:
    """An integer if every JSON parser reads it exactly, else a float."""
    return int(text) if len(text) < EXACT else float(text)


def _refused(constant: str) -> None:
    raise ValueError(constant)


# Not strict, as models copy line breaks into strings. NaN and Infinity are not JSON, and other
# readers of a recorded reply reject them.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_fields, parse_int=_figures, parse_constant=_refused, strict=False
)


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """A judge's verdict on one claim, as the reply states it.

    Attributes:
        quotes: name of the source and words of each quotation.
        fix: the claim, corrected so that the evidence supports it; empty if it can only be removed,
            None if the reply has no correction.
        text: words of an assertion that has no number; empty for a numbered claim.
    """

    status: ClaimStatus
    kind: ErrorKind | None = None
    wrong: str = ""
    quotes: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    fix: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class NeedVerdict:
    """Whether the answer covers a numbered part of the question, and by which claims."""

    number: int
    answered: bool
    by: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ConflictVerdict:
    """Claims, by their numbers, or quotations of passages that cannot both be true."""

    claims: tuple[int, ...] = ()
    quotes: tuple[tuple[str, str], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReplyVerdicts:
    """The content of a reply.

    Attributes:
        numbered: verdicts by claim number, without claims that have two different verdicts.
        unnumbered: verdicts on assertions of the answer outside of the numbered claims.
        needs: one for each number, without needs that have two different verdicts.
        whole: True if the object is complete.
    """

    numbered: Mapping[int, ClaimVerdict]
    unnumbered: tuple[ClaimVerdict, ...] = ()
    needs: tuple[NeedVerdict, ...] = ()
    conflicts: tuple[ConflictVerdict, ...] = ()
    whole: bool = True


@dataclass(frozen=True, slots=True)
class ActionVerdicts:
    """The content of a reply about a tool call.

    Attributes:
        arguments: status, quotations and reason by number, without arguments that have two
            different verdicts.
        run: whether the call may run; None if the reply does not tell.
    """

    arguments: Mapping[int, tuple[str, tuple[tuple[str, str], ...], str]]
    missing: str = ""
    run: bool | None = None
    reason: str = ""


def read_action_reply(text: str, id_: str) -> ActionVerdicts | None:
    """The verdicts of a reply about a tool call; None if it contains none with this id."""
    listed = read_list(text, id_, "arguments")
    if listed is None:
        return None
    items, reply = listed[0], listed[1] or {}
    verdicts = [
        (number, (_upper(item.get("status")), _quotes(item.get("quotes")), _reason(item)))
        for item in items
        if isinstance(item, dict) and (number := _number(item.get("n"))) is not None
    ]
    run = reply.get("run")
    return ActionVerdicts(
        _agreed(verdicts),
        _text(reply.get("missing"), LONGEST_REASON),
        run if isinstance(run, bool) else None,
        _reason(reply),
    )


def read_reply(text: str, id_: str) -> ReplyVerdicts | None:
    """The verdicts of a reply; None if it contains none with this id."""
    listed = read_list(text, id_, "claims")
    return None if listed is None else _verdicts(listed[0], listed[1] or {}, whole=bool(listed[1]))


def read_list(text: str, id_: str, name: str) -> tuple[list[Any], dict[str, Any] | None] | None:
    """The list of a reply's object with an id, and the object; None if there is no such list.

    Two different objects with the id count as none: one of them may be copied from the text that
    the judge read. Of an object that is cut off, the complete items count, and it is None.
    """
    thoughts = _THOUGHTS.match(text)
    text = text[thoughts.end() :] if thoughts else text
    replies: list[dict[str, Any]] = []
    last = 0
    for value, end in _objects(text):
        # Some models wrap the object in another one.
        for candidate in (value, *value.values()):
            if isinstance(candidate, dict) and candidate.get("id") == id_ and name in candidate:
                replies.append(candidate)
                last = end
    if not replies:
        items = _cut_off(text, id_, name)
        return (items, None) if items else None
    differ = any(reply != replies[0] for reply in replies[1:])
    items = replies[0][name]
    # A further object that is cut off counts as a second one.
    if differ or not isinstance(items, list) or _begun(text, id_, name, last) is not None:
        return None
    return items, replies[0]


def _objects(text: str) -> Iterator[tuple[dict[str, Any], int]]:
    """The outermost JSON objects of a text in order, each with its end."""
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


def _begun(text: str, id_: str, name: str, start: int) -> int | None:
    """The offset at which the list of the last object with the id begins, or None."""
    heads = list(re.compile(_HEAD.format(re.escape(id_), name)).finditer(text, start))
    return heads[-1].end() if heads else None


def _cut_off(text: str, id_: str, name: str) -> list[Any]:
    """The complete items of the list in an object that is cut off."""
    at = _begun(text, id_, name, 0)
    items: list[Any] = []
    while at is not None:
        blank = _NEXT.match(text, at)
        start = blank.end() if blank else at
        try:
            item, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        items.append(item)
    return items


def _verdicts(claims: list[Any], reply: dict[str, Any], *, whole: bool) -> ReplyVerdicts:
    numbered: list[tuple[int, ClaimVerdict | None]] = []
    for item in claims:
        number = _number(item.get("n")) if isinstance(item, dict) else None
        if number is not None:
            # An unreadable verdict is listed as None, so that it disagrees with any other.
            numbered.append((number, _verdict(item)))
    others = [_verdict(item) for item in _items(reply, "unnumbered")]
    needs = [
        (number, NeedVerdict(number, item["answered"], _numbers(item.get("by"))))
        for item in _items(reply, "needs")
        if isinstance(item, dict)
        and (number := _number(item.get("n"))) is not None
        and isinstance(item.get("answered"), bool)
    ]
    conflicts = [
        ConflictVerdict(_numbers(item.get("claims")), _quotes(item.get("passages")), _reason(item))
        for item in _items(reply, "conflicts")
        if isinstance(item, dict)
    ]
    return ReplyVerdicts(
        {number: verdict for number, verdict in _agreed(numbered).items() if verdict is not None},
        tuple(verdict for verdict in others if verdict is not None and verdict.text),
        tuple(_agreed(needs).values()),
        tuple(conflicts),
        whole,
    )


def _agreed(statements: Iterable[tuple[int, _Statement]]) -> dict[int, _Statement]:
    """The statement on each number, without numbers that have two different statements."""
    first: dict[int, _Statement] = {}
    twice: set[int] = set()
    for number, item in statements:
        if first.setdefault(number, item) != item:
            twice.add(number)
    return {number: item for number, item in first.items() if number not in twice}


def _items(reply: dict[str, Any], name: str) -> list[Any]:
    items = reply.get(name)
    return items[:MOST_LISTED] if isinstance(items, list) else []


def _verdict(item: Any) -> ClaimVerdict | None:
    if not isinstance(item, dict):
        return None
    status = _STATUSES.get(_upper(item.get("status")))
    if status is None:
        return None
    return ClaimVerdict(
        status=status,
        kind=_KINDS.get(_upper(item.get("kind"))),
        wrong=_text(item.get("wrong")),
        quotes=_quotes(item.get("quotes")),
        reason=_reason(item),
        fix=_text(item["fix"]) if isinstance(item.get("fix"), str) else None,
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
    """Numbers of claims, each once; anything that is not a number is left out."""
    numbers = map(_number, value[:MOST_LISTED] if isinstance(value, list) else ())
    return tuple(dict.fromkeys(number for number in numbers if number is not None))


def _number(value: Any) -> int | None:
    """A claim's number, as an integer, as `2.0`, or as a string, which some models write."""
    if isinstance(value, str):
        value = value.strip()
        return int(value) if _DIGITS.fullmatch(value) else None
    return _whole(value)


def _whole(value: Any) -> int | None:
    """An integer, also one written as a float."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if type(value) is int else None


def _place(value: Any) -> str:
    """The source that a quotation names; a number becomes a string."""
    number = _whole(value)
    name = value if isinstance(value, str) else "" if number is None else str(number)
    return name[:LONGEST_NAME].strip().lower()


def _upper(value: Any) -> str:
    return value.strip().upper().replace(" ", "_") if isinstance(value, str) else ""


def _text(value: Any, most: int = LONGEST_QUOTE) -> str:
    return readable(value.strip()[:most]) if isinstance(value, str) else ""


def readable(text: str) -> str:
    """The text with lone surrogates replaced, which a report cannot contain."""
    return _SURROGATE.sub("\ufffd", text)

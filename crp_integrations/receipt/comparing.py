"""Two receipts beside each other: what was asked, seen, said and decided otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from crp_integrations.receipt.comparable import Comparable
from crp_integrations.receipt.leaves import FACT
from crp_integrations.receipt.places import first, in_text
from crp_integrations.receipt.reading import MALFORMED, LeftOutError, Texts, content_of, malformed
from crp_integrations.receipt.records import Receipt
from crp_integrations.records import Part, Record

# Parts of the content that are laid beside each other, in the order of a window.
_PARTS: Final = (
    "package", "request", "model", "settings", "selected", "fit", "envelope", "calls", "report",
    "examined", "policy",
)  # fmt: skip
# Hashes of what is compared by itself, over ids and times.
_HASHES: Final = "seal"
# Names and tool calls of a message, in JSON.
_FRAME: Final = "/frame"
_NOTHING: Final = "nothing"
_A_TEXT: Final = "a text"


class Unlike(Part):
    """A place at which two receipts differ.

    Attributes:
        part: part of the content, or `text`.
        place: path, or name, byte and line of a text.
        left, right: what stands there; empty for a text that both have.
    """

    part: str
    place: str
    left: str = ""
    right: str = ""


class Compared(Record):
    """Two receipts beside each other.

    Attributes:
        same: nothing that was compared differs but ids, times and places in the chain.
        facts_in, facts_out: ids that only the right or only the left context shows.
        candidates_in, candidates_out: the same of the candidates.
        rescored: candidates of both whose scores or tokens differ.
        differences: of each part and text the first place.
        not_compared: names of texts that both have and that are not in one of the copies.
        left_context, right_context: the rendered contexts; empty where one is not in its copy.
    """

    SCHEMA = "receipt-compared/1"

    left: str
    right: str
    same: bool
    facts_in: tuple[str, ...] = ()
    facts_out: tuple[str, ...] = ()
    candidates_in: tuple[str, ...] = ()
    candidates_out: tuple[str, ...] = ()
    rescored: tuple[str, ...] = ()
    differences: tuple[Unlike, ...] = ()
    not_compared: tuple[str, ...] = ()
    left_context: str = ""
    right_context: str = ""


def diff(left: Receipt, right: Receipt) -> Compared:
    """Lay two receipts beside each other.

    Raises:
        ReceiptBroken: the content of one is malformed.
    """
    for one in (left, right):
        content_of(one)
    try:
        return _compared(left, right)
    except MALFORMED as error:
        raise malformed("content", error) from error


def _compared(left: Receipt, right: Receipt) -> Compared:
    one, other = Comparable(left), Comparable(right)
    old, new = one.candidates, other.candidates
    was, is_ = one.shown, other.shown
    lacking: list[str] = []
    differences = (*_of_parts(one, other), *_of_texts(left, right, lacking))
    rescored = tuple(id_ for id_ in old if id_ in new and old[id_] != new[id_])
    return Compared(
        left=left.receipt_id,
        right=right.receipt_id,
        same=not differences and old == new and was == is_,
        facts_in=tuple(id_ for id_ in is_ if id_ not in was),
        facts_out=tuple(id_ for id_ in was if id_ not in is_),
        candidates_in=tuple(id_ for id_ in new if id_ not in old),
        candidates_out=tuple(id_ for id_ in old if id_ not in new),
        rescored=rescored,
        differences=differences,
        not_compared=tuple(lacking),
        left_context=_text(left, "context") or "",
        right_context=_text(right, "context") or "",
    )


def _of_parts(left: Comparable, right: Comparable) -> Iterator[Unlike]:
    for part in _PARTS:
        old, new = left.part(part), right.part(part)
        if part == "envelope" and old and new and (left.salted or right.salted):
            old["etag"] = new["etag"] = ""
        found = first(old, new, part)
        if found is not None:
            yield Unlike(part=part, place=found.place, left=found.recorded, right=found.replayed)


def _of_texts(left: Receipt, right: Receipt, lacking: list[str]) -> Iterator[Unlike]:
    """Texts by the names of their leaves; of facts those that both receipts have.

    Args:
        lacking: gets the names of those that are not in one of the copies.
    """
    names = dict.fromkeys([leaf.name for leaf in (*left.leaves, *right.leaves)])
    for name in names:
        here, there = name in left.numbers, name in right.numbers
        if name == _HASHES or (name.startswith(FACT) and not (here and there)):
            continue
        if not (here and there):
            told = (_A_TEXT, _NOTHING) if here else (_NOTHING, _A_TEXT)
            yield Unlike(part="text", place=name, left=told[0], right=told[1])
            continue
        old, new = _text(left, name), _text(right, name)
        if old is None or new is None:
            lacking.append(name)
            continue
        if name.endswith(_FRAME):
            old, new = _frame(old), _frame(new)
        found = in_text(old, new, name)
        if found is not None:
            yield Unlike(part="text", place=found.place)


def _frame(text: str) -> str:
    """Names and tool calls of a message, without the ids that a model gave them."""
    frame = json.loads(text)
    frame.pop("tool_call_id", None)
    for call in frame.get("tool_calls", ()):
        call.pop("id", None)
    return json.dumps(frame, sort_keys=True)


def _text(receipt: Receipt, name: str) -> str | None:
    try:
        return Texts(receipt).named(name)
    except LeftOutError:
        return None

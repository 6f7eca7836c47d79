"""Two receipts beside each other: what was asked, seen, said and decided otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from crp_integrations.receipt.places import first, in_text
from crp_integrations.receipt.reading import MALFORMED, LeftOutError, Texts, content_of, malformed
from crp_integrations.receipt.records import Receipt
from crp_integrations.records import Part, Record

# Parts of the content that are laid beside each other, in the order of a window.
_PARTS: Final = (
    "package", "request", "model", "settings", "selected", "fit", "envelope", "calls", "report",
    "examined", "policy",
)  # fmt: skip
_TEXTS: Final = ("request", "context", "answer")
# Numbers of leaves say nothing beside those of another receipt.
_LEAVES: Final = frozenset(
    {
        "leaf", "question", "needs", "system_prompt", "instructions", "history", "tools",
        "tool_calls", "pieces", "answer", "prompt", "seal", "at", "kept", "signals", "messages",
    }
)  # fmt: skip


class Unlike(Part):
    """A place at which two receipts differ.

    Attributes:
        part: part of the content, or `text`.
        place: path, or byte and line of a text.
        left, right: what stands there; empty for a text.
    """

    part: str
    place: str
    left: str = ""
    right: str = ""


class Compared(Record):
    """Two receipts beside each other.

    Attributes:
        same: nothing differs but ids, times and places in the chain.
        facts_in, facts_out: ids that only the right or only the left context shows.
        candidates_in, candidates_out: the same of the candidates.
        rescored: candidates of both whose scores or tokens differ.
        differences: of each part and text the first place.
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
    old, new = _candidates(left), _candidates(right)
    was, is_ = _shown(left), _shown(right)
    differences = (*_of_parts(left, right), *_of_texts(left, right))
    rescored = tuple(id_ for id_ in old if id_ in new and old[id_] != new[id_])
    return Compared(
        left=left.receipt_id,
        right=right.receipt_id,
        same=not differences and old == new,
        facts_in=tuple(id_ for id_ in is_ if id_ not in was),
        facts_out=tuple(id_ for id_ in was if id_ not in is_),
        candidates_in=tuple(id_ for id_ in new if id_ not in old),
        candidates_out=tuple(id_ for id_ in old if id_ not in new),
        rescored=rescored,
        differences=differences,
        left_context=_text(left, "context") or "",
        right_context=_text(right, "context") or "",
    )


def _candidates(receipt: Receipt) -> dict[str, Any]:
    return {
        one["id"]: {name: value for name, value in one.items() if name != "leaf"}
        for one in receipt.content["candidates"]
    }


def _shown(receipt: Receipt) -> list[str]:
    """Ids of what the model was shown, in order."""
    examined, envelope = receipt.content["examined"], receipt.content["envelope"]
    if envelope is not None:
        ids = [one["id"] for one in receipt.content["candidates"]]
        return [ids[fact["at"]] for fact in envelope["facts"]]
    return [] if examined is None else [one["id"] for one in examined["passages"] or ()]


def _of_parts(left: Receipt, right: Receipt) -> Iterator[Unlike]:
    for part in _PARTS:
        found = first(_plain(left.content[part]), _plain(right.content[part]), part)
        if found is not None:
            yield Unlike(part=part, place=found.place, left=found.recorded, right=found.replayed)


def _of_texts(left: Receipt, right: Receipt) -> Iterator[Unlike]:
    for name in _TEXTS:
        old, new = _text(left, name), _text(right, name)
        if old is None or new is None:
            continue
        found = in_text(old, new, name)
        if found is not None:
            yield Unlike(part="text", place=found.place)


def _text(receipt: Receipt, name: str) -> str | None:
    try:
        return Texts(receipt).named(name)
    except LeftOutError:
        return None


def _plain(value: Any) -> Any:
    """Content without numbers that mean something in one receipt alone."""
    if isinstance(value, Mapping):
        return {
            name: _plain(inner)
            for name, inner in value.items()
            if name not in _LEAVES and name not in ("now", "timestamp")
        }
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value

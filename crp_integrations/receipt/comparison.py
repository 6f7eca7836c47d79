"""Comparison of two receipts.

Numbers of leaves and candidates have a meaning only within one receipt, so leaves are compared by
name and candidates by id. Ids of windows and of decisions, and times, are not compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, get_args

from pydantic.fields import FieldInfo

from crp_integrations.receipt.leaves import FACT
from crp_integrations.receipt.predicate import (
    CANDIDATE,
    LEAF,
    CandidateRecord,
    Content,
    ExaminationRecord,
    FitRecord,
    JudgeCallRecord,
    PriorAnswerRecord,
)
from crp_integrations.receipt.reconstruction import (
    MALFORMED,
    MissingTextError,
    Texts,
    content_of,
    malformed,
)
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.replay_records import first, in_text
from crp_integrations.records import Part, Record

# Fields that differ between otherwise equal windows (ids of windows and decisions, times), and
# texts, which are compared separately.
_NOT_COMPARED: Final[Mapping[type[Part], frozenset[str]]] = {
    CandidateRecord: frozenset({"id", "leaf", "ingested_at", "decision"}),
    FitRecord: frozenset({"now", "window_number"}),
    PriorAnswerRecord: frozenset({"window_id", "number"}),
    ExaminationRecord: frozenset({"signals"}),
    JudgeCallRecord: frozenset({"cached", "cost", "milliseconds"}),
}
# Parts of the content that are compared, in the order of a window.
_PARTS: Final = (
    "package", "request", "model", "settings", "selected", "fit", "envelope", "calls", "report",
    "examined", "policy",
)  # fmt: skip
# The leaf of sealed hashes: they cover ids and times, and their texts are compared directly.
_HASHES: Final = "seal"
# Suffix of a leaf with a message's name and tool calls as JSON.
_FRAME: Final = "/frame"


class ReceiptDifference(Part):
    """A place at which two receipts differ.

    Attributes:
        place: path of a value, or name, byte and line of a text.
        left, right: values at that place; empty for a text that both have.
    """

    part: str
    place: str
    left: str = ""
    right: str = ""


class ComparedReceipts(Record):
    """Result of comparing two receipts.

    Attributes:
        same: True if they differ only in ids, times and places in the chain.
        facts_in, facts_out: ids of facts that only the right or only the left context contains.
        differences: first difference of each part and of each text.
        not_compared: names of texts of both receipts that one of the copies leaves out.
        left_context, right_context: rendered contexts; empty where the copy leaves it out.
    """

    SCHEMA = "receipt-compared/1"

    left: str
    right: str
    same: bool
    facts_in: tuple[str, ...] = ()
    facts_out: tuple[str, ...] = ()
    differences: tuple[ReceiptDifference, ...] = ()
    not_compared: tuple[str, ...] = ()
    left_context: str = ""
    right_context: str = ""


class _Side:
    """Content of one receipt, with leaf names and candidate ids instead of their numbers."""

    def __init__(self, receipt: Receipt) -> None:
        content = receipt.content
        self._names = [leaf.name for leaf in receipt.leaves]
        self._ids = [candidate["id"] for candidate in content["candidates"]]
        envelope, examined = content["envelope"], content["examined"]
        self.shown: list[str] = []
        if envelope is not None:
            self.shown = [self._ids[fact["at"]] for fact in envelope["facts"]]
        elif examined is not None:
            self.shown = [passage["id"] for passage in examined["passages"] or ()]
        self.parts: dict[str, Any] = {
            "candidates": {
                candidate["id"]: self._part(CandidateRecord, candidate)
                for candidate in content["candidates"]
            },
            **{name: self._value(Content.model_fields[name], content[name]) for name in _PARTS},
        }
        if envelope is not None and (content["fit"] or {}).get("salted"):
            # The ETag depends on a secret of the session.
            self.parts["envelope"]["etag"] = ""

    def _part(self, kind: type[Part], recorded: Mapping[str, Any]) -> dict[str, Any]:
        fields, skip = kind.model_fields, _NOT_COMPARED.get(kind, ())
        return {n: self._value(fields[n], inner) for n, inner in recorded.items() if n not in skip}

    def _value(self, field: FieldInfo, value: Any) -> Any:
        if value is None:
            return None
        if LEAF in field.metadata:
            return self._named(value)
        if CANDIDATE in field.metadata:
            return self._ids[value]
        annotation: Any = field.annotation
        kind = _part_in(annotation)
        if kind is None:
            return value
        if isinstance(value, (list, tuple)):
            return [self._part(kind, item) for item in value]
        return self._part(kind, value)

    def _named(self, value: Any) -> Any:
        """Replace leaf numbers by names, in lists too; stretches keep their positions."""
        if isinstance(value, int):
            return self._names[value]
        if not isinstance(value, (list, tuple)):
            return value
        return [
            [self._names[item[0]], *item[1:]]
            if isinstance(item, (list, tuple))
            else self._named(item)
            for item in value
        ]


@cache
def _part_in(annotation: Any) -> type[Part] | None:
    """The `Part` class in a field's type, alone or in a container; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    return next(filter(None, map(_part_in, get_args(annotation))), None)


def diff(left: Receipt, right: Receipt) -> ComparedReceipts:
    """Compare two receipts.

    Raises:
        ReceiptBroken: the content of one is malformed.
    """
    for receipt in (left, right):
        content_of(receipt)
    lacking: list[str] = []
    try:
        old, new = _Side(left), _Side(right)
        differences = (*_of_parts(old, new), *_of_texts(left, right, lacking))
    except MALFORMED as error:
        raise malformed("content", error) from error
    return ComparedReceipts(
        left=left.receipt_id,
        right=right.receipt_id,
        same=not differences and old.shown == new.shown,
        facts_in=tuple(id_ for id_ in new.shown if id_ not in old.shown),
        facts_out=tuple(id_ for id_ in old.shown if id_ not in new.shown),
        differences=differences,
        not_compared=tuple(lacking),
        left_context=_text(left, "context") or "",
        right_context=_text(right, "context") or "",
    )


def _of_parts(left: _Side, right: _Side) -> Iterator[ReceiptDifference]:
    for part, old in left.parts.items():
        unlike = first(old, right.parts[part], part)
        if unlike is not None:
            yield ReceiptDifference(
                part=part, place=unlike.place, left=unlike.recorded, right=unlike.replayed
            )


def _of_texts(left: Receipt, right: Receipt, lacking: list[str]) -> Iterator[ReceiptDifference]:
    """Compare texts by leaf name; facts only if both receipts contain them."""
    for name in dict.fromkeys([leaf.name for leaf in (*left.leaves, *right.leaves)]):
        both = name in left.numbers and name in right.numbers
        if name == _HASHES or (name.startswith(FACT) and not both):
            continue
        if not both:
            sides = ("a text", "nothing") if name in left.numbers else ("nothing", "a text")
            yield ReceiptDifference(part="text", place=name, left=sides[0], right=sides[1])
            continue
        old, new = _text(left, name), _text(right, name)
        if old is None or new is None:
            lacking.append(name)
            continue
        if name.endswith(_FRAME):
            old, new = _frame(old), _frame(new)
        unlike = in_text(old, new, name)
        if unlike is not None:
            yield ReceiptDifference(part="text", place=unlike.place)


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
    except MissingTextError:
        return None

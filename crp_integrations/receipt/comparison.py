"""Two receipts beside each other.

A number of a leaf or of a candidate means something in one receipt alone; the leaf's name and the
candidate's id mean the same in another. Ids of windows and of decisions, and times, are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, get_args

from pydantic.fields import FieldInfo

from crp_integrations.receipt.leaves import FACT
from crp_integrations.receipt.predicate import CandidateTold, Content, FitTold
from crp_integrations.receipt.predicate_verdict import (
    CANDIDATE,
    LEAF,
    Examined,
    JudgeCallTold,
    PriorTold,
)
from crp_integrations.receipt.reconstruction import (
    MALFORMED,
    LeftOutError,
    Texts,
    content_of,
    malformed,
)
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.replay_records import first, in_text
from crp_integrations.records import Part, Record

Told = dict[str, Any]
# What differs between windows that are alike: ids of windows and decisions, times, and what is
# compared by itself.
_APART: Final[Mapping[type[Part], frozenset[str]]] = {
    CandidateTold: frozenset({"leaf", "ingested_at", "decision"}),
    FitTold: frozenset({"now", "window_number"}),
    PriorTold: frozenset({"window_id", "number"}),
    Examined: frozenset({"signals"}),
    JudgeCallTold: frozenset({"cached", "cost", "milliseconds"}),
}


class Comparable:
    """One receipt's side of a comparison.

    Attributes:
        candidates: without texts, by their ids.
    """

    def __init__(self, receipt: Receipt) -> None:
        """Take a receipt whose content was checked for its shape."""
        self._content = receipt.content
        self._names = [leaf.name for leaf in receipt.leaves]
        self._ids = [candidate["id"] for candidate in self._content["candidates"]]
        self.candidates: dict[str, Told] = {
            candidate["id"]: self._laid(CandidateTold, candidate)
            for candidate in self._content["candidates"]
        }

    def part(self, name: str) -> Any:
        """A part of the content; None where there is none."""
        return self._told(Content.model_fields[name], self._content[name])

    @property
    def salted(self) -> bool:
        """Whether a secret of the session is in the ETag."""
        return bool((self._content["fit"] or {}).get("salted"))

    @property
    def shown(self) -> list[str]:
        """Ids of what the model was shown, in order."""
        envelope, examined = self._content["envelope"], self._content["examined"]
        if envelope is not None:
            return [self._ids[fact["at"]] for fact in envelope["facts"]]
        return [] if examined is None else [passage["id"] for passage in examined["passages"] or ()]

    def _laid(self, kind: type[Part], value: Mapping[str, Any]) -> Told:
        """A part of the content with names and ids instead of numbers."""
        fields, apart = kind.model_fields, _APART.get(kind, ())
        return {n: self._told(fields[n], inner) for n, inner in value.items() if n not in apart}

    def _told(self, field: FieldInfo, value: Any) -> Any:
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
            return [self._laid(kind, item) for item in value]
        return self._laid(kind, value)

    def _named(self, value: Any) -> Any:
        """The name of a leaf, or those of a list with the stretches that are shown of them."""
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
    """The part of content of which a field holds one or several; None for another field."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    return next(filter(None, map(_part_in, get_args(annotation))), None)


# Parts of the content that are compared, in the order of a window.
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


class ComparedReceipts(Record):
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


def diff(left: Receipt, right: Receipt) -> ComparedReceipts:
    """Compare two receipts.

    Raises:
        ReceiptBroken: the content of one is malformed.
    """
    for receipt in (left, right):
        content_of(receipt)
    try:
        return _compared(left, right)
    except MALFORMED as error:
        raise malformed("content", error) from error


def _compared(left: Receipt, right: Receipt) -> ComparedReceipts:
    left_side, right_side = Comparable(left), Comparable(right)
    old, new = left_side.candidates, right_side.candidates
    was, is_ = left_side.shown, right_side.shown
    lacking: list[str] = []
    differences = (*_of_parts(left_side, right_side), *_of_texts(left, right, lacking))
    rescored = tuple(id_ for id_ in old if id_ in new and old[id_] != new[id_])
    return ComparedReceipts(
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
        difference = first(old, new, part)
        if difference is not None:
            yield Unlike(
                part=part,
                place=difference.place,
                left=difference.recorded,
                right=difference.replayed,
            )


def _of_texts(left: Receipt, right: Receipt, lacking: list[str]) -> Iterator[Unlike]:
    """Compare texts by the names of their leaves; facts only where both receipts have them."""
    names = dict.fromkeys([leaf.name for leaf in (*left.leaves, *right.leaves)])
    for name in names:
        here, there = name in left.numbers, name in right.numbers
        if name == _HASHES or (name.startswith(FACT) and not (here and there)):
            continue
        if not (here and there):
            sides = (_A_TEXT, _NOTHING) if here else (_NOTHING, _A_TEXT)
            yield Unlike(part="text", place=name, left=sides[0], right=sides[1])
            continue
        old, new = _text(left, name), _text(right, name)
        if old is None or new is None:
            lacking.append(name)
            continue
        if name.endswith(_FRAME):
            old, new = _frame(old), _frame(new)
        difference = in_text(old, new, name)
        if difference is not None:
            yield Unlike(part="text", place=difference.place)


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

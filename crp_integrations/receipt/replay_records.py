"""Inputs and results of a replay, and the search for the first difference of two values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from crp_integrations.dpe.engine_signals import TOLERANCE
from crp_integrations.dpe.ports import Recogniser, Verifier
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import ReceiptBroken
from crp_integrations.guard.ports import PolicyEngine
from crp_integrations.ports import Embedder, TokenCounter
from crp_integrations.receipt.predicate import Content
from crp_integrations.receipt.window_values import Kind, WithheldSettings, settings_from_content
from crp_integrations.records import Part, Record

# Maximum characters of a value in a difference; longer ones are cut.
_MAX_VALUE_CHARACTERS: Final = 80
_ABSENT: Final = object()
_PLAIN: Final = frozenset({str, int, bool, type(None), list})


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which two values differ.

    Attributes:
        recorded, replayed: values at the place; empty for a text, which is never quoted.
    """

    place: str
    recorded: str = ""
    replayed: str = ""


def first(recorded: Any, replayed: Any, path: str = "") -> Difference | None:
    """The first difference of two JSON values, with fields in the recorded order.

    >>> first({"a": [1, 2]}, {"a": [1, 3]})
    Difference(place='a[1]', recorded='2', replayed='3')
    """
    if recorded is _ABSENT or replayed is _ABSENT:
        return Difference(path, _shown(recorded), _shown(replayed))
    if isinstance(recorded, Mapping) and isinstance(replayed, Mapping):
        for name in (*recorded, *(name for name in replayed if name not in recorded)):
            left, right = recorded.get(name, _ABSENT), replayed.get(name, _ABSENT)
            # Nearly all values are equal, and building the path takes time.
            if type(left) is type(right) and type(left) in _PLAIN and left == right:
                continue
            difference = first(left, right, f"{path}.{name}" if path else str(name))
            if difference:
                return difference
        return None
    if isinstance(recorded, (list, tuple)) and isinstance(replayed, (list, tuple)):
        if recorded == replayed:
            return None
        for at in range(max(len(recorded), len(replayed))):
            left_value = recorded[at] if at < len(recorded) else _ABSENT
            right_value = replayed[at] if at < len(replayed) else _ABSENT
            difference = first(left_value, right_value, f"{path}[{at}]")
            if difference:
                return difference
        return None
    if recorded == replayed and isinstance(recorded, bool) == isinstance(replayed, bool):
        return None
    return Difference(path, _shown(recorded), _shown(replayed))


def in_text(recorded: str, replayed: str, name: str) -> Difference | None:
    r"""The first byte at which two texts differ, and its line, without quoting the texts.

    >>> in_text("a\nbc", "a\nbd", "context")
    Difference(place='context, byte 3 (line 2)', recorded='', replayed='')
    """
    if recorded == replayed:
        return None
    at = next(
        (
            n
            for n, (left, right) in enumerate(zip(recorded, replayed, strict=False))
            if left != right
        ),
        min(len(recorded), len(replayed)),
    )
    byte = len(recorded[:at].encode("utf-8", "surrogatepass"))
    line = recorded.count("\n", 0, at) + 1
    return Difference(f"{name}, byte {byte} (line {line})")


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else text[: _MAX_VALUE_CHARACTERS - 1] + "…"


EQUAL: Final = "equal"
DIFFERS: Final = "differs"
NOT_RUN: Final = "not-run"
# With DIFFERS, the words that page, `verify` and `replay` use for a receipt.
HOLDS: Final = "holds"
BROKEN: Final = "broken"
NOT_RECOMPUTED: Final = "not recomputed"

LIMITS: Final = (
    "Vectors, and scores computed from them before packing, are recorded, not computed again.",
    "The model's text and a judge's replies are recorded; no model is called.",
    "Engines' results on the answer are recorded in millionths; the report is made from those.",
    "Which calls were made and which were repeated is recorded, not decided again.",
    "Calls that split the question or summarised are not in the receipt; their results are.",
    "Parts of scores, the caller's conditions, a person's approval and the budget are recorded.",
)

# Name and value of each thing that rests on the signer's word.
Stated: TypeAlias = tuple[tuple[str, str], ...]

# The first difference (None if there is none), and a remark.
Outcome: TypeAlias = tuple[Difference | None, str]


class NotRun(Exception):
    """A part cannot be replayed with this copy and the available engines; the message says why."""


def recorded_settings(kind: type[Kind], content: Content) -> Kind:
    """The recorded settings; raises `NotRun` if the receipt withholds some of them."""
    try:
        return settings_from_content(kind, content.settings)
    except WithheldSettings as error:
        raise NotRun(str(error)) from None


class Differs(Exception):
    """A part cannot be computed from the recorded values.

    Attributes:
        difference: the place where it fails.
    """

    def __init__(self, difference: Difference) -> None:
        super().__init__(difference.place)
        self.difference = difference


class ReplayedPart(Part):
    """Result of one part of a replay.

    Attributes:
        name: `digest`, `leaves`, `budget`, `selection`, `context`, `prompt`, `counts`, `answer`,
            `examination`, `judge` if one was configured, `policy`, `catalogue` or `signals`.
        recorded, replayed: values at the place; empty for a text.
    """

    name: str
    state: str
    place: str = ""
    recorded: str = ""
    replayed: str = ""
    why: str = ""


class Replayed(Record):
    """Result of a replay.

    Attributes:
        word: `holds`, `differs`, or `not recomputed` if nothing differs but parts are lacking.
        lacking: names of the parts that decide whether it holds, and were not run.
        stated: name and value of each thing that rests on the signer's word alone.
        limits: what a replay cannot check.
    """

    SCHEMA = "receipt-replay/1"

    receipt_id: str
    same: bool
    word: str
    lacking: tuple[str, ...] = ()
    parts: tuple[ReplayedPart, ...]
    stated: Stated = ()
    limits: tuple[str, ...] = LIMITS

    @property
    def whole(self) -> bool:
        """Whether digest, context, prompt, report, judge and policies, if any, are equal."""
        return self.word == HOLDS

    def part(self, name: str) -> ReplayedPart:
        """The part with this name."""
        return {part.name: part for part in self.parts}[name]

    @property
    def not_run(self) -> tuple[str, ...]:
        """Names of the parts that were not run."""
        return tuple(part.name for part in self.parts if part.state == NOT_RUN)

    def require(self) -> None:
        """Raise `ReceiptBroken` if a part differs."""
        for part in self.parts:
            if part.state == DIFFERS:
                message = f"recorded {part.recorded}, replayed {part.replayed}"
                raise ReceiptBroken(
                    f"{part.name}: {part.place}",
                    message if part.recorded else "differs in a replay",
                )


@dataclass(frozen=True, slots=True)
class ReplayTools:
    """Available engines and settings; None for each that is not available.

    Attributes:
        counter: token counter of the receipt's model.
        envelope, dpe: the operator's settings, needed if the receipt withholds weights.
        tolerance: maximum difference of a signal from an engine that is run again, in millionths.
    """

    counter: TokenCounter | None = None
    embedder: Embedder | None = None
    verifier: Verifier | None = None
    policy: PolicyEngine | None = None
    recognisers: tuple[Recogniser, ...] = ()
    envelope: EnvelopeSettings | None = None
    dpe: DpeSettings | None = None
    tolerance: int = TOLERANCE


NOTHING: Final = ReplayTools()

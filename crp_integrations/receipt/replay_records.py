"""What a replay is made with, what each part of it comes to, and where two values differ first."""

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
from crp_integrations.receipt.window_values import Kind, Withheld, settings_told
from crp_integrations.records import Part, Record

_LONGEST: Final = 80
_ABSENT: Final = object()
_PLAIN: Final = frozenset({str, int, bool, type(None), list})


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which two values differ.

    Attributes:
        recorded, replayed: what stands there; empty for a text, which is not told.
    """

    place: str
    recorded: str = ""
    replayed: str = ""


def first(recorded: Any, replayed: Any, path: str = "") -> Difference | None:
    """The first difference of two JSON values, fields in the recorded order.

    >>> first({"a": [1, 2]}, {"a": [1, 3]})
    Difference(place='a[1]', recorded='2', replayed='3')
    """
    if recorded is _ABSENT or replayed is _ABSENT:
        return Difference(path, _shown(recorded), _shown(replayed))
    if isinstance(recorded, Mapping) and isinstance(replayed, Mapping):
        for name in (*recorded, *(name for name in replayed if name not in recorded)):
            left, right = recorded.get(name, _ABSENT), replayed.get(name, _ABSENT)
            # Nearly all are equal, and equal values need no path.
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
    r"""The first byte at which two texts differ, with its line, but without their words.

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
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "\u2026"


EQUAL: Final = "equal"
DIFFERS: Final = "differs"
NOT_RUN: Final = "not-run"

LIMITS: Final = (
    "Vectors, and scores made from them before the packing, are recorded, not computed again.",
    "The model's text is recorded, and a judge's replies are; no model is asked.",
    "What engines said of the answer is recorded in millionths, and the report is made from that.",
    "Which calls were made and which were made again is told, and not decided again.",
    "Calls that took the question apart or summarised are not in it; what came of them is.",
    "Sources, parts of scores, the policy in force and what the caller accepted are told.",
    "So are a person's approval, the safety budget, the model that answered, and versions.",
)

# The first difference, None for none, and a remark.
Outcome: TypeAlias = tuple[Difference | None, str]


class NotRun(Exception):
    """A part that cannot be run with this copy and the engines at hand; says why."""


def told_settings(kind: type[Kind], content: Content) -> Kind:
    """The settings in force."""
    try:
        return settings_told(kind, content.settings)
    except Withheld as error:
        raise NotRun(str(error)) from None


class Differs(Exception):
    """A part that cannot be made from what is recorded.

    Attributes:
        difference: where that shows.
    """

    def __init__(self, difference: Difference) -> None:
        super().__init__(difference.place)
        self.difference = difference


class Again(Part):
    """One part of a replay.

    Attributes:
        name: `budget`, `selection`, `context`, `prompt`, `counts`, `answer`, `examination`,
            `judge` where one was configured, `policy`, `catalogue` or `signals`.
        recorded, replayed: what stands there, empty where it is a text.
    """

    name: str
    state: str
    place: str = ""
    recorded: str = ""
    replayed: str = ""
    why: str = ""


class Replayed(Record):
    """What a replay came to.

    Attributes:
        whole: context, prompt, report, judge and policies were run, as far as the window had them.
        limits: what no replay shows.
    """

    SCHEMA = "receipt-replay/1"

    receipt_id: str
    same: bool
    whole: bool
    parts: tuple[Again, ...]
    limits: tuple[str, ...] = LIMITS

    def part(self, name: str) -> Again:
        """A part by its name."""
        return {part.name: part for part in self.parts}[name]

    @property
    def not_run(self) -> tuple[str, ...]:
        """Names of the parts that were not run."""
        return tuple(part.name for part in self.parts if part.state == NOT_RUN)

    @property
    def summary(self) -> str:
        """The outcome in one line, with the parts that were not run."""
        verdict = "replays" if self.same else "does not replay"
        if self.same and not self.whole:
            verdict = "replays as far as it was run"
        return f"{verdict}; not run: {', '.join(self.not_run)}" if self.not_run else verdict

    def require(self) -> None:
        """Refuse a receipt that something differs from."""
        for part in self.parts:
            if part.state == DIFFERS:
                message = f"recorded {part.recorded}, replayed {part.replayed}"
                raise ReceiptBroken(
                    f"{part.name}: {part.place}",
                    message if part.recorded else "differs in a replay",
                )


@dataclass(frozen=True, slots=True)
class ReplayTools:
    """Engines and settings at hand; None for what is not.

    Attributes:
        counter: of the receipt's model.
        envelope, dpe: settings of the operator, where the receipt withholds weights.
        tolerance: most that a signal may differ where an engine is asked again, millionths.
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

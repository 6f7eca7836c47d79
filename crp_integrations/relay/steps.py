"""The return values of a Turn: the next call to make, or how the window ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from crp_integrations.dpe.judge.inquiry import JudgeReply
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import CRPError, EnvelopeUnchanged, ModelError, SafetyHalt
from crp_integrations.headers import names
from crp_integrations.headers import refusal_bodies as bodies
from crp_integrations.messages import Message, ModelCall, Reply, Usage
from crp_integrations.ports import Silent, Tracer
from crp_integrations.relay.budget import Payer
from crp_integrations.relay.judge import Judge
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary import HaltReason, Purpose

# Name of the trace step around a judge's call.
JUDGED: Final = "dpe.judge"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Call a model and pass its reply to `receive`.

    Attributes:
        envelope: the envelope in the call's messages; None for a preparing call without facts,
            such as one that decomposes the question.
    """

    call: ModelCall
    envelope: Envelope | None = None

    @property
    def purpose(self) -> Purpose:
        """The purpose of the call."""
        return self.call.purpose

    @property
    def model(self) -> str:
        """The model to call."""
        return self.call.model

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages to send."""
        return self.call.messages


@dataclass(frozen=True, slots=True)
class FittedDispatch(Dispatch):
    """A dispatch for the answer.

    Attributes:
        crowded_out: whether the model's context limit leaves less than `least_context_tokens` for
            the facts found.
    """

    envelope: Envelope
    crowded_out: bool = False


@dataclass(frozen=True, slots=True)
class JudgeDispatch(Dispatch):
    """A call of the judge; its reply goes to `receive` as a `JudgeReply`.

    Attributes:
        judge: makes the call; a judge without its own model uses the driver's.
        tracer: opens the span around the call; an `Observer` also receives a named judge's call.
    """

    judge: Judge | None = None
    payer: Payer = Payer()  # noqa: RUF009 - it is frozen
    tracer: Tracer = Silent()  # noqa: RUF009 - it has no state
    keep: bool = True


@dataclass(frozen=True, slots=True)
class Release:
    """The answer was examined and sealed and may be shown."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Halt:
    """The answer was examined and sealed and must not be shown.

    Attributes:
        reason: one of the halt reasons of a 451 body.
        answer: the withheld answer, for the operator only.
        directive: policy directive that withheld it; empty for another reason.
        value: value found, which does not meet the directive.
        unread: how much of the answer was not judged, and why; empty if that was not the reason.
    """

    reason: str
    answer: Answer
    directive: str = ""
    value: str = ""
    unread: str = ""


@dataclass(frozen=True, slots=True)
class NotModified:
    """The caller's envelope is still valid; nothing was selected, packed or dispatched.

    Spec: CRP-SPEC-003 §11.2

    Attributes:
        headers: headers of the window released with it, and `CRP-Context-Cache-Status: HIT`.
    """

    etag: str
    headers: dict[str, str]
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Refusal:
    """There is no answer, and the window was sealed as failed, cancelled or refused."""

    error: CRPError
    headers: dict[str, str]
    envelope: Envelope | None = None

    @property
    def status(self) -> int:
        """The HTTP status that a gateway answers with."""
        return self.error.status_hint


Outcome: TypeAlias = Release | Halt | NotModified | Refusal


class Drivable(Protocol):
    """What a driver can run: a Turn, or anything composed of Turns."""

    def begin(self) -> Step:
        """The first step."""
        ...

    def receive(self, result: Result) -> Step:
        """The step after a reply, or after the outcomes of a Fan's turns in their order."""
        ...

    def fail(self, error: BaseException) -> Outcome:
        """End the window because of an error or a cancellation."""
        ...


@dataclass(frozen=True, slots=True)
class Fan:
    """Run several turns concurrently and pass their outcomes to `receive`, in this order."""

    turns: tuple[Drivable, ...]


Step: TypeAlias = Dispatch | Fan | Outcome
Result: TypeAlias = Reply | JudgeReply | tuple[Outcome, ...]


def total_usage(usages: Iterable[Usage]) -> Usage:
    """The sum of usages; the cost is known only if every usage has one.

    Spec: CRP-SPEC-005 §19.3
    """
    each = list(usages)
    costs = [usage.cost_usd for usage in each if usage.cost_usd is not None]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in each),
        completion_tokens=sum(usage.completion_tokens for usage in each),
        cost_usd=sum(costs) if each and len(costs) == len(each) else None,
    )


def outcome_status(outcome: Outcome) -> int:
    """The HTTP status of an outcome.

    Spec: related facts §3
    """
    match outcome:
        case Release():
            return 200
        case NotModified():
            return EnvelopeUnchanged.status_hint
        case Halt():
            return SafetyHalt.status_hint
        case Refusal(error=error):
            return error.status_hint


def outcome_body(outcome: Outcome) -> bodies.Body | None:
    """The JSON body for a caller whose answer was withheld or refused; None for other outcomes.

    Spec: CRP-SPEC-003 §8.4; related facts §3
    """
    match outcome:
        case Halt(reason=reason, answer=withheld, directive=directive, value=value, unread=unread):
            return bodies.halt_body(
                HaltReason(reason),
                directive=directive,
                value=unread or value,
                session_id=withheld.session_id,
                audit_trail_uri=withheld.headers.get(names.TRAIL_URI, ""),
            )
        case Refusal(error=error, headers=headers, envelope=envelope):
            return bodies.refusal_body(
                error,
                envelope,
                session_id=headers.get(names.SESSION_ID, ""),
                audit_trail_uri=headers.get(names.TRAIL_URI, ""),
            )
        case _:
            return None


def answer_of(outcome: Outcome) -> Answer:
    """The answer of a released window; other outcomes raise their error."""
    match outcome:
        case Release(answer=released):
            return released
        case Halt(reason=reason, answer=withheld, directive=directive, value=value, unread=unread):
            note = f"; {unread}" if unread else ""
            raise SafetyHalt(
                f"the answer of window {withheld.window_id} was withheld: {reason}{note}",
                report=withheld.report,
                trail=withheld.window_id,
                reason=reason,
                session_id=withheld.session_id,
                directive=directive,
                value=value,
            )
        case Refusal(error=error):
            raise error
        case NotModified(etag=etag, headers=headers):
            raise EnvelopeUnchanged(
                f"envelope {etag} is not modified, so no model was asked; its answer still holds",
                etag=etag,
                headers=headers,
            )


def own_error(error: BaseException) -> CRPError:
    """The error, or a `ModelError` that only names a foreign one, whose text may quote a prompt."""
    if isinstance(error, CRPError):
        return error
    return ModelError(f"the model call ended with {type(error).__name__}")

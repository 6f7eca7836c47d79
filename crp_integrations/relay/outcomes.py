"""The one table from outcomes to statuses and exceptions."""

from __future__ import annotations

from crp_integrations.errors import EnvelopeUnchanged, SafetyHalt
from crp_integrations.headers import names, refusal_bodies
from crp_integrations.relay.records import Answer
from crp_integrations.relay.steps import Halt, NotModified, Outcome, Refusal, Release
from crp_integrations.vocabulary import HaltReason


def status(outcome: Outcome) -> int:
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


def body(outcome: Outcome) -> refusal_bodies.Body | None:
    """What a caller is told of an answer that he does not get, to be printed as JSON.

    Spec: CRP-SPEC-003 §8.4; related facts §3

    Returns:
        None for an answer, and for a 304, which has no body.
    """
    match outcome:
        case Halt(reason=reason, answer=withheld):
            return refusal_bodies.halt_body(
                HaltReason(reason),
                session_id=withheld.session_id,
                audit_trail_uri=withheld.headers.get(names.TRAIL_URI, ""),
            )
        case Refusal(error=error, headers=headers, envelope=envelope):
            return refusal_bodies.refusal_body(
                error,
                envelope,
                session_id=headers.get(names.SESSION_ID, ""),
                audit_trail_uri=headers.get(names.TRAIL_URI, ""),
            )
        case _:
            return None


def answer(outcome: Outcome) -> Answer:
    """The answer of a released window.

    Raises:
        SafetyHalt: the window was halted; carries the report and the window's id.
        CRPError: the refusal's error.
        EnvelopeUnchanged: the outcome is a 304, which holds no answer.
    """
    match outcome:
        case Release(answer=released):
            return released
        case Halt(reason=reason, answer=withheld):
            raise SafetyHalt(
                f"the answer of window {withheld.window_id} was withheld: {reason}",
                report=withheld.report,
                trail=withheld.window_id,
                reason=reason,
                session_id=withheld.session_id,
            )
        case Refusal(error=error):
            raise error
        case NotModified(etag=etag, headers=headers):
            raise EnvelopeUnchanged(
                f"envelope {etag} is not modified, so no model was asked; its answer still holds",
                etag=etag,
                headers=headers,
            )

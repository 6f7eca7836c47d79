"""What goes back to a caller: a status, headers and a body, or events; refusals by one table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from pydantic import BaseModel

from crp_integrations.errors import CRPError, QualityUnreachable, StaleTip
from crp_integrations.gateway.limits import Busy
from crp_integrations.gateway.records import ErrorObject, Refused
from crp_integrations.headers.refusal_bodies import (
    Body,
    HaltBody,
    InheritanceBody,
    PolicySyntaxBody,
)
from crp_integrations.relay import steps
from crp_integrations.relay.steps import Halt, NotModified, Outcome, Refusal

JSON: Final = "application/json"
INTERNAL: Final = 500
# OpenAI's words for a status.
TYPES: Final = MappingProxyType(
    {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        409: "conflict_error",
        424: "failed_dependency_error",
        429: "rate_limit_error",
        451: "safety_halt",
    }
)
# Clients of OpenAI ask again by themselves after these statuses, which changes nothing here.
IN_VAIN: Final = (StaleTip, QualityUnreachable)
NO_RETRY: Final = MappingProxyType({"X-Should-Retry": "false"})


@dataclass(frozen=True, slots=True)
class Answered:
    """A response.

    Attributes:
        events: the body in pieces as they come; None for `body`.
        close: lets go of what the events come from, also when nobody has asked for one.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    media_type: str = JSON
    events: AsyncIterator[bytes] | None = None
    close: Callable[[], Awaitable[None]] | None = None


def record(
    said: BaseModel, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Answered:
    """A record of ours as JSON."""
    return Answered(status, headers or {}, said.model_dump_json(by_alias=True).encode())


def refusal(
    status: int,
    code: str,
    message: str,
    headers: Mapping[str, str] | None = None,
) -> Answered:
    """A refusal of the gateway's own."""
    said = Refused(error=ErrorObject(message=message, type=_type(status), code=code), status=status)
    return _refused(status, said, headers or {})


def of_error(error: CRPError) -> Answered:
    """The refusal of an error that no window was sealed for."""
    return of_outcome(Refusal(error, {}))


def of_outcome(outcome: Outcome) -> Answered:
    """What a caller gets of a window that he gets no answer of.

    Spec: related facts §3
    """
    status, body = steps.outcome_status(outcome), steps.outcome_body(outcome)
    match outcome:
        case NotModified(headers=headers):
            return Answered(status, headers)
        case Halt(answer=withheld):
            headers = withheld.headers
        case Refusal(headers=headers, error=error):
            headers = dict(headers)
            if isinstance(error, IN_VAIN):
                headers |= NO_RETRY
            if isinstance(error, Busy):
                headers["Retry-After"] = str(error.retry_seconds)
        case _:
            raise TypeError(f"{type(outcome).__name__} is no refusal")
    if body is None:
        raise TypeError(f"{type(outcome).__name__} has no body")
    return _refused(status, _said(body, status), {**headers, **body.headers})


def _said(body: Body, status: int) -> Refused:
    fields = body.model_dump(exclude_none=True)
    fields = {name: value for name, value in fields.items() if name in Refused.model_fields}
    fields |= {"status": status, "error": _error(body, status)}
    return Refused.model_validate(fields)


def _error(body: Body, status: int) -> ErrorObject:
    if isinstance(body, HaltBody):
        code = str(body.crp_halt_reason)
        message = f"the answer was withheld: {code}; {body.retry_condition}"
    else:
        code = body.error.replace(" ", "_")
        message = body.message or "the gateway or its upstream failed; its log says more"
    param = None
    if isinstance(body, PolicySyntaxBody | InheritanceBody):
        param = "CRP-Safety-Policy"
    return ErrorObject(message=message, type=_type(status), code=code, param=param)


def _refused(status: int, said: Refused, headers: Mapping[str, str]) -> Answered:
    if status == 401:
        headers = {**headers, "WWW-Authenticate": "Bearer"}
    return Answered(status, headers, said.model_dump_json(exclude_none=True).encode())


def _type(status: int) -> str:
    return TYPES.get(status, "invalid_request_error" if status < INTERNAL else "server_error")

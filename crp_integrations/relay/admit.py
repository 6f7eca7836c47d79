"""What is checked before anything is read: the shape of a request and of its session id."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from crp_integrations.errors import AccessDenied, RequestError
from crp_integrations.relay.records import Request
from crp_integrations.relay.settings import Settings, first_problem
from crp_integrations.session.ids import SESSION_ID


def admit(**fields: Any) -> Request:
    """Make a request of what a caller gave.

    Raises:
        RequestError: a field has no usable value; names the field and what is wanted.
    """
    query = fields.get("query")
    if isinstance(query, str) and not query.strip():
        raise RequestError("query is empty; ask a question")
    try:
        request = Request(**fields)
    except ValidationError as error:
        field, problem = first_problem(error)
        raise RequestError(f"{field or 'request'} is not usable: {problem}") from error
    if request.session_id:
        checked_session(request.session_id)
    return request


def admit_depth(request: Request, settings: Settings) -> None:
    """Stop a call of agents that call agents without end.

    Spec: CRP-SPEC-005 §17 (decision D5)

    Raises:
        AccessDenied: the request comes from deeper than the settings allow.
    """
    most = settings.dpe.amplifiers.stop_above
    if request.loop_depth > most:
        raise AccessDenied(
            f"loop depth {request.loop_depth} is above {most}, so the call is stopped"
        )


def checked_session(session_id: str) -> str:
    """A session id as it is.

    Raises:
        RequestError: it does not follow the syntax of one.
    """
    if not SESSION_ID.fullmatch(session_id):
        raise RequestError(
            f"session_id {session_id!r:.60} is not crp_sess_ and 16 to 32 letters or digits"
        )
    return session_id

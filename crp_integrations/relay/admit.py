"""What is checked before anything is read: the shape of a request and of its session id."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError

from crp_integrations.errors import AccessDenied, RequestError
from crp_integrations.relay.records import Request
from crp_integrations.relay.settings import Settings, first_problem
from crp_integrations.session.records import SESSION_ID

# In the place of the checker's own words, by the kind of problem.
_WANTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "string_type": "wanted a text",
        "string_too_short": "it is empty",
        "int_type": "wanted a whole number",
        "int_parsing": "wanted a whole number",
        "int_from_float": "wanted a whole number",
    }
)


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
        raise RequestError(_said(error)) from error
    if request.session_id:
        checked_session(request.session_id)
    return request


def _said(error: ValidationError) -> str:
    """What is wrong with the first field, in words of this package.

    A value is shown only where it stands for one of a few words: another may be a fact's text.
    """
    field, problem = first_problem(error)
    first = error.errors(include_url=False)[0]
    kind, seen = first["type"], first["input"]
    if kind == "extra_forbidden":
        near = get_close_matches(field, Request.model_fields, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        return f"{field[:60]!r} is no argument of a question{meant}"
    shown = f" {seen!r:.40}" if kind in ("enum", "literal_error") and isinstance(seen, str) else ""
    if kind == "model_type":
        problem = f"wanted {first.get('ctx', {}).get('class_name', 'an object')}"
    wanted = _WANTED.get(kind, problem).replace("Input should be", "wanted")
    return f"{field or 'request'}{shown} is not usable: {wanted}"


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

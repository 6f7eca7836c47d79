"""An admitted request, the response to it, and its line in the access log."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import traceback
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import (
    CRPError,
    EngineError,
    LimitReached,
    ModelError,
    QualityUnreachable,
    RequestError,
    StaleTip,
    StoreBusy,
)
from crp_integrations.gateway.admission import GatewayBusy, GatewayMetrics, Key
from crp_integrations.gateway.records import ErrorObject, Refused
from crp_integrations.gateway.settings import GatewaySettings
from crp_integrations.gateway.tenants import StoreProbe, Upstream
from crp_integrations.guard.decisions import Subject
from crp_integrations.headers import names
from crp_integrations.headers.refusal_bodies import (
    Body,
    HaltBody,
    InheritanceBody,
    PolicySyntaxBody,
)
from crp_integrations.relay import steps
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.steps import Halt, NotModified, Outcome, Refusal, Release
from crp_integrations.seals import sha256

JSON: Final = "application/json"
INTERNAL_ERROR: Final = 500
# OpenAI's error types by status.
ERROR_TYPES: Final = MappingProxyType(
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
# OpenAI clients would retry after the statuses of these errors, although the result cannot change.
NOT_RETRYABLE: Final = (StaleTip, QualityUnreachable, LimitReached)
NO_RETRY: Final = MappingProxyType({"X-Should-Retry": "false"})
# Upstream statuses below 500 after which a retry may succeed.
PASSING: Final = frozenset({408, 429})
# Seconds after which a store that was busy, full or away is asked again.
STORE_RETRY_SECONDS: Final = 5
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]{1,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class GatewayResponse:
    """A response.

    Attributes:
        events: pieces of a streamed body; None if `body` is sent.
        close: closes the source of the events, even if none was read.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    media_type: str = JSON
    events: AsyncIterator[bytes] | None = None
    close: Callable[[], Awaitable[None]] | None = None


def json_response(
    record: BaseModel, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> GatewayResponse:
    """A response with a record as JSON."""
    return GatewayResponse(status, headers or {}, record.model_dump_json(by_alias=True).encode())


def refusal_response(
    status: int,
    code: str,
    message: str,
    headers: Mapping[str, str] | None = None,
) -> GatewayResponse:
    """A refusal by the gateway itself."""
    refused = Refused(
        error=ErrorObject(message=message, type=_error_type(status), code=code), status=status
    )
    return _encode_refusal(status, refused, headers or {})


def error_response(error: CRPError, *, paid: bool = False) -> GatewayResponse:
    """The refusal for an error without a sealed window.

    Args:
        paid: whether a model has begun to answer, so that a retry would pay it again.
    """
    return outcome_response(Refusal(error, {}), paid=paid)


def outcome_response(outcome: Outcome, *, paid: bool = False) -> GatewayResponse:
    """The response for a window that releases no answer.

    Spec: related facts §3

    Args:
        paid: as for `error_response`.
    """
    status, body = steps.outcome_status(outcome), steps.outcome_body(outcome)
    match outcome:
        case NotModified(headers=headers):
            return GatewayResponse(status, headers)
        case Halt(answer=withheld):
            headers = withheld.headers
        case Refusal(headers=headers, error=error):
            headers = {**headers, **_retry_headers(error), **(NO_RETRY if paid else {})}
        case _:
            raise TypeError(f"{type(outcome).__name__} is not a refusal")
    if body is None:
        raise TypeError(f"{type(outcome).__name__} has no body")
    cause = outcome.error if isinstance(outcome, Refusal) else None
    refused = _refusal_record(body, status, cause)
    return _encode_refusal(status, refused, {**headers, **body.headers})


def _retry_headers(error: CRPError) -> Mapping[str, str]:
    """Headers that say when to retry, or that a retry is useless."""
    if isinstance(error, GatewayBusy):
        return {"Retry-After": str(error.retry_seconds)}
    if isinstance(error, StoreBusy):
        return {"Retry-After": str(STORE_RETRY_SECONDS)}
    if isinstance(error, NOT_RETRYABLE):
        return NO_RETRY
    if not isinstance(error, ModelError | EngineError):
        return {}
    status, after = error.provider_status, error.retry_after
    headers = {"Retry-After": after} if _HEADER_VALUE.fullmatch(after) else {}
    passing = status is None or status in PASSING or status >= INTERNAL_ERROR
    return headers if passing else {**headers, **NO_RETRY}


def _refusal_record(body: Body, status: int, error: CRPError | None) -> Refused:
    fields = body.model_dump(exclude_none=True)
    fields = {name: value for name, value in fields.items() if name in Refused.model_fields}
    fields |= {"status": status, "error": _error_object(body, status, error)}
    return Refused.model_validate(fields)


def _error_object(body: Body, status: int, error: CRPError | None) -> ErrorObject:
    """The upstream's own error if the caller can act on it, else the gateway's."""
    refusal = error.refusal if isinstance(error, ModelError) and status < INTERNAL_ERROR else None
    if refusal is not None:
        return ErrorObject(**{**refusal, "type": refusal["type"] or _error_type(status)})
    if isinstance(body, HaltBody):
        code = str(body.crp_halt_reason)
        named = f" ({body.directive}, found {body.value})" if body.directive else ""
        message = f"the answer was withheld: {code}{named}; {body.retry_condition}"
    else:
        code = body.error.replace(" ", "_")
        message = body.message or "the gateway or its upstream failed; its log says more"
    param = error.param if isinstance(error, RequestError) else None
    if isinstance(body, PolicySyntaxBody | InheritanceBody):
        param = "CRP-Safety-Policy"
    return ErrorObject(message=message, type=_error_type(status), code=code, param=param)


def _encode_refusal(status: int, refused: Refused, headers: Mapping[str, str]) -> GatewayResponse:
    if status == 401:
        headers = {**headers, "WWW-Authenticate": "Bearer"}
    fields = refused.model_dump(mode="json", exclude_none=True)
    # OpenAI clients expect all four fields of an error, so None values stay.
    fields["error"] = refused.error.model_dump(mode="json")
    return GatewayResponse(status, headers, json.dumps(fields, separators=(",", ":")).encode())


def _error_type(status: int) -> str:
    return ERROR_TYPES.get(
        status, "invalid_request_error" if status < INTERNAL_ERROR else "server_error"
    )


_LOG: Final = logging.getLogger("crp_integrations.gateway")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
# Names of a window's outcomes in metrics and logs.
OUTCOME_NAMES: Final = {
    Release: "released",
    Halt: "halted",
    NotModified: "unmodified",
    Refusal: "refused",
}


@dataclass(slots=True)
class LogEntry:
    """The ids that the access log records of a request, besides its route and status.

    Attributes:
        paid: whether a model has begun to answer; not logged.

    Spec: CRP-SPEC-003 §16.1
    """

    session_id: str = ""
    window_id: str = ""
    fact_ids: list[str] = field(default_factory=list)
    outcome: str = ""
    paid: bool = False

    def pay(self) -> None:
        """Note that a model has begun to answer."""
        self.paid = True

    def facts(self, ids: Iterable[str]) -> None:
        """Record facts that were returned or changed.

        An id that a caller chose may be any text, so the log gets its hash.
        """
        self.fact_ids += [id_ if _UUID.fullmatch(id_) else sha256(id_) for id_ in ids]

    def envelope(self, envelope: Envelope | None) -> None:
        """Record the facts of an envelope."""
        if envelope is not None:
            self.facts(fact.fact_id for fact in envelope.facts)


def log_failure(request_id: str, error: CRPError) -> None:
    """Log why a request failed: for status 500 or above, and for every upstream failure."""
    if error.status_hint >= INTERNAL_ERROR or isinstance(error, ModelError):
        # Without the provider's words, which may quote the prompt.
        sentence = Exception.__str__(error)
        _LOG.warning("request %s: %s: %s", request_id, type(error).__name__, sentence)


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """An admitted request.

    Attributes:
        headers: unchanged headers, decoded as Latin-1.
        query: query parameters, each name once.
        path: parameters of the path.
        body: the whole body; empty for a request without one.
        relay: relay of the key's tenant; every read and write goes through it.
        probe: asks the store whether it answers.
        holds: whether a current key gives a subject all of its roles.
    """

    request_id: str
    created: int
    headers: Sequence[tuple[str, str]]
    query: Mapping[str, str]
    path: Mapping[str, str]
    body: bytes
    key: Key
    relay: Relay
    upstream: Upstream
    models: tuple[str, ...]
    settings: GatewaySettings
    holds: Callable[[Subject], bool]
    metrics: GatewayMetrics
    probe: StoreProbe
    log_entry: LogEntry

    def note(self, outcome: Outcome) -> None:
        """Record a window's outcome in metrics and log."""
        self.log_entry.outcome = OUTCOME_NAMES[type(outcome)]
        self.metrics.outcome(self.log_entry.outcome)
        match outcome:
            case Release(answer=answer) | Halt(answer=answer):
                self.log_entry.session_id, self.log_entry.window_id = (
                    answer.session_id,
                    answer.window_id,
                )
                self.log_entry.envelope(answer.envelope)
                self.metrics.tokens("prompt", answer.reply.usage.prompt_tokens)
                self.metrics.tokens("completion", answer.reply.usage.completion_tokens)
            case NotModified(envelope=envelope):
                self.log_entry.envelope(envelope)
            case Refusal(error=error, headers=headers, envelope=envelope):
                self.log_entry.session_id = headers.get(names.SESSION_ID, self.log_entry.session_id)
                self.log_entry.envelope(envelope)
                log_failure(self.request_id, error)

    def whole(self, name: str, default: int, *, least: int = 0, most: int) -> int:
        """A query parameter as an integer from `least` to `most`."""
        text = self.query.get(name)
        if text is None:
            return default
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else -1
        if not least <= number <= most:
            wanted = f"a whole number from {least} to {most}"
            raise RequestError(f"{name} is {text!r:.40}, wanted {wanted}")
        return number

    def only(self, *names: str) -> None:
        """Raise if the address has other query parameters than these."""
        for name in self.query:
            if name not in names:
                wanted = ", ".join(names) or "none"
                raise RequestError(f"unknown query parameter {name!r:.40}; wanted {wanted}")


ACCESS: Final = logging.getLogger("crp_integrations.gateway.access")
# Logged as the status if the caller disconnected; nginx uses the same number.
CLIENT_GONE: Final = 499
NOT_MODIFIED: Final = 304
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_SAFE: Final = re.compile(r"[\x20-\x7e]*", re.ASCII)


@dataclass(slots=True)
class HttpExchange:
    """A running request and its response.

    Attributes:
        send_seconds: maximum seconds that sending one piece of the response may take.
        key: None before it was checked, or if none is needed.
        status: status of the response once it was sent, 0 before.
        sent: whether the response is complete.
    """

    scope: Scope
    receive: Receive
    send: Send
    send_seconds: float
    request_id: str = ""
    log_entry: LogEntry = field(default_factory=LogEntry)
    key: Key | None = None
    status: int = 0
    sent: bool = False

    def __post_init__(self) -> None:
        self.request_id = _request_id(self.scope)

    @property
    def method(self) -> str:
        """The method; `OTHER` for an unknown one, so that callers cannot create labels."""
        method = str(self.scope["method"])
        return method if method in METHODS else "OTHER"

    async def answer(self, answered: GatewayResponse) -> None:
        """Send a response; abort if the caller is too slow to receive a piece."""
        try:
            if answered.status == CLIENT_GONE:
                self.status = CLIENT_GONE
                return
            head = _encode_headers(answered, self.request_id)
            await self._timed(
                {"type": "http.response.start", "status": answered.status, "headers": head}
            )
            self.status = answered.status
            if answered.events is not None:
                async for piece in answered.events:
                    await self._timed(
                        {"type": "http.response.body", "body": piece, "more_body": True}
                    )
            self.sent = True
            await self._timed({"type": "http.response.body", "body": answered.body})
        finally:
            if isinstance(answered.events, AsyncGenerator):
                await answered.events.aclose()
            if answered.close is not None:
                await answered.close()

    async def fail(self, error: Exception) -> None:
        """Send the response for an error; details of a 5xx go only to the log."""
        if not isinstance(error, CRPError):
            # Log only the traceback, since a library's message may quote a text.
            where = "".join(traceback.format_tb(error.__traceback__))
            _LOG.error("request %s: %s\n%s", self.request_id, type(error).__name__, where)
        else:
            log_failure(self.request_id, error)
        if self.status:
            # The status is sent already, so only cutting the connection shows the failure.
            self._abort()
        elif isinstance(error, CRPError):
            await self.answer(error_response(error, paid=self.log_entry.paid))
        else:
            headers = NO_RETRY if self.log_entry.paid else {}
            message = "the gateway failed; its log says more"
            await self.answer(refusal_response(500, "internal_error", message, headers))

    def log(self, route: str, seconds: float) -> None:
        """Write one line with ids and numbers, but no text.

        Spec: CRP-SPEC-003 §16.1
        """
        log_entry = self.log_entry
        fields = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request": self.request_id,
            "method": self.method,
            "route": route,
            "status": self.status,
            "ms": round(seconds * 1000, 1),
            "key": self.key.key_id if self.key else "",
            "session": log_entry.session_id,
            "window": log_entry.window_id,
            "outcome": log_entry.outcome,
            "facts": log_entry.fact_ids,
        }
        ACCESS.info("%s", json.dumps(fields))

    async def _timed(self, message: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(self.send_seconds):
                await self.send(message)
        except TimeoutError:
            self._abort()
            raise asyncio.CancelledError("the caller took too long") from None

    def _abort(self) -> None:
        """Cut the connection, so that a partial response cannot pass for a complete one."""
        abort = (self.scope.get("state") or {}).get("abort")
        if abort is not None:
            abort()


def _request_id(scope: Scope) -> str:
    """The caller's X-Request-Id if it has only plain characters, else a new id."""
    values = [value for name, value in scope["headers"] if name.lower() == b"x-request-id"]
    text = values[0].decode("latin-1") if len(values) == 1 else ""
    return text if _REQUEST_ID.fullmatch(text) else f"req_{secrets.token_hex(8)}"


def _encode_headers(answered: GatewayResponse, request_id: str) -> list[tuple[bytes, bytes]]:
    headers = {
        names.PROTOCOL: names.PROTOCOL_VERSION,
        **answered.headers,
        "X-Request-Id": request_id,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    if answered.status != NOT_MODIFIED:
        headers["Content-Type"] = answered.media_type
        if answered.events is None:
            headers["Content-Length"] = str(len(answered.body))
    for name, value in headers.items():
        if not _SAFE.fullmatch(value):
            raise RuntimeError(f"header {name} would not be printable ASCII")
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]

"""One ASGI endpoint per path: admission, rate, body limits, then the operation.

If the caller disconnects, the work is cancelled and its window sealed. Logs contain only ids.

Spec: CRP-SPEC-003 §16.1
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from crp_integrations.errors import CRPError, RequestError, TokenRefused
from crp_integrations.gateway import responses
from crp_integrations.gateway.admission import (
    ConcurrencyLimit,
    GatewayMetrics,
    Key,
    RequestRates,
    find_key,
    has_roles,
)
from crp_integrations.gateway.admission import Scope as KeyScope
from crp_integrations.gateway.request_bodies import CLOSE, refuse_media_type, refuse_two_lengths
from crp_integrations.gateway.responses import (
    CLIENT_GONE,
    GatewayRequest,
    GatewayResponse,
    HttpExchange,
)
from crp_integrations.gateway.settings import GatewaySettings
from crp_integrations.gateway.tenants import StoreProbe, TenantRelays, Upstream
from crp_integrations.gateway.worker_threads import SHARE
from crp_integrations.headers import names
from crp_integrations.ports import Clock, KeyRing

# Headers that the endpoint reads, besides those of CRP; their values must be printable ASCII.
_CHECKED_HEADERS: Final = ("authorization", "content-length", "x-request-id")
_PRINTABLE: Final = re.compile(rb"[\t\x20-\x7e]*")
MAX_PARAMETERS: Final = 20

Handler = Callable[[GatewayRequest], Awaitable[GatewayResponse]]


class KeyStore(Protocol):
    """A source of keys."""

    def all(self) -> Mapping[str, Key]:
        """The current keys by id."""
        ...


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the gateway, with its OpenAPI description.

    Attributes:
        name: the `operationId`.
        scope: scope that the key needs; None if no key is needed.
        takes: model of the request body; None for no body.
        gives: model of a 200 response in JSON; None for another media type.
        media: media types of a 200 response in addition to `gives`.
        statuses: statuses in addition to those of every operation.
        query: query parameters: name → schema.
        asks: whether the operation reads CRP request headers.
        large: whether the body is a batch of facts.
        admit: replaces the key check: makes a key from a signed address or raises AccessDenied.
        head: whether HEAD is answered like GET; False if GET changes something.
    """

    handler: Handler
    name: str
    summary: str
    scope: KeyScope | None = None
    takes: type[BaseModel] | None = None
    gives: type[BaseModel] | None = None
    media: tuple[str, ...] = ()
    statuses: tuple[int, ...] = ()
    query: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    asks: bool = False
    large: bool = False
    admit: Callable[[GatewayState, Scope], Key] | None = None
    head: bool = True


@dataclass(frozen=True, slots=True)
class GatewayState:
    """State that all endpoints share.

    Attributes:
        models: names of the allowed models; empty for any.
        keyring: keys of the store, for signed addresses.
        now: monotonic clock, in seconds.
    """

    settings: GatewaySettings
    keys: KeyStore
    tenants: TenantRelays
    upstream: Upstream
    models: tuple[str, ...]
    rates: RequestRates
    together: ConcurrencyLimit
    metrics: GatewayMetrics
    probe: StoreProbe
    clock: Clock
    keyring: KeyRing
    now: Callable[[], float] = time.monotonic


class _RequestRefused(Exception):
    """Ends a request with a response."""

    def __init__(self, answered: GatewayResponse) -> None:
        super().__init__(answered.status)
        self.answered = answered


class Endpoint:
    """The endpoint of one path."""

    def __init__(
        self, route: str, operations: Mapping[str, Operation], state: GatewayState
    ) -> None:
        """Store a path's operations."""
        self._route = route
        self._operations = dict(operations)
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        began = self._state.now()
        exchange = HttpExchange(scope, receive, send, self._state.settings.send_seconds)
        try:
            await self._respond(exchange)
        finally:
            seconds = self._state.now() - began
            self._state.metrics.request(self._route, exchange.method, exchange.status, seconds)
            exchange.log(self._route, seconds)

    async def _respond(self, exchange: HttpExchange) -> None:
        try:
            operation = self._operation(exchange)
            exchange.key = self._admit(exchange, operation)
            key, together = exchange.key, self._state.together
            with together.one(key.key_id, key.tenant) if key else nullcontext():
                body = await self._body(exchange, operation)
                await self._work(exchange, operation, body)
        except _RequestRefused as refused:
            await exchange.answer(refused.answered)
        except CRPError as error:
            await exchange.fail(error)

    def _operation(self, exchange: HttpExchange) -> Operation:
        self._check_headers(exchange.scope["headers"])
        method = exchange.scope["method"]
        operation = self._operations.get("GET" if method == "HEAD" else method)
        if method == "HEAD" and operation is not None and not operation.head:
            operation = None
        if not self._operations:
            raise _refused(
                404, "unknown_path", "there is no such path; /openapi.json lists all paths"
            )
        if operation is None:
            allowed = ", ".join(sorted(self._operations))
            more = {"Allow": allowed, **CLOSE}
            raise _refused(405, "method_not_allowed", f"wanted {allowed}", more)
        return operation

    def _check_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        size = sum(len(name) + len(value) + 4 for name, value in headers)
        if size > self._state.settings.header_bytes:
            most = self._state.settings.header_bytes
            problem = f"headers take {size} bytes, at most {most}"
            raise _refused(431, "headers_too_large", problem)
        for name, value in headers:
            shown = name.decode("latin-1").strip().lower()
            if not shown.startswith(names.PREFIX) and shown not in _CHECKED_HEADERS:
                continue
            if not (_PRINTABLE.fullmatch(name) and _PRINTABLE.fullmatch(value)):
                problem = f"header {shown!r:.60} has a character that is not printable ASCII"
                raise _refused(400, "header_syntax_error", problem)

    def _admit(self, exchange: HttpExchange, operation: Operation) -> Key | None:
        """The key of the request, after checking its scope and rate."""
        state = self._state
        if operation.admit is not None:
            let_in = operation.admit(state, exchange.scope)
            state.rates.take(let_in.key_id, state.now())
            return let_in
        wanted = operation.scope
        if wanted is None or (wanted is KeyScope.METRICS and state.settings.open_metrics):
            return None
        credentials = [
            value for name, value in exchange.scope["headers"] if name.lower() == b"authorization"
        ]
        scheme, _, presented = (
            credentials[0].decode("ascii") if len(credentials) == 1 else ""
        ).partition(" ")
        key = find_key(state.keys.all(), presented.strip(), state.clock.now())
        if key is None or scheme.lower() != "bearer":
            raise TokenRefused("the request has no valid key; send Authorization: Bearer crp_key_…")
        exchange.key = key
        state.rates.take(key.key_id, state.now())
        if wanted not in key.scopes:
            raise _refused(
                403, "access_denied", f"key {key.key_id} lacks the scope {wanted.value}", {}
            )
        return key

    async def _body(self, exchange: HttpExchange, operation: Operation) -> bytes:
        """The whole body, within the limits of size and time."""
        settings, headers = self._state.settings, exchange.scope["headers"]
        wrong = refuse_two_lengths(headers) or (
            refuse_media_type(headers) if operation.takes else None
        )
        if wrong is not None:
            raise _RequestRefused(wrong)
        most = settings.facts_bytes if operation.large else settings.body_bytes
        if operation.takes is None:
            most = 0
        for name, value in headers:
            if name.lower() == b"content-length" and value.isdigit() and int(value[:18]) > most:
                raise _too_large(most)
        pieces, size = [], 0
        try:
            async with asyncio.timeout(settings.body_seconds):
                while True:
                    message = await exchange.receive()
                    if message["type"] == "http.disconnect":
                        raise _RequestRefused(GatewayResponse(CLIENT_GONE))
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size > most:
                        raise _too_large(most)
                    pieces.append(piece)
                    if not message.get("more_body"):
                        return b"".join(pieces)
        except TimeoutError:
            problem = f"the body was not complete after {settings.body_seconds:g} s"
            raise _refused(408, "request_timeout", problem) from None

    async def _work(self, exchange: HttpExchange, operation: Operation, body: bytes) -> None:
        """Run the operation and send its response; cancel it if the caller disconnects."""
        work = asyncio.ensure_future(self._perform(exchange, operation, body))
        gone = asyncio.ensure_future(_wait_for_disconnect(exchange.receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not (work.done() or exchange.sent):
                exchange.status = exchange.status or CLIENT_GONE
                exchange.log_entry.outcome = exchange.log_entry.outcome or "cancelled"
                work.cancel()
            # Wait: a cancelled turn still seals its window.
            await asyncio.wait({work})
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait({work})
            raise
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone
        if not work.cancelled():
            work.result()

    async def _perform(self, exchange: HttpExchange, operation: Operation, body: bytes) -> None:
        try:
            if exchange.key is None:
                await exchange.answer(await self._handle(exchange, operation, body, None))
                return
            SHARE.set((exchange.key.tenant, exchange.key.key_id))
            async with self._state.tenants.lease(exchange.key.subject) as relay:
                await exchange.answer(await self._handle(exchange, operation, body, relay))
        except Exception as error:  # noqa: BLE001 - the caller gets a 500 without its details
            await exchange.fail(error)

    async def _handle(
        self, exchange: HttpExchange, operation: Operation, body: bytes, relay: Any
    ) -> GatewayResponse:
        state, scope = self._state, exchange.scope
        return await operation.handler(
            GatewayRequest(
                request_id=exchange.request_id,
                created=int(state.clock.now().timestamp()),
                headers=_decode_headers(scope["headers"]),
                query=_query_parameters(scope),
                path=scope.get("path_params") or {},
                body=body,
                key=exchange.key,  # type: ignore[arg-type]  # None where no key is needed
                relay=relay,
                upstream=state.upstream,
                models=state.models,
                settings=state.settings,
                holds=lambda subject: has_roles(state.keys.all(), subject, state.clock.now()),
                metrics=state.metrics,
                probe=state.probe,
                log_entry=exchange.log_entry,
            )
        )


async def _wait_for_disconnect(receive: Receive) -> None:
    """Return when the caller has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_large(most: int) -> _RequestRefused:
    return _refused(413, "body_too_large", f"at most {most} bytes are accepted")


def _refused(
    status: int, code: str, message: str, headers: Mapping[str, str] = CLOSE
) -> _RequestRefused:
    return _RequestRefused(responses.refusal_response(status, code, message, headers))


def _decode_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _query_parameters(scope: Scope) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            scope.get("query_string", b"").decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(scope.get("query_string")),
            errors="strict",
            max_num_fields=MAX_PARAMETERS,
        )
    except ValueError:
        raise RequestError("the query parameters of the address cannot be parsed") from None
    read = dict(pairs)
    if len(read) < len(pairs):
        raise RequestError("a query parameter occurs twice; give it once")
    return read

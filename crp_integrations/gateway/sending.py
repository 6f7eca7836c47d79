"""Answers on their way out, and the one line that the access log has of each request."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import traceback
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from crp_integrations.errors import CRPError
from crp_integrations.gateway import answers
from crp_integrations.gateway.answers import Answered
from crp_integrations.gateway.calls import Noted, log_failure
from crp_integrations.gateway.keys import Key
from crp_integrations.headers import names

ACCESS: Final = logging.getLogger("crp_integrations.gateway.access")
_LOG: Final = logging.getLogger("crp_integrations.gateway")
# What a log calls the status of a request whose caller went away, as nginx does.
GONE: Final = 499
UNMODIFIED: Final = 304
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_SAFE: Final = re.compile(r"[\x20-\x7e]*", re.ASCII)


@dataclass(slots=True)
class Visit:
    """A request under way.

    Attributes:
        send_seconds: that the caller may take for a piece of the answer.
        key: None before it was checked, or where none is needed.
        status: of the answer that went out, 0 before.
        sent: whether all of it is out.
    """

    scope: Scope
    receive: Receive
    send: Send
    send_seconds: float
    request_id: str = ""
    noted: Noted = field(default_factory=Noted)
    key: Key | None = None
    status: int = 0
    sent: bool = False

    def __post_init__(self) -> None:
        self.request_id = _request_id(self.scope)

    @property
    def method(self) -> str:
        """The method, `OTHER` for one that nobody knows, so that a caller makes no labels."""
        method = str(self.scope["method"])
        return method if method in METHODS else "OTHER"

    async def answer(self, answered: Answered) -> None:
        """Send an answer, no piece of it longer than the caller may take for it."""
        try:
            if answered.status == GONE:
                self.status = GONE
                return
            head = _encoded(answered, self.request_id)
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
        """Send what a caller gets of an error; from 500 on the log alone says more."""
        if not isinstance(error, CRPError):
            # A library's message may quote a text; where it was raised is enough.
            where = "".join(traceback.format_tb(error.__traceback__))
            _LOG.error("request %s: %s\n%s", self.request_id, type(error).__name__, where)
        else:
            log_failure(self.request_id, error)
        if self.status:
            # The status is out; all that can be said now is that the answer is not whole.
            self._abort()
        elif isinstance(error, CRPError):
            await self.answer(answers.of_error(error))
        else:
            await self.answer(
                answers.refusal(500, "internal_error", "the gateway failed; its log says more")
            )

    def log(self, route: str, seconds: float) -> None:
        """Write one line: ids and numbers, and no text of anybody's.

        Spec: CRP-SPEC-003 §16.1
        """
        noted = self.noted
        said = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request": self.request_id,
            "method": self.method,
            "route": route,
            "status": self.status,
            "ms": round(seconds * 1000, 1),
            "key": self.key.key_id if self.key else "",
            "session": noted.session_id,
            "window": noted.window_id,
            "outcome": noted.outcome,
            "facts": noted.fact_ids,
        }
        ACCESS.info("%s", json.dumps(said))

    async def _timed(self, message: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(self.send_seconds):
                await self.send(message)
        except TimeoutError:
            self._abort()
            raise asyncio.CancelledError("the caller took too long") from None

    def _abort(self) -> None:
        """Cut the connection, so that nobody takes half an answer for a whole one."""
        abort = (self.scope.get("state") or {}).get("abort")
        if abort is not None:
            abort()


def _request_id(scope: Scope) -> str:
    """The caller's own id of the request where it is a plain word, else a new one."""
    given = [value for name, value in scope["headers"] if name.lower() == b"x-request-id"]
    text = given[0].decode("latin-1") if len(given) == 1 else ""
    return text if _REQUEST_ID.fullmatch(text) else f"req_{secrets.token_hex(8)}"


def _encoded(answered: Answered, request_id: str) -> list[tuple[bytes, bytes]]:
    said = {
        names.PROTOCOL: names.PROTOCOL_VERSION,
        **answered.headers,
        "X-Request-Id": request_id,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    if answered.status != UNMODIFIED:
        said["Content-Type"] = answered.media_type
        if answered.events is None:
            said["Content-Length"] = str(len(answered.body))
    for name, value in said.items():
        if not _SAFE.fullmatch(value):
            raise RuntimeError(f"header {name} would not be printable ASCII")
    return [(name.lower().encode(), value.encode()) for name, value in said.items()]

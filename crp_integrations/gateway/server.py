"""The application served by uvicorn, which never sees slow or oversized heads."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from typing import Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from crp_integrations.errors import ConfigError
from crp_integrations.gateway.settings import GatewaySettings

_LOG: Final = logging.getLogger("crp_integrations.gateway")
# A line that goes on in the next one (RFC 9112 §5.2); what a reader makes of it differs.
_FOLDED: Final = (b"\n ", b"\n\t")
_HEAD_ENDS: Final = (b"\r\n\r\n", b"\n\n")
# Bytes of a head's end that may have come in an earlier packet.
_TAIL: Final = 3


def serve(
    app: ASGIApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    settings: GatewaySettings | None = None,
) -> None:
    """Serve until the process is told to end.

    What was imported and made until then is left to the end of the process (`gc.freeze`): else
    Python's garbage collector looks through all of it now and then, and every request waits.

    Args:
        port: 0 for a free one, which the log names.

    Raises:
        ConfigError: nothing can listen there, as where another process does.
    """
    check_free(host, port)
    gc.collect()
    gc.freeze()
    server(app, host=host, port=port, settings=settings).run()


def server(
    app: ASGIApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    settings: GatewaySettings | None = None,
) -> uvicorn.Server:
    """The server, not begun."""
    limits = settings or GatewaySettings()

    class Guarded(GuardedProtocol):
        header_seconds = limits.header_seconds

    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=Guarded,
            ws="none",
            lifespan="on",
            log_config=None,
            # Its own log would hold what callers put into addresses.
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            limit_concurrency=limits.connections,
            h11_max_incomplete_event_size=limits.header_bytes,
            timeout_keep_alive=max(1, round(limits.idle_seconds)),
            timeout_graceful_shutdown=limits.shutdown_seconds,
        )
    )


def check_free(host: str, port: int) -> None:
    """Try the address, since uvicorn says only in its log that it cannot be had."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as tried:
                if os.name == "posix":
                    # As asyncio does, so that a server that ended just now is no hindrance.
                    tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                tried.bind(address)
    except OSError as error:
        raise ConfigError(
            f"nothing can listen on {host!r:.80}, port {port}: {error.strerror}; "
            "give another --host or --port"
        ) from error


class GuardedProtocol(H11Protocol):
    """A connection whose every head has a deadline, and whose lines do not fold.

    Attributes:
        header_seconds: from the first moment that a head is waited for.
    """

    header_seconds: float = 10.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection."""
        super().connection_made(transport)
        self._tail = b""
        self._deadline: asyncio.TimerHandle | None = None
        # The application cuts connections whose caller does not take its answer.
        self.app_state = {**self.app_state, "abort": transport.abort}
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let a connection go."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of a head are looked at first."""
        if self._in_head():
            if self._deadline is None:
                self._wait()
            head = self._tail + data
            if _has_folded_line(head):
                self._stop()
                self.send_400_response("Folded header lines are not taken.")
                return
            self._tail = head[-_TAIL:]
        super().data_received(data)
        if not self._in_head():
            self._tail = b""
            self._stop()

    def on_response_complete(self) -> None:
        """Wait for the next request, under uvicorn's own time for idle connections.

        Of a caller who did not wait for this answer its head may have come already.
        """
        ahead = self.conn.trailing_data[0]
        self._tail = ahead[-_TAIL:]
        if _has_folded_line(ahead):
            # After this answer, which is on its way.
            self.transport.close()
        super().on_response_complete()

    def _in_head(self) -> bool:
        return bool(self.conn.their_state is h11.IDLE)

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._late)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            _LOG.info("a connection was closed: its request's headers were too slow")
            self.transport.abort()


def _has_folded_line(head: bytes) -> bool:
    """Whether a line goes on in the next one, before the head's end."""
    ends = [place for place in map(head.find, _HEAD_ENDS) if place >= 0]
    until = min(ends) if ends else len(head)
    return any(0 <= head.find(fold) < until for fold in _FOLDED)

"""Runs the application under uvicorn, with limits on slow and oversized request headers."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
from typing import ClassVar, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from crp_integrations.errors import ConfigError
from crp_integrations.gateway.settings import GatewaySettings
from crp_integrations.validation import require_settings

_LOG: Final = logging.getLogger("crp_integrations.gateway")
# A header line continued in the next line (RFC 9112 §5.2), which servers interpret differently.
_FOLDED: Final = (b"\n ", b"\n\t")
_HEAD_ENDS: Final = (b"\r\n\r\n", b"\n\n")
# Bytes to keep of the previous packet, in which these patterns may begin.
_TAIL: Final = 3


def serve(
    app: ASGIApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    settings: GatewaySettings | None = None,
) -> None:
    """Serve until the process is told to stop.

    Objects that exist at the start are excluded from garbage collection (`gc.freeze`), since
    scanning all of them now and then would delay every request.

    Args:
        port: port to listen on; 0 for a free one, which the log names.

    Raises:
        ConfigError: the address cannot be used, for example because another process listens there.
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
    """The uvicorn server, not started."""
    limits = require_settings(settings, GatewaySettings)

    most = _most_connections(limits.connections)

    class Guarded(GuardedProtocol):
        header_seconds = limits.header_seconds
        most_connections = most
        idle: ClassVar[dict[GuardedProtocol, None]] = {}

    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=Guarded,
            ws="none",
            lifespan="on",
            log_config=None,
            # Uvicorn's own log would contain texts that callers put into addresses.
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            limit_concurrency=most,
            h11_max_incomplete_event_size=limits.header_bytes,
            timeout_keep_alive=max(1, round(limits.idle_seconds)),
            timeout_graceful_shutdown=limits.shutdown_seconds,
        )
    )


def _most_connections(wanted: int) -> int:
    """The maximum number of open connections: at most half of the files that may be open."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft // 2))


def check_free(host: str, port: int) -> None:
    """Raise if the address cannot be used, which uvicorn would only report in its log."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as tried:
                if os.name == "posix":
                    # As asyncio does, so that the port of a server that just ended can be reused.
                    tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                tried.bind(address)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host!r:.80}, port {port}: {error.strerror}; "
            "give another --host or --port"
        ) from error


class GuardedProtocol(H11Protocol):
    """A connection with a deadline for request headers, which refuses folded header lines.

    A new connection above the limit closes the one that has been without a request for longest
    and has read its response, so that idle ones lock nobody out.

    Attributes:
        header_seconds: maximum seconds from the start of waiting until the headers are complete.
        idle: the server's connections without a request, in the order in which they became so.
    """

    header_seconds: float = 10.0
    most_connections: int = 1_024
    idle: ClassVar[dict[GuardedProtocol, None]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline of the first request."""
        super().connection_made(transport)
        self._tail = b""
        self._deadline: asyncio.TimerHandle | None = None
        # Lets the application cut the connection of a caller that does not read its response.
        self.app_state = {**self.app_state, "abort": transport.abort}
        # Below the limit, at which uvicorn refuses every request.
        if len(self.connections) >= self.most_connections and self.idle:
            # One whose response is still in the buffer is cut only if there is no other.
            oldest = min(self.idle, key=lambda idle: idle.transport.get_write_buffer_size() > 0)
            del self.idle[oldest]
            oldest.transport.abort()
        self.idle[self] = None
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline."""
        self.idle.pop(self, None)
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle bytes; checks those of request headers for folded lines first."""
        if self._in_head():
            if self._deadline is None:
                self._wait()
            head = self._tail + data
            if _has_folded_line(head):
                self._stop()
                self.send_400_response("Folded header lines are not accepted.")
                return
            self._tail = head[-_TAIL:]
        super().data_received(data)
        if not self._in_head():
            self.idle.pop(self, None)
            self._tail = b""
            self._stop()

    def on_response_complete(self) -> None:
        """Wait for the next request, with uvicorn's limit for idle connections.

        If the caller pipelines requests, the next headers may have arrived already.
        """
        ahead = self.conn.trailing_data[0]
        self._tail = ahead[-_TAIL:]
        if _has_folded_line(ahead):
            # Closes after the current response has been sent.
            self.transport.close()
        super().on_response_complete()
        if self._in_head() and not self.transport.is_closing():
            self.idle[self] = None

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
    """Whether a header line is folded, before the end of the headers."""
    ends = [place for place in map(head.find, _HEAD_ENDS) if place >= 0]
    until = min(ends) if ends else len(head)
    return any(0 <= head.find(fold) < until for fold in _FOLDED)

"""Posts violation reports with httpx, in a separate thread for which no answer waits.

A report is retried if its receiver is busy, fails or does not answer, and dropped after a few
attempts. An attempt has one deadline for the whole exchange, so a receiver that answers slowly
blocks nothing. A policy's addresses come from callers: a host that the operator has not listed
must be public, the connection goes to exactly the IP address that was checked, and redirects
are not followed. Logs name the window and the error, never an address or a report.

Spec: related facts §6
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from crp_integrations.policy.directives import ReportSettings
from crp_integrations.policy.records import Policy, ViolationReport
from crp_integrations.validation import require_settings

if TYPE_CHECKING:
    import httpx

# Maximum number of simultaneous posts.
AT_ONCE: Final = 8
# Statuses below 500 for which a retry may succeed (RFC 9110, RFC 6585).
BUSY: Final = frozenset({408, 425, 429})
HEADERS: Final = MappingProxyType({"Content-Type": "application/json"})

_LOG = logging.getLogger("crp_integrations.engines")


class _RefusedAddress(Exception):
    """The address may not be posted to; the message says why, without the address."""


class HttpReports:
    """Delivers violation reports over HTTP. Thread-safe; the thread starts with the first report.

    `sent` and `dropped` count deliveries, one for each address of a report.
    """

    def __init__(self, settings: ReportSettings | None = None) -> None:
        """Prepare deliveries."""
        self._settings = require_settings(settings, ReportSettings)
        hosts = [_host_of(uri) for uri in self._settings.receivers.values()]
        self._listed = frozenset(
            host.lower().strip("[]") for host in (*self._settings.hosts, *hosts)
        )
        self._changed = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[str]] = set()
        self._client: httpx.AsyncClient | None = None
        self._pending = self._sent = self._dropped = 0
        self._closed = False

    @property
    def sent(self) -> int:
        """Number of deliveries that a receiver accepted."""
        return self._sent

    @property
    def dropped(self) -> int:
        """Number of deliveries that failed, were refused, or exceeded the capacity."""
        return self._dropped

    def take(self, report: ViolationReport, policy: Policy) -> None:
        """Queue a report for the addresses of a policy; never waits and never raises."""
        uris = list(policy.report_uri)
        for name in policy.report_to:
            if name in self._settings.receivers:
                uris.append(self._settings.receivers[name])
            else:
                self._drop(report.window_id, f"no receiver is called {name}")
        if uris:
            body = report.model_dump_json().encode()
            for uri in dict.fromkeys(uris):
                self._begin(uri, body, report.window_id)

    def flush(self, timeout_s: float) -> bool:
        """Wait until no delivery is under way; False if the time runs out first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._pending == 0, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Flush, then end the thread; deliveries still under way are dropped."""
        until = time.monotonic() + timeout_s
        with self._changed:
            self._closed = True
        self.flush(timeout_s)
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None and thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), loop)
            thread.join(max(1.0, until - time.monotonic()))

    def _begin(self, uri: str, body: bytes, window_id: str) -> None:
        with self._changed:
            reason = self._hindrance()
            if not reason:
                self._pending += 1
                # With the lock, so that no delivery reaches the loop after `close` has begun.
                self._running().call_soon_threadsafe(self._start, uri, body, window_id)
        if reason:
            self._drop(window_id, reason)

    def _hindrance(self) -> str:
        """Why a delivery cannot begin, empty when it can."""
        if self._closed:
            return "closed"
        if self._pending >= self._settings.capacity:
            return f"{self._pending} deliveries are under way"
        try:
            self._running()
        except RuntimeError as error:
            return f"no thread can be started: {type(error).__name__}"
        return ""

    def _running(self) -> asyncio.AbstractEventLoop:
        """The thread's event loop; the thread is started with the first delivery."""
        if self._loop is None:
            loop = asyncio.new_event_loop()
            self._slots = asyncio.Semaphore(AT_ONCE)
            thread = threading.Thread(
                target=_run, args=(loop,), name="crp-violation-reports", daemon=True
            )
            thread.start()
            self._loop, self._thread = loop, thread
        return self._loop

    def _start(self, uri: str, body: bytes, window_id: str) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(uri, body))
        # Kept here, since the event loop only holds weak references to its tasks.
        self._tasks.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, window_id))

    def _ended(self, task: asyncio.Task[str], window_id: str) -> None:
        self._tasks.discard(task)
        reason = "cancelled" if task.cancelled() else task.result()
        if reason:
            self._drop(window_id, reason)
        with self._changed:
            self._pending -= 1
            self._sent += not reason
            self._changed.notify_all()

    async def _end(self) -> None:
        """Cancel the posts under way, and stop the loop after they have ended."""
        under_way = tuple(self._tasks)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()
        asyncio.get_running_loop().stop()

    async def _deliver(self, uri: str, body: bytes) -> str:
        """Why a delivery failed, empty when it was accepted."""
        try:
            return await self._tried(uri, body)
        except _RefusedAddress as refusal:
            return str(refusal)
        except Exception as error:  # noqa: BLE001 - no error may reach an answer
            return type(error).__name__

    async def _tried(self, uri: str, body: bytes) -> str:
        # Imported with the first delivery, since many processes never deliver a report.
        import httpx

        reason = ""
        for attempt in range(self._settings.attempts):
            if attempt:
                await asyncio.sleep(self._settings.backoff_seconds * 2 ** (attempt - 1))
            try:
                async with self._slots, asyncio.timeout(self._settings.timeout_seconds):
                    status = await self._post(uri, body)
            except (httpx.TransportError, OSError) as error:
                # TimeoutError is an OSError.
                reason = type(error).__name__
                continue
            if 200 <= status < 300:
                return ""
            reason = f"status {status}"
            if status < 500 and status not in BUSY:
                break
        return reason

    async def _post(self, uri: str, body: bytes) -> int:
        import httpx

        url = httpx.URL(uri)
        extensions: dict[str, Any] = {}
        headers = dict(HEADERS)
        host = url.raw_host.decode("ascii").lower()
        if host not in self._listed:
            # Connect to the checked IP address, as the name could resolve to another one later.
            address = await _public(host, url.port or (443 if url.scheme == "https" else 80))
            headers["Host"] = url.netloc.decode("ascii")
            extensions["sni_hostname"] = host
            url = url.copy_with(host=address)
        async with self._opened().stream(
            "POST", url, content=body, headers=headers, extensions=extensions
        ) as response:
            return response.status_code

    def _opened(self) -> httpx.AsyncClient:
        """The client, created with the first post, since it loads certificates."""
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=self._settings.timeout_seconds,
                # No proxy and no stored credentials of this process.
                trust_env=False,
                # Two names may share an address, but a kept connection was opened for one of them.
                limits=httpx.Limits(max_keepalive_connections=0),
            )
        return self._client

    def _drop(self, window_id: str, reason: str) -> None:
        with self._changed:
            self._dropped += 1
        _LOG.warning("violation report of window %s was not delivered: %s", window_id, reason)


def _host_of(uri: str) -> str:
    authority = uri.partition("://")[2].partition("/")[0].partition("?")[0]
    return authority if authority.endswith("]") else authority.rpartition(":")[0] or authority


async def _public(host: str, port: int) -> str:
    """The first address of a host; `_RefusedAddress` unless all its addresses are public."""
    resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in resolved]
    if not addresses or not all(is_public(address) for address in addresses):
        raise _RefusedAddress("the receiver's host is private and not listed")
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet.

    >>> is_public("8.8.8.8"), is_public("::ffff:127.0.0.1"), is_public("169.254.169.254")
    (True, False, False)
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or _translated(parsed)
        if inner is not None:
            return is_public(str(inner))
    return parsed.is_global and not parsed.is_multicast


def _translated(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address in a NAT64 address (RFC 6052); None for other addresses."""
    network = ipaddress.IPv6Network("64:ff9b::/96")
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in network else None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()

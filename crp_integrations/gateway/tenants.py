"""A relay for each subject, opened when it is first needed, the ones used last kept.

A relay is bound to one tenant and one user within it, and no call of it names a tenant; so what a
key reaches is decided once, by the relay that it is given.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from crp_integrations.guard.decisions import Subject
from crp_integrations.relay.relay import Relay

_LOG = logging.getLogger("crp_integrations.gateway")


@dataclass(slots=True)
class _Open:
    """A relay that is open, or on its way.

    Attributes:
        users: requests that use it.
    """

    relay: asyncio.Future[Relay]
    users: int = 0


class Tenants:
    """Opens and closes relays. For one event loop alone."""

    def __init__(self, opened: Callable[[Subject], Relay], most: int) -> None:
        """Open nothing yet."""
        self._opened = opened
        self._most = most
        self._kept: OrderedDict[Subject, _Open] = OrderedDict()
        self._closing: set[asyncio.Future[None]] = set()

    @property
    def open(self) -> int:
        """How many are open."""
        return len(self._kept)

    @asynccontextmanager
    async def lease(self, subject: Subject) -> AsyncIterator[Relay]:
        """The subject's relay, which stays open while the block lasts."""
        entry = self._kept.get(subject)
        if entry is None:
            loop = asyncio.get_running_loop()
            entry = _Open(loop.run_in_executor(None, self._opened, subject))
            self._kept[subject] = entry
        self._kept.move_to_end(subject)
        entry.users += 1
        try:
            try:
                # Others may wait for the same relay when this caller goes away.
                relay = await asyncio.shield(entry.relay)
            except Exception:
                if self._kept.get(subject) is entry:
                    del self._kept[subject]
                raise
            yield relay
        finally:
            entry.users -= 1
            self._evict()

    async def close(self) -> None:
        """Close every relay; those that are being used too."""
        for entry in self._kept.values():
            self._close(entry)
        self._kept.clear()
        if self._closing:
            await asyncio.wait(self._closing)

    def _evict(self) -> None:
        """Close those that were used longest ago, as far as nobody uses them."""
        spare = len(self._kept) - self._most
        for subject in [one for one, entry in self._kept.items() if not entry.users]:
            if spare <= 0:
                return
            self._close(self._kept.pop(subject))
            spare -= 1

    def _close(self, entry: _Open) -> None:
        async def closed() -> None:
            try:
                relay = await entry.relay
                await asyncio.to_thread(relay.close)
            except Exception as error:  # noqa: BLE001 - one that cannot be closed ends no other
                _LOG.warning("a relay was not closed: %s", type(error).__name__)

        closing = asyncio.ensure_future(closed())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

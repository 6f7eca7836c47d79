"""How often and how many at once: a bucket of requests a key, and counts of those under way."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from crp_integrations.errors import LimitReached

# Buckets of keys that were used last; one that was dropped is full again.
KEPT: Final = 10_000


class Busy(LimitReached):
    """Too much at once or too often.

    Attributes:
        retry_seconds: after which it may be tried again, at least 1.
    """

    def __init__(self, message: str, *, retry_seconds: int) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class Rates:
    """A bucket for each key that fills up steadily. For one event loop alone."""

    def __init__(self, per_minute: float, burst: int) -> None:
        self._per_second = per_minute / 60.0
        self._burst = float(burst)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key_id: str, now: float) -> None:
        """Take one request out of a key's bucket.

        Args:
            now: seconds of a clock that never goes back.

        Raises:
            Busy: the bucket is empty.
        """
        left, at = self._buckets.pop(key_id, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        allowed = left >= 1.0
        self._buckets[key_id] = (left - 1.0 if allowed else left, now)
        if len(self._buckets) > KEPT:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = max(1, math.ceil((1.0 - left) / self._per_second))
            raise Busy(
                f"key {key_id} sent more than {self._per_second * 60:g} requests a minute; "
                f"try again in {wait} s",
                retry_seconds=wait,
            )


class Together:
    """Counts requests under way. For one event loop alone."""

    def __init__(self, each: int, in_all: int) -> None:
        self._each = each
        self._in_all = in_all
        self._running: Counter[str] = Counter()
        self._all = 0

    @property
    def running(self) -> int:
        """Requests under way."""
        return self._all

    @contextmanager
    def one(self, key_id: str) -> Iterator[None]:
        """Count a request while the block lasts.

        Raises:
            Busy: the key, or all keys together, have too many under way.
        """
        if self._running[key_id] >= self._each:
            raise Busy(
                f"key {key_id} has {self._each} requests under way, which is its limit",
                retry_seconds=1,
            )
        if self._all >= self._in_all:
            raise Busy(
                f"the gateway has {self._in_all} requests under way, which is its limit",
                retry_seconds=1,
            )
        self._running[key_id] += 1
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1
            self._running[key_id] -= 1
            if not self._running[key_id]:
                del self._running[key_id]

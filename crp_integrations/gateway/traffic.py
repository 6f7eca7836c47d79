"""Rate limits, limits of concurrency, and metrics in the text format of Prometheus."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol, runtime_checkable

from crp_integrations.errors import LimitReached

# Buckets of keys that were used last; one that was dropped is full again.
KEPT: Final = 10_000


class GatewayBusy(LimitReached):
    """Too much at once or too often.

    Attributes:
        retry_seconds: after which it may be tried again, at least 1.
    """

    def __init__(self, message: str, *, retry_seconds: int) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class RequestRates:
    """A bucket for each key that fills up steadily. For one event loop alone."""

    def __init__(self, per_minute: float, burst: int) -> None:
        self._per_second = per_minute / 60.0
        self._burst = float(burst)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key_id: str, now: float) -> None:
        """Take one request out of a key's bucket."""
        left, at = self._buckets.pop(key_id, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        allowed = left >= 1.0
        self._buckets[key_id] = (left - 1.0 if allowed else left, now)
        if len(self._buckets) > KEPT:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = max(1, math.ceil((1.0 - left) / self._per_second))
            raise GatewayBusy(
                f"key {key_id} sent more than {self._per_second * 60:g} requests a minute; "
                f"try again in {wait} s",
                retry_seconds=wait,
            )


class ConcurrencyLimit:
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
        """Count a request while the block lasts."""
        if self._running[key_id] >= self._each:
            raise GatewayBusy(
                f"key {key_id} has {self._each} requests under way, which is its limit",
                retry_seconds=1,
            )
        if self._all >= self._in_all:
            raise GatewayBusy(
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


# Seconds.
BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HELP: Final = {
    "crp_gateway_requests_total": "Requests by route, method and status.",
    "crp_gateway_request_seconds": "Time of a request from its headers to its last byte.",
    "crp_gateway_tokens_total": "Tokens that models reported.",
    "crp_gateway_outcomes_total": "Windows by how they ended.",
    "crp_gateway_requests_running": "Requests under way.",
    "crp_gateway_relays_open": "Relays that are open.",
}


@runtime_checkable
class MetricsSource(Protocol):
    """Metrics of others, such as `observability.prometheus.Metrics`."""

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        ...


class GatewayMetrics:
    """What happened since the gateway began. For one event loop alone."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._seconds: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._gauges: dict[str, Callable[[], int]] = {}
        self._others: list[MetricsSource] = []

    def also(self, other: MetricsSource) -> None:
        """Tell the metrics of another registry as well, behind the gateway's own."""
        self._others.append(other)

    def gauge(self, name: str, value: Callable[[], int]) -> None:
        """Tell a number whenever it is asked for."""
        self._gauges[name] = value

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            route: as the gateway's table has it, so that a caller makes no labels.
        """
        self._requests[route, method, str(status)] += 1
        self._buckets[route][bisect_left(BOUNDS, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def tokens(self, kind: str, count: int) -> None:
        """Count tokens, `prompt` or `completion`."""
        self._tokens[kind] += count

    def outcome(self, kind: str) -> None:
        """Count a window by its end."""
        self._outcomes[kind] += 1

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        own = "\n".join(self._lines()) + "\n"
        return own + "".join(other.text() for other in self._others)

    def _lines(self) -> Iterator[str]:
        requests = {
            _labels(route=route, method=method, status=status): count
            for (route, method, status), count in self._requests.items()
        }
        yield from _metric("crp_gateway_requests_total", "counter", requests)
        yield from _head("crp_gateway_request_seconds", "histogram")
        for route, counts in sorted(self._buckets.items()):
            below = 0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                below += count
                labels = _labels(route=route, le=bound)
                yield f"crp_gateway_request_seconds_bucket{labels} {below}"
            labels = _labels(route=route)
            yield f"crp_gateway_request_seconds_sum{labels} {self._seconds[route]:.6f}"
            yield f"crp_gateway_request_seconds_count{labels} {below}"
        tokens = {_labels(kind=kind): count for kind, count in self._tokens.items()}
        yield from _metric("crp_gateway_tokens_total", "counter", tokens)
        ended = {_labels(outcome=kind): count for kind, count in self._outcomes.items()}
        yield from _metric("crp_gateway_outcomes_total", "counter", ended)
        for name, value in self._gauges.items():
            yield from _metric(name, "gauge", {"": value()})


def _metric(name: str, kind: str, values: Mapping[str, int]) -> Iterator[str]:
    yield from _head(name, kind)
    yield from (f"{name}{labels} {value}" for labels, value in sorted(values.items()))


def _head(name: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {_HELP[name]}"
    yield f"# TYPE {name} {kind}"


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"

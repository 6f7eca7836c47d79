"""Counts and times in the text format of Prometheus; no label names a tenant or a key."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol, runtime_checkable

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
class Exposed(Protocol):
    """Metrics of others, such as `observability.prometheus.Metrics`."""

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        ...


class Metrics:
    """What happened since the gateway began. For one event loop alone."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._seconds: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._gauges: dict[str, Callable[[], int]] = {}
        self._others: list[Exposed] = []

    def also(self, other: Exposed) -> None:
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

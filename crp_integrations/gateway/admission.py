"""Admission: bearer keys bound to tenants, limits of rate and concurrency, request metrics.

A key is `crp_key_`, an id of twelve characters, and a secret of 256 random bits. Because of this
length a plain hash of the secret is safe to store.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import re
import secrets
import tempfile
import threading
import time
from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from pydantic import Field, ValidationError

from crp_integrations.errors import ConfigError, LimitReached, RequestError
from crp_integrations.fabric.records import Moment
from crp_integrations.fabric.region import refuse_reserved
from crp_integrations.guard.decisions import Subject
from crp_integrations.records import Record
from crp_integrations.relay.settings import first_problem

if TYPE_CHECKING:
    from crp_integrations.stores.postgres.pool import PoolMeasures
from crp_integrations.stores.files import file_held

PREFIX: Final = "crp_key_"
FILE_MODE: Final = 0o600
ID_BYTES: Final = 6
SECRET_BYTES: Final = 32
# Maximum seconds that a writer of the key file waits for another one.
BUSY_SECONDS: Final = 30.0
_KEY: Final = re.compile(r"crp_key_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
# Compared with an unknown key, so that the check takes as long as for a known one.
_UNKNOWN_HASH: Final = "sha256:" + "0" * 64


class Scope(StrEnum):
    """What a key may do."""

    ASK = "ask"
    FACTS = "facts"
    AUDIT = "audit"
    METRICS = "metrics"


EVERYTHING: Final = (Scope.ASK, Scope.FACTS, Scope.AUDIT)


class Key(Record):
    """A key as it is stored, without its secret.

    Attributes:
        key_id: id of the key in logs and lists; part of the key and not secret.
        tenant: tenant whose facts, sessions and windows the key can access.
        name: user or process within the tenant, for the guard.
        roles: roles of the subject, for the guard.
        scopes: operations that the key allows.
        secret_hash: `sha256:…` of the secret.
        expires_at: time from which the key is refused; None for never.
    """

    SCHEMA = "gateway-key/1"

    key_id: str = Field(pattern=r"^[0-9a-f]{12}$")
    tenant: str = Field(min_length=1)
    name: str = "gateway"
    roles: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = EVERYTHING
    secret_hash: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    created_at: Moment
    expires_at: Moment | None = None

    @property
    def subject(self) -> Subject:
        """The subject that the key stands for, for the guard."""
        return Subject(tenant=self.tenant, name=self.name, roles=self.roles)


def new_key(
    tenant: str,
    *,
    name: str = "gateway",
    roles: tuple[str, ...] = (),
    scopes: tuple[Scope, ...] = EVERYTHING,
    expires_at: datetime | None = None,
) -> tuple[str, Key]:
    """A new key, to be shown once, and the record of it to store."""
    if not tenant.strip():
        raise RequestError("a key needs a tenant; name one")
    refuse_reserved(tenant)
    key_id, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    record = Key(
        key_id=key_id,
        tenant=tenant,
        name=name,
        roles=roles,
        scopes=scopes,
        secret_hash=_hash_secret(secret),
        created_at=datetime.now(UTC),
        expires_at=expires_at,
    )
    return f"{PREFIX}{key_id}_{secret}", record


def find_key(keys: Mapping[str, Key], presented: str, now: datetime) -> Key | None:
    """The record of a presented key; None if the key is unknown, wrong or expired.

    The comparison takes constant time, also for an unknown key.
    """
    read = _KEY.fullmatch(presented)
    key_id, secret = (read[1], read[2]) if read else ("", "")
    key = keys.get(key_id)
    same = hmac.compare_digest(_hash_secret(secret), key.secret_hash if key else _UNKNOWN_HASH)
    if key is None or not same or (key.expires_at is not None and key.expires_at <= now):
        return None
    return key


def has_roles(keys: Mapping[str, Key], subject: Subject, now: datetime) -> bool:
    """Whether a key that has not expired gives this subject all of its roles."""
    return any(
        (key.tenant, key.name) == (subject.tenant, subject.name)
        and set(subject.roles) <= set(key.roles)
        and (key.expires_at is None or key.expires_at > now)
        for key in keys.values()
    )


def _hash_secret(secret: str) -> str:
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


class KeyFile:
    """Keys in a file, one JSON line each; changes of the file are noticed.

    Thread-safe; a file lock serializes writers of several processes.
    """

    def __init__(self, path: str | Path, *, every_seconds: float = 1.0) -> None:
        """Refer to a file, which need not exist."""
        self._path = Path(path)
        self._every = every_seconds
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._seen: tuple[int, ...] | None = ()
        self._keys: Mapping[str, Key] = MappingProxyType({})

    def all(self) -> Mapping[str, Key]:
        """The keys by id; a change of the file shows after at most `every_seconds`.

        Raises:
            ConfigError: the file cannot be read, or a line is not a key.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._looked >= self._every:
                seen = self._state()
                if seen != self._seen:
                    self._keys = MappingProxyType({key.key_id: key for key in self._read()})
                    self._seen = seen
                self._looked = now
            return self._keys

    def add(self, key: Key) -> None:
        """Add a key to the file, which is created with mode 0600 if it does not exist.

        Raises:
            ConfigError: the file cannot be read or written.
            StoreBusy: another process held the file's lock for too long.
        """
        with self._lock, file_held(self._path, BUSY_SECONDS):
            keys = self._read() if self._state() else []
            self._write([*keys, key])

    def revoke(self, key_id: str) -> None:
        """Remove a key from the file.

        Args:
            key_id: the key's id, or the whole key.

        Raises:
            RequestError: the file has no such key.
            ConfigError, StoreBusy: as for `add`.
        """
        whole = _KEY.fullmatch(key_id)
        if whole:
            key_id = whole[1]
        with self._lock, file_held(self._path, BUSY_SECONDS):
            keys = self._read()
            left = [key for key in keys if key.key_id != key_id]
            if len(left) == len(keys):
                raise RequestError(f"no key has the id {key_id!r:.40}; crp keys lists them")
            self._write(left)

    def _state(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(self) -> list[Key]:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not valid text"
            raise ConfigError(f"key file {str(self._path)!r:.200} cannot be read: {why}") from error
        keys = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                keys.append(Key.model_validate(json.loads(line)))
            except ValidationError as error:
                field, problem = first_problem(error)
                detail = f"{field}: {problem}"
                raise ConfigError(f"line {number} of the key file is not a key: {detail}") from None
            except (ValueError, RecursionError):
                raise ConfigError(f"line {number} of the key file is not JSON") from None
        return keys

    def _write(self, keys: list[Key]) -> None:
        text = "".join(key.model_dump_json() + "\n" for key in keys)
        try:
            # A temporary file has mode 0600; renaming is atomic, so no reader sees half a file.
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=".keys-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except OSError as error:
            raise ConfigError(
                f"key file {str(self._path)!r:.200} cannot be written: {error.strerror}"
            ) from error
        self._looked = float("-inf")


# Maximum number of buckets in memory. The least recently used is dropped, and then starts full.
MAX_BUCKETS: Final = 10_000


class GatewayBusy(LimitReached):
    """Too many requests at once or per minute.

    Attributes:
        retry_seconds: seconds after which the caller may retry, at least 1.
    """

    def __init__(self, message: str, *, retry_seconds: int) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class RequestRates:
    """A token bucket for each key. Not thread-safe: use it from one event loop only."""

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
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = max(1, math.ceil((1.0 - left) / self._per_second))
            raise GatewayBusy(
                f"key {key_id} sent its burst of {self._burst:g} requests faster than "
                f"{self._per_second * 60:g} a minute; try again in {wait} s",
                retry_seconds=wait,
            )


class ConcurrencyLimit:
    """Limits running requests. Not thread-safe: use it from one event loop only.

    A tenant gets its share of `in_all` also when others run that many, up to twice `in_all`.
    """

    def __init__(self, each: int, in_all: int) -> None:
        self._each = each
        self._in_all = in_all
        self._keys: Counter[str] = Counter()
        self._tenants: Counter[str] = Counter()

    @property
    def running(self) -> int:
        """Number of running requests."""
        return self._keys.total()

    @contextmanager
    def one(self, key_id: str, tenant: str) -> Iterator[None]:
        """Count a request while the block lasts."""
        if self._keys[key_id] >= self._each:
            raise GatewayBusy(
                f"key {key_id} has {self._each} running requests, which is its limit",
                retry_seconds=1,
            )
        if self.running >= 2 * self._in_all:
            raise GatewayBusy(
                f"the gateway runs {self.running} requests, twice its limit of {self._in_all}",
                retry_seconds=1,
            )
        share = self._in_all // len({*self._tenants, tenant})
        if self.running >= self._in_all and self._tenants[tenant] >= share:
            raise GatewayBusy(
                f"the gateway runs its limit of {self._in_all} requests, and this tenant its "
                f"share of {share}",
                retry_seconds=1,
            )
        counted = ((self._keys, key_id), (self._tenants, tenant))
        for counts, name in counted:
            counts[name] += 1
        try:
            yield
        finally:
            for counts, name in counted:
                counts[name] -= 1
                if not counts[name]:
                    del counts[name]


# Upper bounds of the histogram's buckets, in seconds.
BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HELP: Final = {
    "crp_gateway_requests_total": "Requests by route, method and status.",
    "crp_gateway_request_seconds": "Time of a request from its headers to its last byte.",
    "crp_gateway_tokens_total": "Tokens that models reported.",
    "crp_gateway_outcomes_total": "Windows by outcome.",
    "crp_gateway_requests_running": "Running requests.",
    "crp_gateway_relays_open": "Open relays.",
    "crp_store_connections": "Open connections to the database, by whether they are in use.",
    "crp_store_connections_most": "Maximum of open connections to the database.",
    "crp_store_connections_waiting": "Threads that wait for a connection.",
    "crp_store_connection_wait_seconds_total": "Time that threads waited for a connection.",
    "crp_store_connection_timeouts_total": "Times that a thread got no connection.",
    "crp_store_lock_timeouts_total": "Statements that waited for a lock for too long.",
    "crp_store_errors_total": "Errors of the database by SQLSTATE class.",
}
# SQLSTATE classes that a busy or failing server causes: lost connection, conflict, resources,
# locks, shutdown, system, damage.
_CLASSES: Final = ("08", "40", "53", "55", "57", "58", "XX")


@runtime_checkable
class MetricsSource(Protocol):
    """Another source of metrics, such as `observability.prometheus.Metrics`."""

    def text(self) -> str:
        """All metrics in Prometheus text format."""
        ...


class GatewayMetrics:
    """Counters since the gateway started. Not thread-safe: use it from one event loop only."""

    def __init__(self, measures: Callable[[], PoolMeasures] | None = None) -> None:
        self._measures = measures
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._seconds: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._gauges: dict[str, Callable[[], int]] = {}
        self._others: list[MetricsSource] = []

    def also(self, other: MetricsSource) -> None:
        """Append the metrics of another source to the gateway's own."""
        self._others.append(other)

    def gauge(self, name: str, value: Callable[[], int]) -> None:
        """Register a gauge, whose function is called on each scrape."""
        self._gauges[name] = value

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            route: path pattern of the route, so that callers cannot create labels.
        """
        self._requests[route, method, str(status)] += 1
        self._buckets[route][bisect_left(BOUNDS, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def tokens(self, kind: str, count: int) -> None:
        """Count tokens, `prompt` or `completion`."""
        self._tokens[kind] += count

    def outcome(self, kind: str) -> None:
        """Count a window by its outcome."""
        self._outcomes[kind] += 1

    def text(self) -> str:
        """All metrics in Prometheus text format."""
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
        if self._measures is not None:
            yield from _store_lines(self._measures())


def _store_lines(seen: PoolMeasures) -> Iterator[str]:
    used = {_labels(state="in_use"): seen.in_use, _labels(state="idle"): seen.idle}
    # Those that alerts ask for begin at 0: a first error counts only as an increase.
    errors = {**dict.fromkeys(_CLASSES, 0), **seen.errors}
    metrics: dict[str, Mapping[str, float]] = {
        "crp_store_connections": used,
        "crp_store_connections_most": {"": seen.most},
        "crp_store_connections_waiting": {"": seen.waiting},
        "crp_store_connection_wait_seconds_total": {"": seen.wait_seconds},
        "crp_store_connection_timeouts_total": {"": seen.timeouts},
        "crp_store_lock_timeouts_total": {"": seen.lock_timeouts},
        "crp_store_errors_total": {_labels(sqlstate_class=k): n for k, n in errors.items()},
    }
    for name, values in metrics.items():
        yield from _metric(name, "counter" if name.endswith("_total") else "gauge", values)


def _metric(name: str, kind: str, values: Mapping[str, float]) -> Iterator[str]:
    yield from _head(name, kind)
    yield from (f"{name}{labels} {value}" for labels, value in sorted(values.items()))


def _head(name: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {_HELP[name]}"
    yield f"# TYPE {name} {kind}"


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"

"""Load on the gateway over loopback: callers who ask without a pause; errors, times, memory.

python -m tests.bench.gateway --minutes 5 --at-once 32 --facts 200
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import httpx

from tests.bench.fabric_corpus import Kind, embedder_of
from tests.bench.gateway_server import Measured
from tests.bench.gateway_server import running as gateway_running
from tests.bench.made_up import passages, question
from tests.bench.measure import has_one_thread, in_one_thread, machine, versions
from tests.bench.upstream import running as upstream_running

FACTS: Final = 500
TENANTS: Final = 4
MINUTES: Final = 5.0
AT_ONCE: Final = 32
THREADS: Final = 4
BUDGET: Final = 1_024
# Of each ten requests: previews, facts that are put, streams; the others are whole answers.
MIX: Final = (
    "chat",
    "chat",
    "stream",
    "chat",
    "preview",
    "chat",
    "stream",
    "chat",
    "report",
    "put",
)
# The share of the time in which caches fill; memory is judged by what comes after it.
WARM_SHARE: Final = 0.4
SAMPLE_SECONDS: Final = 2.0
# One in so many requests is followed by an attempt to get at another tenant's.
PRY_EVERY: Final = 7
# Texts of the fact that callers change, again and again; a new one each time would fill the
# memories of readings, which hold thousands, for hours.
TEXTS: Final = 16
# Memory that the last third of the steady phase may have over the first, and the least share of
# it, since a sample differs by as much from the next.
STEADY_MB: Final = 2.0
STEADY_SHARE: Final = 0.01


@dataclass(slots=True)
class Tally:
    """What the callers saw.

    Attributes:
        seconds: of each request, by kind.
        errors: requests that were not answered as they should be, by what was wrong.
        pried: attempts at another tenant's facts and report.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    pried: int = 0


def run(
    minutes: float = MINUTES,
    *,
    at_once: int = AT_ONCE,
    facts: int = FACTS,
    tenants: int = TENANTS,
    embedder: Kind = "minilm",
    threads: int = THREADS,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure.

    Args:
        minutes: how long the callers ask; in the first two fifths the caches fill.
        at_once: callers.
        facts: passages of each tenant.
        tenants: with a key each, asked in turns.
        embedder: `minilm`, or `hash` for trying this out.
        threads: of the gateway.
        say: told what is going on.

    Returns:
        A report in plain JSON.
    """
    from crp_integrations.gateway.admission import KeyFile, new_key
    from crp_integrations.guard.decisions import Subject
    from crp_integrations.relay.relay import Relay

    found = passages(facts * tenants)
    with tempfile.TemporaryDirectory() as folder, upstream_running() as upstream:
        store, path = Path(folder) / "store", Path(folder) / "keys"
        keys = []
        for number in range(tenants):
            key, kept = new_key(f"tenant-{number}")
            KeyFile(path).add(kept)
            keys.append(key)
            say(f"embedding {facts} passages of tenant {number}")
            own = found[number::tenants]
            with Relay.open(
                store, subject=Subject(tenant=kept.tenant), embedder=embedder_of(embedder)
            ) as relay:
                relay.fabric.add([one.text for one in own])
        asked = [question(one) for one in found]
        with gateway_running(store, upstream, path, embedder, threads) as gateway:
            tally, memory, seconds = asyncio.run(
                _load(gateway, keys, asked, minutes * 60, at_once, say)
            )
    done = sum(map(len, tally.seconds.values()))
    return {
        "machine": machine(),
        "versions": versions("starlette", "uvicorn", "httpx", "h11"),
        "minutes": round(seconds / 60, 2),
        "at_once": at_once,
        "tenants": tenants,
        "threads": threads,
        "facts_each": facts,
        "requests": done,
        "requests_per_second": round(done / seconds, 2),
        "errors": dict(tally.errors),
        "attempts_at_another_tenants": tally.pried,
        "milliseconds": {kind: _times(took) for kind, took in sorted(tally.seconds.items())},
        "memory_mb": {
            "start": memory[0][1],
            "most": max(mb for _, mb in memory),
            **steady([one for one in memory if one[0] >= seconds * WARM_SHARE], done / seconds),
        },
        "samples_mb": [[round(at), mb] for at, mb in memory],
    }


async def _load(
    gateway: Measured,
    keys: Sequence[str],
    asked: Sequence[str],
    seconds: float,
    at_once: int,
    say: Callable[[str], None],
) -> tuple[Tally, list[tuple[float, float]], float]:
    tally, numbers, began = Tally(), count(), time.perf_counter()
    memory: list[tuple[float, float]] = []

    async def sampled() -> None:
        while True:
            mb = await asyncio.to_thread(gateway.memory_mb)
            memory.append((time.perf_counter() - began, mb))
            done = sum(map(len, tally.seconds.values()))
            say(f"{memory[-1][0]:6.0f} s {done:7} requests {mb:8.1f} MB")
            await asyncio.sleep(SAMPLE_SECONDS)

    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    async with httpx.AsyncClient(base_url=gateway.url, limits=limits, timeout=120) as client:

        async def caller() -> None:
            last: dict[str, str] = {}
            while time.perf_counter() - began < seconds:
                number = next(numbers)
                at = number % len(keys)
                await _one(client, keys[at], at, number, asked, tally, last)
                await _prying(client, keys, number, tally, last)

        sampling = asyncio.create_task(sampled())
        await asyncio.gather(*(caller() for _ in range(at_once)))
        took = time.perf_counter() - began
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
    memory.append((took, await asyncio.to_thread(gateway.memory_mb)))
    return tally, memory, took


async def _one(
    client: httpx.AsyncClient,
    key: str,
    tenant: int,
    number: int,
    asked: Sequence[str],
    tally: Tally,
    last: dict[str, str],
) -> None:
    kind = MIX[number % len(MIX)]
    # Every tenant's questions are about its own passages, and come round again.
    query = asked[number % len(asked)]
    headers = {"Authorization": f"Bearer {key}"}
    body: dict[str, Any] = {
        "model": "measured",
        "messages": [{"role": "user", "content": query}],
        "crp": {"budget_tokens": BUDGET},
    }
    began = time.perf_counter()
    try:
        if kind == "put":
            text = (
                f"Request {number // len(MIX) % TEXTS} of the load was sent by a caller of tenant "
                f"{tenant} today."
            )
            response = await client.post(
                "/v1/facts",
                json={"facts": [{"content": text, "fact_id": f"load-{tenant}"}]},
                headers=headers,
            )
        elif kind == "report" and key in last:
            response = await client.get(last[key], headers=headers)
        elif kind == "preview":
            response = await client.post("/v1/preview", json=body, headers=headers)
        else:
            if kind == "stream":
                body["stream"] = True
            response = await client.post("/v1/chat/completions", json=body, headers=headers)
            if uri := response.headers.get("CRP-Provenance-Report-URI"):
                last[key] = uri
            if kind == "stream" and not response.text.endswith("data: [DONE]\n\n"):
                tally.errors["stream without an end"] += 1
        if response.status_code != httpx.codes.OK:
            tally.errors[f"{kind} {response.status_code}"] += 1
    except httpx.HTTPError as error:
        tally.errors[f"{kind} {type(error).__name__}"] += 1
    tally.seconds.setdefault(kind, []).append(time.perf_counter() - began)


async def _prying(
    client: httpx.AsyncClient, keys: Sequence[str], number: int, tally: Tally, last: dict[str, str]
) -> None:
    """Now and then ask with a tenant's key for what is another's; what comes counts as an error."""
    at, other = number % len(keys), (number + 1) % len(keys)
    if number % PRY_EVERY or at == other:
        return
    headers = {"Authorization": f"Bearer {keys[at]}"}
    asked = f"Which request of the load was sent by a caller of tenant {other}?"
    body = {"model": "measured", "messages": [{"role": "user", "content": asked}]}
    try:
        told = await client.post("/v1/preview", json=body, headers=headers)
        if told.status_code != httpx.codes.OK or f"tenant {other} today" in told.text:
            tally.errors[f"preview of another's facts {told.status_code}"] += 1
        if uri := last.get(keys[other]):
            report = await client.get(uri, headers=headers)
            if report.status_code != httpx.codes.NOT_FOUND:
                tally.errors[f"another's report {report.status_code}"] += 1
            tally.pried += 1
    except httpx.HTTPError as error:
        tally.errors[f"prying {type(error).__name__}"] += 1


def _times(took: Sequence[float]) -> dict[str, float]:
    ordered = sorted(took)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 1)

    return {"requests": len(ordered), "p50": at(0.5), "p99": at(0.99), "most": at(1.0)}


def steady(samples: Sequence[tuple[float, float]], per_second: float) -> dict[str, Any]:
    """Whether memory stayed where it was.

    Args:
        samples: seconds and MB, after the warm-up.
        per_second: requests.

    Returns:
        `steady` compares the medians of the last and the first third; None for too few samples.
        `growth_per_1000_requests` is the slope by least squares over all of them.
    """
    said: dict[str, Any] = {"warm": samples[0][1] if samples else None, "steady": None}
    third = len(samples) // 3
    if not third or per_second <= 0:
        return said
    mean_at, mean_mb = (fmean(one[column] for one in samples) for column in (0, 1))
    above = sum((at - mean_at) * (mb - mean_mb) for at, mb in samples)
    below = sum((at - mean_at) ** 2 for at, _ in samples)
    first, last = (median(mb for _, mb in part) for part in (samples[:third], samples[-third:]))
    allowed = max(STEADY_MB, STEADY_SHARE * first)
    return {
        **said,
        "end": samples[-1][1],
        "first_third": round(first, 1),
        "last_third": round(last, 1),
        "growth_allowed": round(allowed, 1),
        "growth_per_1000_requests": round(above / below / per_second * 1000, 2) if below else 0.0,
        "steady": last - first <= allowed,
    }


MODULE = "tests.bench.gateway"


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="callers")
    parser.add_argument("--facts", type=int, default=FACTS, help="passages of each tenant")
    parser.add_argument("--tenants", type=int, default=TENANTS, help="with a key each")
    parser.add_argument("--embedder", choices=("minilm", "hash"), default="minilm")
    parser.add_argument("--threads", type=int, default=THREADS, help="of the gateway")
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    report = run(
        given.minutes,
        at_once=given.at_once,
        facts=given.facts,
        tenants=given.tenants,
        embedder=given.embedder,
        threads=given.threads,
        say=_say,
    )
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({name: one for name, one in report.items() if name != "samples_mb"}, indent=2))
    if report["errors"] or report["memory_mb"]["steady"] is False:
        sys.exit(1)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()

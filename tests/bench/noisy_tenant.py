"""One noisy tenant beside quiet ones on a gateway with default limits: what the others wait.

`python -m tests.bench.noisy_tenant` asks for `--seconds` in each of three phases: the quiet tenants
alone, beside a tenant that sends `--rate` requests a second, and beside one whose every question
has 19,900 characters of `12:34:`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from tests.bench.made_up import passages, question
from tests.bench.measure import ONE_THREAD, machine
from tests.bench.upstream import running as upstream_running

QUIET: Final = 3
FACTS: Final = 200
SECONDS: Final = 20.0
RATE: Final = 100.0
# Seconds between the requests of a quiet tenant.
PAUSE: Final = 1.0
# The longest question that a gateway takes, in the most tokens.
COSTLY: Final = ("12:34:" * 4_000)[:19_900]
COSTLY_RATE: Final = 1.0
PHASES: Final = {"quiet": 0.0, "noisy": RATE, "costly": COSTLY_RATE}
_PORT: Final = re.compile(r"http://127\.0\.0\.1:(\d+)")


@contextmanager
def _gateway(store: str, keys: Path, upstream: str, arguments: Sequence[str]) -> Iterator[str]:
    """The address of `crp serve` in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "crp_integrations.cli.app",
        "serve",
        store,
        "--keys",
        str(keys),
    ]
    command += ["--upstream", upstream, "--port", "0", "--no-log", *arguments]
    environment = {**os.environ, **ONE_THREAD}
    # Our own module, through no shell.
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := _PORT.search(line):
                yield found[0]
                return
        raise RuntimeError("the gateway did not start")
    finally:
        process.terminate()
        process.wait()


async def _asked(client: httpx.AsyncClient, key: str, query: str, seen: Counter[str]) -> float:
    body = {"model": "measured", "messages": [{"role": "user", "content": query}]}
    began = time.perf_counter()
    try:
        headers = {"Authorization": f"Bearer {key}"}
        response = await client.post("/v1/chat/completions", json=body, headers=headers)
        seen[str(response.status_code)] += 1
    except httpx.HTTPError as error:
        seen[type(error).__name__] += 1
    return time.perf_counter() - began


async def _phase(
    url: str, keys: Sequence[str], queries: Sequence[str], seconds: float, rate: float, costly: bool
) -> dict[str, Any]:
    """The waits of the quiet tenants while the first key sends `rate` requests a second."""
    waits: list[float] = []
    quiet, noisy = Counter[str](), Counter[str]()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
        ends = time.perf_counter() + seconds

        async def loud() -> None:
            sent: list[asyncio.Task[float]] = []
            began = time.perf_counter()
            while rate and time.perf_counter() < ends:
                number = len(sent)
                query = f"{COSTLY[:-8]}{number:08}" if costly else queries[number % len(queries)]
                sent.append(asyncio.create_task(_asked(client, keys[0], query, noisy)))
                await asyncio.sleep(max(0.0, began + (number + 1) / rate - time.perf_counter()))
            for task in sent:
                task.cancel()
            await asyncio.gather(*sent, return_exceptions=True)

        async def still(place: int) -> None:
            number = place
            while time.perf_counter() < ends:
                query = queries[number * 7 % len(queries)]
                waits.append(await _asked(client, keys[place], query, quiet))
                number += QUIET
                await asyncio.sleep(PAUSE)

        await asyncio.gather(loud(), *(still(place) for place in range(1, QUIET + 1)))
    ordered = sorted(waits)
    p50, p95 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95))
    times = {"p50_s": round(p50, 3), "p95_s": round(p95, 3), "most_s": round(ordered[-1], 3)}
    return {**times, "quiet": dict(quiet), "noisy": dict(noisy)}


def run(
    seconds: float = SECONDS,
    *,
    facts: int = FACTS,
    store: str = "",
    phases: Sequence[str] = tuple(PHASES),
    arguments: Sequence[str] = (),
) -> dict[str, Any]:
    """Measure.

    Args:
        store: folder or address; empty for a new folder.
        arguments: further options of `crp serve`.
    """
    from crp_integrations.gateway.admission import KeyFile, new_key
    from crp_integrations.guard.decisions import Subject
    from crp_integrations.relay.relay import Relay

    texts = passages(facts)
    with tempfile.TemporaryDirectory() as folder, upstream_running() as upstream:
        place, path = store or str(Path(folder) / "store"), Path(folder) / "keys"
        secrets = []
        for number in range(QUIET + 1):
            secret, key = new_key(f"tenant-{number}")
            KeyFile(path).add(key)
            secrets.append(secret)
            with Relay.open(place, subject=Subject(tenant=key.tenant)) as relay:
                relay.fabric.add([passage.text for passage in texts])
        queries = [question(passage) for passage in texts]
        report: dict[str, Any] = {"machine": machine(), "facts_each": facts, "seconds": seconds}
        with _gateway(place, path, upstream, arguments) as url:
            # Every tenant's relay is open and the models are loaded before the first phase.
            asyncio.run(_phase(url, secrets, queries, 4.0, 2.0, False))
            for name in phases:
                costly = name == "costly"
                rate = PHASES[name]
                report[name] = asyncio.run(_phase(url, secrets, queries, seconds, rate, costly))
                sys.stderr.write(f"{name}: {json.dumps(report[name])}\n")
                # The burst of the noisy key is whole again.
                time.sleep(6.0)
    for name in phases:
        if "quiet" in report and name != "quiet":
            report[name]["times_quiet"] = round(report[name]["p95_s"] / report["quiet"]["p95_s"], 2)
    return report


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.noisy_tenant", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each phase")
    parser.add_argument("--facts", type=int, default=FACTS, help="of each tenant")
    parser.add_argument("--store", default="", help="folder or postgresql:// address")
    parser.add_argument("--phases", nargs="*", choices=tuple(PHASES), default=tuple(PHASES))
    parser.add_argument("--serve", nargs="*", default=(), help="further options of crp serve")
    chosen = parser.parse_args(arguments)
    report = run(
        chosen.seconds,
        facts=chosen.facts,
        store=chosen.store,
        phases=chosen.phases,
        arguments=chosen.serve,
    )
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()

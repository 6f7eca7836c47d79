"""What a call costs at each door above the plain call, by turns in one run.

`python -m tests.bench.calls --json OUT`; `--write` puts the tables into README and docs, with
`--read FILE` those of a former run. Cold is the first call over passages that the process has not
seen, or in a relay just opened; warm is a new question to what is known. Models answer by script
and providers on loopback, so that all that is measured but the plain call is ours.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from crp_integrations import Relay
from crp_integrations.engines.onnx import OnnxEmbedder, library
from crp_integrations.guard.decisions import Subject
from crp_integrations.language.memo import forget
from tests.bench.call_doors import DOORS, TENANT, Answering, Arms, Call, World, tokens
from tests.bench.fabric_corpus import Known
from tests.bench.made_up import passages
from tests.bench.measure import (
    cpu_ms,
    has_one_thread,
    in_one_thread,
    loop_ms,
    machine,
    steady_mb,
    versions,
)
from tests.bench.upstream import running
from tests.requirements.rows import ROOT

MODULE: Final = "tests.bench.calls"
AT_A_TIME: Final = (1, 8, 32)
ROUNDS: Final = 5
CALLS: Final = 16
# A level whose calls would take longer is left out, and rounds end after it: seconds.
PATIENCE_S: Final = 60.0
# Facts of the stores, and texts of which they and all candidates are made.
STORES: Final = (0, 1, 140, 500, 1_000)
MATERIAL: Final = 12_000


@contextmanager
def embedding_runs() -> Iterator[list[float]]:
    """The processor seconds of each run of the shipped model, a text each, for a while."""
    kind, runs = library().InferenceSession, list[float]()
    plain = kind.run

    def run(*args: Any, **kwargs: Any) -> Any:
        began = time.thread_time()
        try:
            return plain(*args, **kwargs)
        finally:
            runs.append(time.thread_time() - began)

    kind.run = run
    try:
        yield runs
    finally:
        kind.run = plain


async def block(call: Call, asked: Sequence[str], at_a_time: int) -> tuple[float, float]:
    """Processor and wall milliseconds a call, what is done after the answer included."""
    waiting = iter(asked)

    async def one_after_the_other() -> None:
        for question in waiting:
            await call(question)

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(at_a_time)))
    passed = time.perf_counter() - wall
    # LiteLLM logs a call after it has answered.
    await asyncio.sleep(0.1)
    spent = time.process_time() - cpu
    return spent * 1000 / len(asked), passed * 1000 * at_a_time / len(asked)


async def gap_ms(call: Call, asked: Sequence[str], at_a_time: int) -> float:
    """The longest that a task that wakes every millisecond waits for the event loop.

    Objects of before are excluded from garbage collection, as by `crp serve`.
    """
    longest = 0.0
    gc.collect()
    gc.freeze()

    async def tick() -> None:
        nonlocal longest
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began - 0.001)

    ticking = asyncio.create_task(tick())
    await block(call, asked, at_a_time)
    ticking.cancel()
    gc.unfreeze()
    return longest * 1000


class Meter:
    """Measures one door after the other."""

    def __init__(
        self, world: World, *, rounds: int, calls: int, patience_s: float, unit: Path | None
    ) -> None:
        self._world, self._rounds, self._calls = world, rounds, calls
        self._patience_s = patience_s
        self._runs: list[float] = []
        self._number, self._made = count(), 0
        # Of the bench alone, so that it knows no vector yet.
        self._embedder = OnnxEmbedder(unit)
        self._query_ms: list[float] = []

    async def door(self, name: str, at_a_time: Sequence[int]) -> dict[str, Any]:
        """The figures of a door."""
        size, opened = DOORS[name]
        self._query_ms, cold = [], []
        with embedding_runs() as self._runs:
            for _ in range(self._rounds + 1):
                forget()
                async with AsyncExitStack() as stack:
                    cold.append(await self._pair(await opened(size, self._world, stack), 1, 1))
            async with AsyncExitStack() as stack:
                arms = await opened(size, self._world, stack)
                looks = await self._looks(arms)
                before, first = _bytes(arms.folder), self._made
                warm = {str(level): await self._level(arms, level) for level in at_a_time}
                if warm[str(at_a_time[-1])]:
                    self._made += at_a_time[-1]
                    looks["plain_gap_ms"], looks["gap_ms"] = [
                        await gap_ms(call, self._asked(arms, at_a_time[-1]), at_a_time[-1])
                        for call in (arms.plain, arms.ours)
                    ]
            if arms.folder:
                more = _bytes(arms.folder) - before
                looks["disk_bytes"] = round(more / (self._made - first))
        return {
            "query_ms": statistics.median(self._query_ms),
            "loop_ms": loop_ms(),
            # The first of all loads modules.
            "cold": self._figures(cold[1:]),
            "warm": warm,
            **looks,
        }

    async def _level(self, arms: Arms, level: int) -> dict[str, float] | None:
        """Figures of so many calls at a time; None where they would take too long."""
        pair = await self._pair(arms, 1, 1)
        if level > 1 and level * pair["wall_ms"] > self._patience_s * 1000:
            return None
        many = max(level, min(self._calls, int(self._patience_s * 200 / pair["wall_ms"])))
        pairs, until = [], time.perf_counter() + self._patience_s
        while not pairs or (len(pairs) < self._rounds and time.perf_counter() < until):
            pairs.append(await self._pair(arms, many, level))
        return self._figures(pairs)

    def _asked(self, arms: Arms, many: int) -> list[str]:
        return [self._world.question(next(self._number), arms.texts) for _ in range(many)]

    async def _pair(self, arms: Arms, many: int, level: int) -> dict[str, float]:
        """The same questions by the plain call and by ours."""
        asked = self._asked(arms, many)
        self._made += many
        self._query_ms += [
            cpu_ms(lambda: self._embedder.embed_query(self._asked(arms, 1)[0])) for _ in range(3)
        ]
        plain = await block(arms.plain, asked, level)
        self._runs.clear()
        ours = await block(arms.ours, asked, level)
        return {
            "plain_cpu_ms": plain[0],
            "cpu_ms": ours[0],
            "above_ms": ours[0] - plain[0],
            "embedding_ms": sum(self._runs) * 1000 / many,
            "texts": len(self._runs) / many,
            "plain_wall_ms": plain[1],
            "wall_ms": ours[1],
        }

    def _figures(self, pairs: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Medians, and what is above the plain call as multiples of embedding a question."""
        figures = {name: statistics.median(pair[name] for pair in pairs) for name in pairs[0]}
        unit = statistics.median(self._query_ms)
        apart = statistics.median(pair["above_ms"] - pair["embedding_ms"] for pair in pairs)
        return {**figures, "queries": figures["above_ms"] / unit, "queries_apart": apart / unit}

    async def _looks(self, arms: Arms) -> dict[str, Any]:
        """Tokens that the prompt has more, and bytes that a message has more, by a first call."""
        (question,) = self._asked(arms, 1)
        looks = Counter[str]()
        for call, sign in ((arms.plain, -1), (arms.ours, 1)):
            self._world.prompts.clear()
            result = await call(question)
            sent = map(tokens, self._world.prompts)
            looks["tokens"] += sign * (arms.tokens(result) if arms.tokens else sum(sent))
            if arms.metadata:
                text = json.dumps(arms.metadata(result), default=str)
                looks["metadata_bytes"] += sign * len(text)
        return dict(looks)


def _bytes(folder: Path | None) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder else 0


def grown_mb(asks: int, store: Path, facts: Sequence[str]) -> float:
    """MB by which a process grows over so many asks, after the first tenth of them."""
    model = Answering(World({}, facts, iter(()), Path(), ""))
    with Relay.open(store, subject=Subject(tenant=TENANT), models=model, model="gpt-4o") as relay:
        before = 0.0
        for number in range(asks + asks // 10):
            if number == asks // 10:
                before = steady_mb()
            relay.ask(model.world.question(number, facts))
        return steady_mb() - before


def run(
    doors: Iterable[str] = tuple(DOORS),
    at_a_time: Sequence[int] = AT_A_TIME,
    *,
    rounds: int = ROUNDS,
    calls: int = CALLS,
    patience_s: float = PATIENCE_S,
    asks: int = 0,
    unit: Path | None = None,
    small: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure.

    Args:
        doors: names of rows.
        at_a_time: calls that are open together, one level after the other.
        rounds, calls: pairs of blocks of so many plain calls and ours; medians are reported.
        patience_s: seconds after which a level of a door ends; one that begins above is left out.
        asks: questions over which the growth of a process is measured; 0 for none.
        unit: the recipe's folder of the embedder whose question is the unit; None for what ships.
        small: few and short texts, for trying this out.
        say: gets a line on each door.
    """
    chosen = list(doors)
    sizes = {DOORS[name][0] for name in chosen} & set(STORES) | {140}
    texts = [passage.text for passage in passages(300 if small else MATERIAL)]
    many = 3 if small else max(sizes)
    facts, material = texts[:many], iter(texts[many:])
    figures = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        say(f"embedding {len(facts)} facts")
        base = OnnxEmbedder()
        known = Known(base, facts, base.embed_passages(facts))
        stores = {}
        for size in sizes:
            stores[size] = folder / f"{size}-facts"
            stores[size].mkdir()
            with Relay.open(stores[size], subject=Subject(tenant=TENANT), embedder=known) as relay:
                if size:
                    relay.fabric.add(facts[:size])
        address = stack.enter_context(running())
        world = World(stores, facts, material, folder, address, (2, 40) if small else None)
        meter = Meter(world, rounds=rounds, calls=calls, patience_s=patience_s, unit=unit)
        for name in chosen:
            say(name)
            # A loop each, since the gateway has threads of its own as those of the loop.
            figures[name] = asyncio.run(meter.door(name, at_a_time))
        grown = None
        if asks:
            say(f"{asks} asks")
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                grown = process.submit(grown_mb, asks, *world.store(140)).result()
    return {
        "machine": machine(),
        "versions": versions("crp-integrations", "langchain", "llama-index-core", "litellm"),
        "rounds": rounds,
        "asks": asks,
        "grown_mb": grown,
        "doors": figures,
    }


# The columns of the table; the last ones are printed alone.
COLUMNS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "cold ms": lambda door: _number(door["cold"]["above_ms"]),
    "warm ms": lambda door: _number(door["warm"]["1"]["above_ms"]),
    "queries": lambda door: f"{door['warm']['1']['queries_apart']:.1f}",
    "at 1": lambda door: _number((door["warm"].get("1") or {}).get("wall_ms")),
    "at 32": lambda door: _number((door["warm"].get("32") or {}).get("wall_ms")),
    "tokens": lambda door: f"{door['tokens']:+,}" if door["tokens"] else "",
    "disk, kB": lambda door: _number(door["disk_bytes"] / 1000) if "disk_bytes" in door else "",
    "texts embedded": lambda door: (
        f"{door['cold']['texts']:.0f} / {door['warm']['1']['texts']:.0f}"
    ),
    "gap": lambda door: _number(door.get("gap_ms")),
    "metadata, B": lambda door: _number(door.get("metadata_bytes")),
}
# The pages with a table: its columns, and a part of the names of its rows.
PAGES: Final[Mapping[str, tuple[Sequence[str], str]]] = {
    "docs/evidence/measurements.md": (tuple(COLUMNS)[:7], ""),
    "README.md": (("cold ms", "warm ms", "tokens", "disk, kB"), "00 facts|, 20|30|40|Handler"),
}
BEGIN, END = "<!-- costs -->\n\n", "\n<!-- /costs -->"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 10 else f"{value:.1f}"


def table(
    report: Mapping[str, Any], columns: Sequence[str] = tuple(COLUMNS), rows: str = ""
) -> str:
    """A row for each door in Markdown."""
    lines = [["", *columns], ["---", *("---:" for _ in columns)]]
    lines += [
        [name, *(COLUMNS[column](door) for column in columns)]
        for name, door in report["doors"].items()
        if re.search(rows, name)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def below(report: Mapping[str, Any]) -> str:
    """What the columns do not show: the unit, the growth of a process, the machine."""
    unit = statistics.median(door["query_ms"] for door in report["doors"].values())
    grown = report["grown_mb"]
    growth = f"{report['asks']:,} asks grow a process by {grown:.0f} MB. " if grown else ""
    on = report["machine"]
    return (
        f"Embedding a question takes {unit:.1f} ms. {growth}"
        f"{on['cores']} cores, {on['architecture']}, Python {on['python']}.\n"
    )


def write(report: Mapping[str, Any]) -> None:
    """Put the tables into the pages, between their marks."""
    for page, (columns, rows) in PAGES.items():
        path = ROOT / page
        head, _, rest = path.read_text(encoding="utf-8").partition(BEGIN.rstrip())
        more = "" if rows else f"\n{below(report)}"
        made = BEGIN + table(report, columns, rows) + more + END
        path.write_text(head + made + rest.partition(END.strip())[2], encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--doors", default="", help="part of the names of those wanted")
    parser.add_argument("--at-a-time", default="1,8,32", help="numbers, with commas between")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of plain and ours")
    parser.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds of a level")
    parser.add_argument("--asks", type=int, default=0, help="asks over which memory is measured")
    parser.add_argument("--unit", type=Path, help="a recipe's output, whose question is the unit")
    parser.add_argument("--quick", action="store_true", help="few short texts, for trying it out")
    parser.add_argument("--read", type=Path, help="a report of a former run, in place of a run")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--markdown", action="store_true", help="print the table of the docs")
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    options = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    if options.read:
        report = json.loads(options.read.read_text(encoding="utf-8"))
    else:
        quick = (
            {"rounds": 1, "calls": 2, "small": True}
            if options.quick
            else {"rounds": options.rounds}
        )
        report = run(
            [name for name in DOORS if options.doors in name],
            [int(level) for level in options.at_a_time.split(",")],
            patience_s=options.patience,
            asks=options.asks,
            unit=options.unit,
            say=lambda line: print(line, file=sys.stderr, flush=True),
            **quick,
        )
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if options.write:
        write(report)
    if options.markdown or not options.json:
        print(table(report))


if __name__ == "__main__":
    main()

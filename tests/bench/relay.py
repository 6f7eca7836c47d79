"""What the whole relay costs over a bare LiteLLM call, by step, on a loopback server.

python -m tests.bench.relay --at-a-time 1,8,32 --json OUT
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows
from tests.bench.fabric_corpus import Kind, embedder_of
from tests.bench.made_up import passages, question
from tests.bench.measure import has_one_thread, in_one_thread, loop_ms, machine, versions
from tests.bench.upstream import running

EMBEDDING = "embedding"


class Steps:
    """A tracer that adds up the processor time of the thread in which a step runs."""

    def __init__(self) -> None:
        self._ms: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self._open = threading.local()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step, inside another or not."""
        stack: list[float] = self._open.__dict__.setdefault("stack", [])
        stack.append(0.0)
        began = time.thread_time()
        try:
            yield
        finally:
            whole = (time.thread_time() - began) * 1000
            within = stack.pop()
            if stack:
                stack[-1] += whole
            with self._lock:
                self._ms[name] += whole - within

    def taken(self) -> Mapping[str, float]:
        """Milliseconds by step since this was last asked."""
        with self._lock:
            found = dict(self._ms)
            self._ms.clear()
        return found

    @contextmanager
    def around(self, owner: Any, name: str, step: str) -> Iterator[None]:
        """Count a function of a module or class as a step for a while."""
        plain: Callable[..., Any] = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            with self.step(step):
                return plain(*args, **kwargs)

        setattr(owner, name, counted)
        try:
            yield
        finally:
            setattr(owner, name, plain)


class TimedEmbedder:
    """An embedder whose time is a step."""

    def __init__(self, embedder: Embedder, steps: Steps) -> None:
        self._embedder = embedder
        self._steps = steps
        self.identity, self.dimensions = embedder.identity, embedder.dimensions
        self.thresholds = embedder.thresholds

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Unit rows of texts."""
        with self._steps.step(EMBEDDING):
            return self._embedder.embed_passages(texts)

    def embed_query(self, text: str) -> FloatRows:
        """A unit vector."""
        with self._steps.step(EMBEDDING):
            return self._embedder.embed_query(text)


ROWS: Final[tuple[tuple[str, Callable[[dict[str, Any]], float]], ...]] = (
    ("bare LiteLLM call", lambda level: level["bare"]["cpu_ms"]),
    ("the same through the relay", lambda level: level["relay"]["cpu_ms"]),
    ("overhead", lambda level: level["overhead_cpu_ms"]),
    ("of it embedding", lambda level: level["embedding_cpu_ms"]),
    ("of it verification", lambda level: level["verification_cpu_ms"]),
    ("of it apart from both", lambda level: level["apart_from_both_cpu_ms"]),
    ("a fixed loop of plain Python", lambda level: level["loop_cpu_ms"]),
    ("wall time, bare", lambda level: level["bare"]["wall_ms"]),
    ("wall time, relay", lambda level: level["relay"]["wall_ms"]),
)


def table(report: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of a report: a name, then milliseconds of processor time a call by calls at a time."""
    levels = list(report["levels"].values())
    for name, read in ROWS:
        yield name, *(f"{read(level):.2f}" for level in levels)
    for name in levels[0]["steps"]:
        yield f"- {name}", *(f"{level['steps'].get(name, 0.0):.2f}" for level in levels)


FACTS: Final = 2_000
BUDGET: Final = 2_048
CALLS: Final = 64
ROUNDS: Final = 7
AT_A_TIME: Final = (1, 8, 32)
MODEL: Final = "openai/gpt-4o-mini"
# What the issue asks for, in milliseconds of processor time a call.
WANTED_MS: Final = 5.0
# The provenance engine's stages, all thirteen, and the index that they read: the verification of an
# answer. Whatever has another name is overhead, the report's hash and the headers too.
VERIFICATION: Final = "dpe."
REST: Final = "rest: threads, event loop, request"

Call = Callable[[str], Awaitable[object]]


def run(
    at_a_time: Sequence[int] = AT_A_TIME,
    *,
    facts: int = FACTS,
    calls: int = CALLS,
    rounds: int = ROUNDS,
    budget_tokens: int = BUDGET,
    embedder: Kind = "minilm",
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure.

    Args:
        at_a_time: how many calls are open together, one level after the other.
        facts: passages in the store.
        calls: calls of a round, of each kind.
        rounds: bare and relayed calls take turns so often; medians are reported.
        budget_tokens: of an envelope.
        embedder: `minilm`, or `hash` for trying this out.
        say: told what is going on.

    Returns:
        A report in plain JSON.
    """
    from crp_integrations.litellm import CRPRouter, attempt_packing, deployments
    from crp_integrations.litellm import router as router_module
    from crp_integrations.relay.relay import Relay
    from crp_integrations.relay.settings import DispatchSettings

    # LiteLLM warns of everything that a loopback server is not.
    logging.getLogger("LiteLLM").setLevel(logging.ERROR)
    steps = Steps()
    # What is ours and outside the relay's own steps.
    further = (
        (router_module, "proven_response", "litellm: proof on the response"),
        (deployments.WatchedTurn, "begin", "relay: begin, outside its steps"),
        (deployments.WatchedTurn, "receive", "relay: receive, outside its steps"),
        (attempt_packing.CallAttempts, "fit", "litellm: packing for an attempt"),
    )
    say(f"reading {facts} passages")
    found = passages(facts)
    with ExitStack() as stack:
        for owner, name, step in further:
            stack.enter_context(steps.around(owner, name, step))
        address = stack.enter_context(running())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        timed = TimedEmbedder(embedder_of(embedder), steps)
        # One model call a question, as the bare one: an answer that is incomplete stays so.
        once = DispatchSettings(redispatches=0, continue_incomplete=False)
        opened = Relay.open(folder, embedder=timed, tracer=steps, dispatch=once)
        relay = stack.enter_context(opened)
        say("embedding them")
        relay.fabric.add([one.text for one in found])
        entry = {
            "model_name": "main",
            "litellm_params": {"model": MODEL, "api_base": address, "api_key": "none"},
        }
        called = CRPRouter([entry], relay=relay, num_retries=0)
        asked = [question(one) for one in found[:: max(1, facts // calls)]][:calls]
        sent = {one: _messages(relay, one, budget_tokens) for one in asked}

        told: Counter[str] = Counter()

        async def bare(query: str) -> object:
            return await called.router.acompletion(model="main", messages=sent[query])

        async def relayed(query: str) -> object:
            said = [{"role": "user", "content": query}]
            response = await called.acompletion("main", said, budget_tokens=budget_tokens)
            told["answers"] += 1
            told["model_calls"] += len(response.crp_calls)
            told["tokens"] += response.crp_envelope["token_count"]
            told["facts"] += len(response.crp_envelope["facts"])
            told["claims"] += len(response.crp["claims"])
            return response

        async def all_levels() -> dict[str, Any]:
            await _block(bare, asked[:8], 2)
            await _block(relayed, asked[:8], 2)
            return {
                str(level): await _level(level, bare, relayed, asked, steps, rounds, say)
                for level in at_a_time
            }

        levels = asyncio.run(all_levels())
        trail = relay.verify()
    report: dict[str, Any] = {
        "machine": machine(),
        "versions": versions("crp-integrations", "litellm", "onnxruntime"),
        "facts": facts,
        "budget_tokens": budget_tokens,
        "calls": len(asked),
        "rounds": rounds,
        "embedder": embedder,
        "windows_verified": trail.windows,
        "mean": {
            name: round(told[name] / told["answers"], 2)
            for name in ("model_calls", "tokens", "facts", "claims")
        },
        "levels": levels,
    }
    return {**report, "bars": bars(report)}


async def _level(
    level: int,
    bare: Call,
    relayed: Call,
    asked: Sequence[str],
    steps: Steps,
    rounds: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    seen: dict[str, list[tuple[float, float]]] = {"bare": [], "relay": []}
    parts: list[Mapping[str, float]] = []
    loops: list[float] = []
    for number in range(rounds):
        say(f"{level} at a time, round {number + 1} of {rounds}")
        seen["bare"].append(await _block(bare, asked, level))
        steps.taken()
        loops.append(loop_ms())
        seen["relay"].append(await _block(relayed, asked, level))
        parts.append({name: ms / len(asked) for name, ms in steps.taken().items()})
    told = {
        kind: {
            "cpu_ms": statistics.median(cpu for cpu, _ in blocks),
            "wall_ms": statistics.median(wall for _, wall in blocks),
        }
        for kind, blocks in seen.items()
    }
    names = sorted({name for part in parts for name in part})
    by_step = {name: statistics.median(part.get(name, 0.0) for part in parts) for name in names}
    over = statistics.median(
        ours[0] - theirs[0] for ours, theirs in zip(seen["relay"], seen["bare"], strict=True)
    )
    embedding = by_step.get(EMBEDDING, 0.0)
    verification = sum(ms for name, ms in by_step.items() if name.startswith(VERIFICATION))
    by_step[REST] = over - sum(by_step.values())
    return {
        **told,
        "overhead_cpu_ms": over,
        "overhead_wall_ms": told["relay"]["wall_ms"] - told["bare"]["wall_ms"],
        "embedding_cpu_ms": embedding,
        "verification_cpu_ms": verification,
        "apart_from_both_cpu_ms": over - embedding - verification,
        "loop_cpu_ms": statistics.median(loops),
        "steps": dict(sorted(by_step.items(), key=lambda item: -item[1])),
    }


async def _block(call: Call, asked: Sequence[str], at_a_time: int) -> tuple[float, float]:
    """Processor and wall time a call in milliseconds, what LiteLLM does afterwards included."""
    waiting = iter(asked)

    async def one_after_the_other() -> None:
        for query in waiting:
            await call(query)

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(at_a_time)))
    passed = time.perf_counter() - wall
    # LiteLLM logs a call after it has answered.
    await asyncio.sleep(0.2)
    return (
        (time.process_time() - cpu) * 1000 / len(asked),
        passed * 1000 * at_a_time / len(asked),
    )


def _messages(relay: Any, query: str, budget_tokens: int) -> list[dict[str, Any]]:
    """The messages of a relayed call, for a bare one to carry the same."""
    from crp_integrations.litellm.attempt_packing import message_list
    from crp_integrations.relay.prompt import prompt_messages

    turn = relay.turn(query, model=MODEL, budget_tokens=budget_tokens)
    return message_list(prompt_messages(turn.request, turn.preview().text))


def bars(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was asked for beside what was measured."""
    return [
        {
            "name": f"apart from embedding and verification, {level} at a time",
            "wanted": f"at most {WANTED_MS:g} ms of processor time a call",
            "measured": f"{measured['apart_from_both_cpu_ms']:.1f} ms",
            "met": measured["apart_from_both_cpu_ms"] <= WANTED_MS,
        }
        for level, measured in report["levels"].items()
    ]


MODULE = "tests.bench.relay"


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--at-a-time", default="1,8,32", help="numbers, with commas between")
    parser.add_argument("--facts", type=int, default=FACTS, help="of the store")
    parser.add_argument("--calls", type=int, default=CALLS, help="of a round, of each kind")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="bare and relayed in turns")
    parser.add_argument("--budget", type=int, default=BUDGET, help="tokens of an envelope")
    parser.add_argument("--embedder", choices=("minilm", "hash"), default="minilm")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--quiet", action="store_true", help="print no table")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    report = run(
        [int(level) for level in given.at_a_time.split(",")],
        facts=given.facts,
        calls=given.calls,
        rounds=given.rounds,
        budget_tokens=given.budget,
        embedder=given.embedder,
        say=_say,
    )
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if given.quiet:
        return
    for name, *cells in table(report):
        print(f"{name:38}", *(f"{cell:>9}" for cell in cells))
    for bar in report["bars"]:
        print(f"{'met' if bar['met'] else 'NOT MET':8} {bar['name']}: {bar['measured']}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()

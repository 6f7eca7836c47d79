"""Bare calls and relayed calls in turns, at several numbers at a time."""

from __future__ import annotations

import asyncio
import logging
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from crp_integrations.bench.fabric.embeddings import Kind, embedder_of
from crp_integrations.bench.measure import loop_ms, machine, versions
from crp_integrations.bench.relay.data import passages, question
from crp_integrations.bench.relay.server import running
from crp_integrations.bench.relay.steps import EMBEDDING, Steps, TimedEmbedder

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
    from crp_integrations.litellm import CRPRouter, deployments, hook
    from crp_integrations.litellm import router as router_module
    from crp_integrations.relay.relay import Relay
    from crp_integrations.relay.settings import DispatchSettings

    # LiteLLM warns of everything that a loopback server is not.
    logging.getLogger("LiteLLM").setLevel(logging.ERROR)
    steps = Steps()
    # What is ours and outside the relay's own steps.
    further = (
        (router_module, "attached", "litellm: proof on the response"),
        (deployments.Watched, "begin", "relay: begin, outside its steps"),
        (deployments.Watched, "receive", "relay: receive, outside its steps"),
        (hook.Attempts, "fit", "litellm: packing for an attempt"),
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
    from crp_integrations.litellm.wire import sent
    from crp_integrations.relay.prompt import prompt_messages

    turn = relay.turn(query, model=MODEL, budget_tokens=budget_tokens)
    return sent(prompt_messages(turn.request, turn.preview().text))


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

"""Rank, pack and order beside other libraries and the printed loops, on made-up candidates.

A peer that is not installed is left out and the report says so.

    python -m tests.bench.packing --candidates 500,5000 --facts 100000 --json OUT
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.assemble import assemble
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.retrieval import gather
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.scores import from_fixed
from crp_integrations.vectors import unit_rows
from crp_integrations.vocabulary import GroundingMode
from tests.bench.fabric_corpus import Known
from tests.bench.fabric_measures import Instant, opened
from tests.bench.measure import cpu_ms, has_one_thread, in_one_thread, machine, versions
from tests.bench.packing_material import DIMENSIONS, NOW, SIMILARITY, Material, loops, make

ASKED = 40
ROUNDS = 5
# The step that a search for words reports itself as.
WORDS = "fabric.words"


def measure(
    count: int,
    budget_tokens: int,
    counter: TokenCounter,
    say: Callable[[str], None],
    exact: Path | None = None,
) -> dict[str, Any]:
    """Medians of processor time in milliseconds, over questions that were asked once before.

    Stages are everything from the question's vector to its envelope, with the settings as they are
    by default, apart from the searches for words: those of the question and of the second hop.
    `nearest_ms` is a part of `gather_ms`, measured by itself.

    Args:
        exact: folder of the float32 network, as the recipe writes it.
    """
    report: dict[str, Any] = {"facts": count, **_embedding(exact)}
    material = make(count, counter)
    texts = [fact.content for fact in material.facts]
    questions = [f"Which rule holds for contract {number}?" for number in range(ASKED)]
    generator = np.random.default_rng(1)
    near = generator.integers(count, size=ASKED)
    # A question lies near some passage, at about .6.
    noise = generator.normal(size=(ASKED, DIMENSIONS)) / np.sqrt(DIMENSIONS)
    asked = unit_rows(material.rows[near] + 1.3 * noise)
    known = Known(Instant(DIMENSIONS), [*texts, *questions], np.concatenate([material.rows, asked]))
    settings = EnvelopeSettings()
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), known) as ours:
        say(f"storing {count} facts")
        # In one batch, so that the graph covers all of them.
        ours.namespace.add([Fact(content=text) for text in texts])
        steps = ours.watch.steps

        def asking(question: str) -> tuple[float, float, float, int, int]:
            """Milliseconds before the envelope, in it and in word search; candidates and packed."""
            inside, worded = known.seconds, steps.get(WORDS, 0.0)
            before = time.process_time()
            found = gather(ours.namespace, question, counter=counter, settings=settings)
            middle = time.process_time()
            envelope = assemble(
                found,
                budget_tokens=budget_tokens,
                counter=counter,
                grounding=GroundingMode.PREFERRED,
                settings=settings,
                now=NOW,
            )
            after = time.process_time()
            words = steps.get(WORDS, 0.0) - worded
            gathered = 1000 * (middle - before - (known.seconds - inside)) - words
            return gathered, 1000 * (after - middle), words, len(found.facts), len(envelope.facts)

        first = [asking(question) for question in questions]
        # Facts, profiles and token counts are at hand from here on.
        again = [asking(question) for _ in range(ROUNDS) for question in questions]
        nearest = [
            cpu_ms(lambda v=vector: ours.namespace.nearest(v, settings.k_nearest + 1))  # type: ignore[misc]
            for vector in asked
        ]
    names = ("gather_ms", "assemble_ms", "words_ms", "candidates", "packed")
    columns = zip(names, zip(*again, strict=True), strict=True)
    report |= {name: statistics.median(values) for name, values in columns}
    report["nearest_ms"] = statistics.median(nearest)
    report["stages_ms"] = statistics.median(row[0] + row[1] for row in again)
    report["first_stages_ms"] = statistics.median(row[0] + row[1] for row in first)
    return report


def _embedding(exact: Path | None) -> dict[str, Any]:
    """One question through the network that ships, and through the float32 one where given."""
    questions = [f"Which rule holds for the contract of supplier {n}?" for n in range(30)]
    found: dict[str, Any] = {"shipped_query_ms": _query_ms(OnnxEmbedder(), questions)}
    if exact is not None:
        found["float32_query_ms"] = _query_ms(OnnxEmbedder(exact), questions)
    return found


def _query_ms(embedder: OnnxEmbedder, questions: list[str]) -> float:
    embedder.embed_query(questions[0])
    return statistics.median(
        cpu_ms(lambda q=question: embedder.embed_query(q))  # type: ignore[misc]
        for question in questions
    )


MODEL = "gpt-4o"
BUDGET = 2_048
RUNS = 31
SECONDS = 20.0
PEERS = ("langchain-core", "langchain-community", "llama-index-core", "numpy", "onnxruntime")
Say = Callable[[str], None]


class Watched:
    """A token counter that tells how much was counted."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self.identity, self.source = counter.identity, counter.source
        self.exactness = counter.exactness
        self.texts = 0

    def count(self, text: str) -> int:
        """Tokens of a text."""
        self.texts += 1
        return self._counter.count(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        self.texts += len(texts)
        return self._counter.count_many(texts)

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of messages."""
        return self._counter.count_messages(messages)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of tool schemas."""
        return self._counter.count_tools(tools)


def run(
    sizes: Sequence[int],
    *,
    facts: int,
    budget_tokens: int = BUDGET,
    exact: Path | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measure at each number of candidates, and over a store of so many facts.

    Args:
        sizes: numbers of candidates, at least 24.
        facts: facts of the store; 0 leaves it out.
        budget_tokens: tokens to fill.
        exact: folder of the float32 MiniLM, as its recipe writes it; None compares with what ships.
        say: told what is being done.
    """
    counter = counter_for(MODEL)
    report: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(*PEERS),
        "budget_tokens": budget_tokens,
        "tokenizer": counter.identity,
        "sizes": {},
    }
    for size in sizes:
        say(f"{size} candidates")
        report["sizes"][str(size)] = _size(make(size, counter), budget_tokens, counter, say)
    if facts:
        report["stored"] = measure(facts, budget_tokens, counter, say, exact)
    report["bars"] = bars(report)
    return report


def _size(
    material: Material, budget_tokens: int, counter: TokenCounter, say: Say
) -> dict[str, Any]:
    settings = EnvelopeSettings()

    def ours(counter: TokenCounter = counter) -> Envelope:
        return assemble(
            material.candidates(),
            budget_tokens=budget_tokens,
            counter=counter,
            grounding=GroundingMode.PREFERRED,
            settings=settings,
            now=NOW,
        )

    first_ms = cpu_ms(ours)
    watched = Watched(counter)
    envelope = ours(watched)
    found: dict[str, Any] = {
        "candidates": len(material.facts),
        "tokens_each": statistics.mean(fact.tokens for fact in material.facts),
        "packed": len(envelope.facts),
        "duplicates": sum(drop.reason.value == "duplicate" for drop in envelope.dropped),
        "texts_counted": watched.texts,
    }
    systems: dict[str, dict[str, Any]] = {
        "ours": {
            "name": "crp-integrations, greedy",
            "first_ms": first_ms,
            # Records of what was left out are made when somebody reads them: here all of them.
            "report_read_ms": _read_ms([ours() for _ in range(5)]),
        }
    }
    calls: dict[str, Callable[[], object]] = {"ours": ours}
    for key, (name, call) in _peers(material, budget_tokens, counter, len(envelope.facts)).items():
        systems[key] = {"name": name}
        if call is not None:
            calls[key] = call
    for key, call in calls.items():
        say(f"  {systems[key]['name']}")
        systems[key]["ms"], systems[key]["runs"] = _median(call)
    # Once more: the other systems ran in between, and the machine may be busier now.
    again, _ = _median(ours)
    systems["ours"]["again_ms"] = again
    return {**found, "systems": systems}


def _peers(
    material: Material, budget_tokens: int, counter: TokenCounter, packed: int
) -> dict[str, tuple[str, Callable[[], object] | None]]:
    order = list(material.by_relevance)
    texts = [material.facts[at].content for at in order]
    rows = material.rows[order]
    tokens = {fact.content: fact.tokens for fact in material.facts}
    found: dict[str, tuple[str, Callable[[], object] | None]] = {
        "literal": (
            "003 as printed, in loops",
            lambda: loops(
                material.facts,
                material.rows,
                token_budget=budget_tokens,
                now=NOW,
                counter=counter,
            ),
        )
    }
    try:
        from tests.bench.peers.langchain_packing import LangChainChain, LangChainMMR
    except ImportError as error:
        found["langchain"] = (f"LangChain: {error}", None)
    else:
        chain = LangChainChain(texts, rows, SIMILARITY)
        mmr = LangChainMMR(material.vector, rows)
        found["langchain"] = (chain.name, lambda: chain.run(counter.count, budget_tokens))
        found["langchain_counted"] = (
            f"{chain.name}, counts at hand",
            lambda: chain.run(tokens.__getitem__, budget_tokens),
        )
        found["langchain_mmr"] = (f"{mmr.name}, k = {packed}", lambda: mmr.run(packed))
    try:
        from tests.bench.peers.llama_index_packing import (
            LlamaIndexMMR,
            LlamaIndexPostprocessors,
        )
    except ImportError as error:
        found["llama_index"] = (f"LlamaIndex: {error}", None)
    else:
        scores = [from_fixed(material.facts[at].relevance) for at in order]
        steps = LlamaIndexPostprocessors(texts, scores)
        marginal = LlamaIndexMMR(material.vector, rows)
        found["llama_index"] = (steps.name, lambda: steps.run(counter.count, budget_tokens))
        found["llama_index_mmr"] = (
            f"{marginal.name}, k = {packed}",
            lambda: marginal.run(packed),
        )
    return found


def _read_ms(envelopes: Sequence[Envelope]) -> float:
    """Median processor time to read a drop report that nobody has read."""
    return statistics.median(
        cpu_ms(lambda dropped=envelope.dropped: list(dropped))  # type: ignore[misc]
        for envelope in envelopes
    )


def _median(call: Callable[[], object]) -> tuple[float, int]:
    """Median processor time; dear calls run three times, very dear ones once."""
    taken = [cpu_ms(call)]
    if taken[0] > 1000 * SECONDS:
        return taken[0], 1
    # The first run does not count.
    taken.clear()
    until = time.perf_counter() + SECONDS
    while len(taken) < RUNS and (len(taken) < 3 or time.perf_counter() < until):
        taken.append(cpu_ms(call))
    return statistics.median(taken), len(taken)


def bars(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The demands that were asked of this measurement, each beside what was measured."""
    found: list[dict[str, Any]] = []
    for size, peer, least in (
        ("500", "langchain", 15),
        ("500", "literal", 40),
        ("5000", "langchain", 100),
    ):
        systems = report["sizes"].get(size, {}).get("systems", {})
        if "ms" not in systems.get(peer, {}):
            continue
        # The middle between ours before the others and ours after them.
        ours = (systems["ours"]["ms"] + systems["ours"]["again_ms"]) / 2
        ratio = systems[peer]["ms"] / ours
        found.append(
            {
                "name": f"{size} candidates beside {systems[peer]['name']}",
                "wanted": f"at least {least} times faster",
                "measured": f"{ratio:.1f} times",
                "met": ratio >= least,
            }
        )
    for size, measured in report["sizes"].items():
        texts = measured["texts_counted"]
        found.append(
            {
                "name": f"{size} candidates, counted before",
                "wanted": "no token counted twice: the rendered text alone is counted",
                "measured": f"{texts} text",
                "met": texts == 1,
            }
        )
    if "stored" in report:
        found.append(_after_embedding(report["stored"]))
    return found


def _after_embedding(measured: dict[str, Any]) -> dict[str, Any]:
    key = "float32_query_ms" if "float32_query_ms" in measured else "shipped_query_ms"
    share = measured["stages_ms"] / measured[key]
    name = key.removesuffix("_query_ms")
    return {
        "name": f"all stages after embedding, words apart, {measured['facts']} facts",
        "wanted": "at most 30 % of one float32 MiniLM query embedding in onnxruntime",
        "measured": f"{100 * share:.0f} % of the {name} one "
        f"({measured['stages_ms']:.2f} of {measured[key]:.2f} ms; "
        f"words {measured['words_ms']:.2f} ms)",
        "met": share <= 0.30,
    }


MODULE = "tests.bench.packing"


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--candidates", default="500,5000", help="sizes, with commas between")
    parser.add_argument("--facts", type=int, default=100_000, help="of the store; 0 for none")
    parser.add_argument("--budget", type=int, default=BUDGET, help="tokens to fill")
    parser.add_argument("--float", type=Path, help="the MiniLM recipe's output in float32")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    sizes = [int(size) for size in given.candidates.split(",")]
    report = run(sizes, facts=given.facts, budget_tokens=given.budget, exact=given.float, say=_say)
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if given.quiet:
        return
    for row in table(report):
        print("{:>7}  {:90} {:>10} {:>8}".format(*row))
    for bar in report["bars"]:
        print(f"{'met' if bar['met'] else 'NOT MET':8} {bar['name']}: {bar['measured']}")


def table(report: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """The rows of a report: candidates, system, milliseconds, times ours."""
    for size, measured in report["sizes"].items():
        ours = measured["systems"]["ours"]["ms"]
        for system in measured["systems"].values():
            if "ms" not in system:
                yield size, system["name"], "", ""
                continue
            taken = system["ms"]
            yield size, system["name"], f"{taken:.2f}", f"{taken / ours:.1f}"


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()

"""How a context holds up as it grows, beside two frameworks' stores as they come.

Distractors, order of the store, noise, compaction, prefixes, tenants, and answers of a model.
`crp eval rot` measures distractors and answers of ours alone. It measures only: nothing here is
fitted.

    python -m tests.bench.rot --data DIR --json rot.json --html rot.html --plots curves/
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from crp_integrations.engines.models import Models
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.engines.tokens import counter_for
from crp_integrations.engines.vector_cache import CachedEmbedder, VectorCache
from crp_integrations.envelope.prompt import render
from crp_integrations.errors import CRPError, RequestError
from crp_integrations.evaluation.context_metrics import MeasuredContext, TextAxis
from crp_integrations.evaluation.context_rot import (
    BUDGET,
    BUDGETS,
    CRP,
    QUESTIONS,
    SIZES,
    TIMEOUT_S,
    Point,
    PointMeans,
    RotOpener,
    RotPlan,
    RotQuestion,
    answered,
    distractors,
    find_questions,
    read_questions,
)
from crp_integrations.evaluation.data_sets import Collection, SetDocument
from crp_integrations.evaluation.selection import MODEL, Say
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import Subject
from crp_integrations.ports import Embedder, Model, TokenCounter
from crp_integrations.relay.build import open_relay
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from tests.bench import compaction
from tests.bench.injection import cases
from tests.bench.measure import versions
from tests.bench.selection_peers import Corpus, pack, units

# Passages asked of a peer's store, from its default upwards.
KS: Final = (2, 4, 8, 16, 32, 64)
SHUFFLES: Final = 3
# Settings of ours that a scenario puts beside the default.
SCREENED: Final = "crp, screened"
SCREENING: Final = {"envelope": {"screening": {"enabled": True}}}
STABLE: Final = "crp, cache-stable"
# Tenants in one store, each with facts that name a canary, and the questions that each asks.
TENANTS: Final = 20
TENANT_QUESTIONS: Final = 10
LIBRARIES: Final = ("crp-integrations", "langchain-core", "llama-index-core", "numpy", "tiktoken")
NAMES: Final = ("distractors", "growing", "order", "noise", "compaction", "prefix", "tenants")


class Store:
    """A framework's store: the k nearest passages, best first, as far as they fit."""

    def __init__(
        self,
        kind: Callable[[], type[Any]],
        collection: Collection,
        axis: TextAxis,
        embedder: Embedder,
        counter: TokenCounter,
    ) -> None:
        """Fill the store.

        Args:
            kind: imports the store's class.

        Raises:
            ImportError: the framework is not installed.
        """
        self._corpus = corpus = Corpus(units(collection.texts, axis, counter), embedder)
        self._store = kind()(corpus.ids, corpus.texts, corpus.rows)
        self._counter = counter

    def pack(self, question: str, budget: int, k: int | None = None) -> MeasuredContext:
        """The nearest passages in rank order."""
        vector = self._corpus.embedder.embed_query(question)
        found = self._store.search(vector, k or self._store.default_k)
        return pack([self._corpus.units[int(place)] for place, _ in found], budget, self._counter)

    def conversation(self, questions: Sequence[str], budget: int) -> list[str]:
        """Each as if it were asked alone: a store knows of no conversation."""
        packs = [self.pack(question, budget) for question in questions]
        return [render([unit.text for unit in packed.units]) for packed in packs]

    def close(self) -> None:
        """Nothing is held."""


def _langchain() -> type[Any]:
    from tests.bench.peers.langchain import LangChainInMemory

    return LangChainInMemory


def _llama_index() -> type[Any]:
    from tests.bench.peers.llama_index import LlamaIndexSimple

    return LlamaIndexSimple


PEERS: Final[Mapping[str, RotOpener]] = {
    "langchain": partial(Store, _langchain),
    "llama_index": partial(Store, _llama_index),
}
SYSTEMS: Final = (CRP, *PEERS)


def shuffled(collection: Collection, seed: int) -> Collection:
    """The same collection with its texts in another order."""
    texts = list(collection.texts)
    random.Random(seed).shuffle(texts)
    return Collection(collection.name, tuple(texts), collection.questions)


def growing(plan: RotPlan) -> list[Point]:
    """Gold in contexts that grow: k of the peers, and as many tokens for ours."""
    means = PointMeans()
    for collection, axis in plan.collections():
        cut = units(collection.texts, axis, plan.counter)
        typical = fmean(unit.tokens for unit in cut)
        for name in plan.systems:
            system = plan.open(name, collection, axis)
            if system is None:
                continue
            for question in collection.questions:
                for k in (k for k in KS if k <= len(cut)):
                    room = round(k * typical) if name == CRP else 10**6
                    packed = system.pack(question.query, room, k)
                    means.add({"system": name, "k": k}, plan.found(question, axis, packed))
            system.close()
    return means.points()


def order(plan: RotPlan) -> list[Point]:
    """The same store filled in other orders: whether the context is the same, byte for byte.

    `first`, `middle` and `last` are the shares of golds found by the third of the store that they
    were put in: a system that prefers a position of its store shows it here.
    """
    means = PointMeans()
    for collection, axis in plan.collections():
        for name in plan.systems:
            before: dict[str, tuple[str, ...]] = {}
            for number in range(SHUFFLES + 1):
                stored = shuffled(collection, number) if number else collection
                system = plan.open(name, stored, axis)
                if system is None:
                    break
                places = {text.doc_id: place for place, text in enumerate(stored.texts)}
                for question in collection.questions:
                    packed = system.pack(question.query, plan.budget)
                    said = tuple(unit.text for unit in packed.units)
                    same = before.setdefault(question.query_id, said) == said
                    gold = plan.found(question, axis, packed)["gold"]
                    place = places[question.evidence[0].doc_id] / len(places)
                    third = ("first", "middle", "last")[min(2, int(3 * place))]
                    means.add(
                        {"system": name},
                        {third: gold} | ({"same": float(same)} if number else {}),
                    )
                system.close()
    return means.points()


def noise(plan: RotPlan, attacks: Sequence[str], screened: Mapping[str, Any]) -> list[Point]:
    """For each question a passage that repeats it and carries an injection.

    Args:
        attacks: texts that carry one, taken in turn.
        screened: settings of ours that screen facts.
    """
    means = PointMeans()
    for collection, _ in plan.collections():
        bad = tuple(
            SetDocument(
                f"x{number}",
                "",
                f"{question.query.capitalize()}? {attacks[number % len(attacks)]}",
            )
            for number, question in enumerate(collection.questions)
        )
        stored = Collection(collection.name, (*collection.texts, *bad), collection.questions)
        axis = TextAxis(stored.texts)
        for name in [*plan.systems, *([SCREENED] if CRP in plan.systems else [])]:
            chosen = screened if name == SCREENED else {}
            system = plan.open(name, stored, axis, chosen)
            if system is None:
                continue
            for question in collection.questions:
                packed = system.pack(question.query, plan.budget)
                within = [unit for unit in packed.units if unit.doc_id.startswith("x")]
                means.add(
                    {"system": name},
                    {
                        "gold": plan.found(question, axis, packed)["gold"],
                        "clean": float(not within),
                        "injected_share": sum(unit.tokens for unit in within)
                        / max(1, sum(unit.tokens for unit in packed.units)),
                    },
                )
            system.close()
    return means.points()


def prefix(plan: RotPlan) -> list[Point]:
    """How much of a context a provider's prefix cache can take over at a follow-up question."""
    means = PointMeans()
    for collection, axis in plan.collections():
        for name in [*plan.systems, *([STABLE] if CRP in plan.systems else [])]:
            chosen = {"envelope": {"layout": "cache-stable"}} if name == STABLE else {}
            system = plan.open(name, collection, axis, chosen)
            if system is None:
                continue
            for question in collection.questions:
                title = plan.by_query[question.query].title
                asked = (question.query, f"{question.query} {title}", f"What else about {title}?")
                for before, text in pairwise(system.conversation(asked, plan.budget)):
                    shared = plan.counter.count(_head(before, text))
                    tokens = plan.counter.count(text)
                    means.add(
                        {"system": name}, {"reused": shared / (tokens or 1), "tokens": tokens}
                    )
            system.close()
    return means.points()


def _head(one: str, other: str) -> str:
    """The text that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return one[: next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))]


def canary(tenant: int) -> str:
    """Letters that stand in the facts of one tenant alone."""
    return f"canary{sha256(f'tenant {tenant}')[7:23]}"


def tenants(plan: RotPlan) -> list[Point]:
    """Envelopes of each tenant that hold a canary of their own, or of another."""
    if CRP not in plan.systems:
        return []
    asked = plan.asked[:TENANT_QUESTIONS]
    own = leaked = envelopes = 0
    with ExitStack() as opened:
        store = MemoryStore()
        relays = [
            opened.enter_context(
                open_relay(store, subject=Subject(tenant=f"t{n}"), embedder=plan.embedder)
            )
            for n in range(TENANTS)
        ]
        for number, relay in enumerate(relays):
            relay.add([_fact(one, number) for one in asked])
        for number, relay in enumerate(relays):
            others = [canary(other) for other in range(TENANTS) if other != number]
            for one in asked:
                made = relay.turn(one.query, model=MODEL, budget_tokens=plan.budget).preview()
                said = made.model_dump_json()
                own += canary(number) in said
                leaked += any(other in said for other in others)
                envelopes += 1
    return [
        {
            "system": CRP,
            "tenants": TENANTS,
            "questions": envelopes,
            "own": own / envelopes,
            "leaked": leaked / envelopes,
        }
    ]


def _fact(one: RotQuestion, tenant: int) -> Fact:
    return Fact(content=f"{one.passage} Reference {canary(tenant)}.", source_id=f"file-{tenant}")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run.

    Attributes:
        scenarios: names out of `NAMES`; `answered` runs wherever a model is named.
        questions: at most so many for each point.
        sizes: numbers of passages of the distractor scenario.
        budgets: tokens of its contexts.
        budget: tokens of the contexts of the other scenarios.
        model: as LiteLLM names it; empty asks no model.
    """

    scenarios: Sequence[str] = NAMES
    systems: Sequence[str] = SYSTEMS
    questions: int = QUESTIONS
    sizes: Sequence[int] = SIZES
    budgets: Sequence[int] = BUDGETS
    budget: int = BUDGET
    model: str = ""

    def check(self) -> None:
        """Refuse names that there are not.

        Raises:
            RequestError: names the first one, and those that there are.
        """
        for kind, given, known in (
            ("scenario", self.scenarios, NAMES),
            ("system", self.systems, SYSTEMS),
        ):
            if wrong := [name for name in given if name not in known]:
                raise RequestError(f"{kind} {wrong[0]!r:.40} is not one of {', '.join(known)}")


def run(
    path: Path,
    chosen: Plan,
    *,
    cache: Path | None = None,
    embedder: Embedder | None = None,
    models: Model | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measure.

    Args:
        path: the file of questions, see `context_rot`.
        cache: folder that keeps vectors between runs.
        embedder: None for the one that ships.
        models: answers the calls of a plan that names a model; None for LiteLLM.
        say: called with the name of each scenario.

    Raises:
        RequestError: the file is not of the form, or a name of the plan is not known.
        ModelError: a call of the model failed.
    """
    chosen.check()
    asked = read_questions(path)
    counter = counter_for(MODEL)
    vectors = CachedEmbedder(embedder or OnnxEmbedder(), VectorCache(folder=cache))
    plan = RotPlan(
        asked,
        vectors,
        counter,
        chosen.questions,
        chosen.sizes,
        chosen.budgets,
        chosen.budget,
        chosen.systems,
        PEERS,
    )
    attacks = [case.text for case in cases() if case.held]
    made: dict[str, Callable[[], list[Point]]] = {
        "distractors": lambda: distractors(plan),
        "growing": lambda: growing(plan),
        "order": lambda: order(plan),
        "noise": lambda: noise(plan, attacks, SCREENING),
        "compaction": lambda: _compacted(path, chosen.questions),
        "prefix": lambda: prefix(plan),
        "tenants": lambda: tenants(plan),
    }
    results: dict[str, list[Point]] = {}
    for name in chosen.scenarios:
        say(name)
        results[name] = made[name]()
    if chosen.model:
        say("answered")
        results["answered"] = answered(plan, models or Models(timeout_s=TIMEOUT_S), chosen.model)
    return {
        "results": results,
        "settings": {
            "questions": path.name.split(".")[0],
            "passages": len(asked),
            "at_most": chosen.questions,
            "tokenizer": counter.identity,
            "embedder": vectors.identity,
            "model": chosen.model,
            "budget": chosen.budget,
            "missing": plan.missing,
        },
        "versions": versions(*LIBRARIES),
    }


def _compacted(path: Path, questions: int) -> list[Point]:
    """Answers that stand in a passage still when half of its tokens are kept."""
    found = list(compaction.answers(path))
    chosen = found[:: max(1, len(found) // questions)][:questions]
    ways = compaction.measure(chosen, counter_for(MODEL))
    return [
        {"system": name, "questions": len(chosen), "kept": value["kept"]}
        for name, value in ways.items()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure, write what was asked for, and print the points; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--html", type=Path)
    parser.add_argument("--plots", type=Path)
    parser.add_argument("--scenarios", default=",".join(NAMES))
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--model", default="")
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args(arguments)
    chosen = Plan(
        scenarios=_words(given.scenarios),
        systems=_words(given.systems),
        questions=given.questions,
        sizes=[int(one) for one in _words(given.sizes)],
        budgets=[int(one) for one in _words(given.budgets)],
        budget=given.budget,
        model=given.model,
    )
    try:
        (path, *_) = find_questions(given.data)
        report = run(path, chosen, cache=given.cache, say=lambda line: print(line, file=sys.stderr))
        if given.json:
            given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        if given.html or given.plots:
            from tests.bench.rot_report import page, plots

            drawn = plots(report["results"])
            if given.html:
                given.html.write_text(page(report, drawn), encoding="utf-8")
            if given.plots:
                given.plots.mkdir(parents=True, exist_ok=True)
                for number, svg in enumerate(drawn.values(), 1):
                    (given.plots / f"{number:02}.svg").write_text(svg, encoding="utf-8")
    except (CRPError, OSError) as error:
        print(f"crp: {error}", file=sys.stderr)
        return 1
    for name, points in report["results"].items():
        print(name)
        for point in points:
            print("  " + "  ".join(f"{key} {value}" for key, value in point.items()))
    return 0


def _words(text: str) -> list[str]:
    return [word for one in text.split(",") if (word := one.strip())]


if __name__ == "__main__":
    sys.exit(main())

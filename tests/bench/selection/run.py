"""Runs every system on every set and says how sure the differences are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.engines.tokens import counter_for
from crp_integrations.ports import Embedder, TokenCounter
from tests.bench.measure import versions
from tests.bench.selection import data
from tests.bench.selection.ablations import settings_of
from tests.bench.selection.axis import LEAST_PIECE, LEAST_RUN, Axis
from tests.bench.selection.compare import compared
from tests.bench.selection.data import Collection, DataSet, Question
from tests.bench.selection.metrics import (
    FULL,
    HIT,
    MRR,
    PER_BUDGET,
    Packed,
    Wanted,
    measure,
    reciprocal_rank,
)
from tests.bench.selection.ours import MODEL, Ours
from tests.bench.selection.packing import PACKER, pack
from tests.bench.selection.peers import DEPTH, PEERS, Corpus
from tests.bench.selection.settle import Plan, usual_budget
from tests.bench.selection.units import CUTTER, UNIT_TOKENS, Unit, units
from tests.bench.selection.vectors import Kept

LIBRARIES = (
    "crp-integrations",
    "bm25s",
    "rank-bm25",
    "langchain-core",
    "langchain-classic",
    "langchain-community",
    "llama-index-core",
    "llama-index-retrievers-bm25",
    "numpy",
    "onnxruntime",
    "tiktoken",
)
Say = Callable[[str], None]
Values = dict[str, list[float]]


@dataclass
class Found:
    """Every value of every question, by system and set, and what there is to say beside it."""

    values: dict[str, dict[str, Values]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    unplaced: dict[str, int] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, system: str, name: str, values: dict[str, float]) -> None:
        """Keep what one question gave."""
        held = self.values.setdefault(system, {}).setdefault(name, {})
        for metric, value in values.items():
            held.setdefault(metric, []).append(value)


def run(
    folders: Sequence[Path],
    plan: Plan,
    *,
    cache: Path | None = None,
    embedder: Embedder | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measure.

    Args:
        folders: of the sets, see `data.find`.
        cache: folder that keeps vectors between runs.
        embedder: None for the one that ships.
        say: told what is being done.

    Raises:
        RequestError: a set is not of the format.
        ConfigError: a setting of an ablation is not usable.
    """
    kept = Kept(embedder or OnnxEmbedder(), cache)
    counter = counter_for(MODEL)
    found = Found()
    budgets = {}
    try:
        for folder in folders:
            whole = data.read(folder, queries=plan.queries)
            budgets[whole.name] = usual_budget(whole.name, plan.budgets)
            _set(whole, plan, kept, counter, found, say)
            kept.save()
    finally:
        kept.save()
    return {
        "results": {
            system: {name: _means(values) for name, values in sets.items()}
            for system, sets in found.values.items()
        },
        **compared(found.values, budgets, plan.budgets),
        "settings": {
            "model": MODEL,
            "tokenizer": counter.identity,
            "embedder": kept.identity,
            "budgets": list(plan.budgets),
            "usual_budgets": budgets,
            "queries": plan.queries,
            "sets": found.sizes,
            "peers": {
                "units": f"{CUTTER}, at most {UNIT_TOKENS} tokens, no overlap",
                "packer": PACKER,
                "depth": DEPTH,
                "libraries": found.libraries,
                "missing": found.missing,
            },
            "evidence": {"full": FULL, "hit": HIT, "run": LEAST_RUN, "piece": LEAST_PIECE},
            "ours": {
                name: {"settings": settings_of(name), "digest": digest}
                for name, digest in found.digests.items()
            },
            "facts_found_in_no_document": found.unplaced,
        },
        "versions": versions(*LIBRARIES),
    }


def _set(
    whole: DataSet, plan: Plan, kept: Kept, counter: TokenCounter, found: Found, say: Say
) -> None:
    sizes = {"documents": 0, "questions": whole.questions, "units": 0, "facts": 0}
    for collection in whole.collections:
        say(f"{whole.name}: {len(collection.texts)} documents of {collection.name}")
        axis = Axis(collection.texts)
        asked = [(one, Wanted(one, axis)) for one in collection.questions]
        sizes["documents"] += len(collection.texts)
        corpus = None
        if any(system in PEERS for system in plan.systems):
            cut = units(collection.texts, axis, counter)
            corpus = Corpus(cut, kept)
            sizes["units"] += len(cut)
        for system in plan.systems:
            say(f"  {system}")
            if system in PEERS:
                assert corpus is not None
                answers = _peer(system, corpus, asked, plan, counter, found)
            else:
                answers = _ours(system, collection, axis, asked, plan, kept, found, sizes)
            for values in answers:
                found.add(system, whole.name, values)
    found.sizes[whole.name] = sizes


def _peer(
    system: str,
    corpus: Corpus,
    asked: Sequence[tuple[Question, Wanted]],
    plan: Plan,
    counter: TokenCounter,
    found: Found,
) -> Iterator[dict[str, float]]:
    try:
        peer = PEERS[system](corpus)
    except ImportError as error:
        found.missing[system] = f"{error.name or error} is not installed"
        return
    found.libraries[system] = peer.name
    for question, wanted in asked:
        ranked = [corpus.units[place] for place in peer.rank(question.query)]
        packs = {budget: pack(ranked, budget, counter) for budget in plan.budgets}
        yield _values(wanted, packs, ranked)


def _ours(
    system: str,
    collection: Collection,
    axis: Axis,
    asked: Sequence[tuple[Question, Wanted]],
    plan: Plan,
    kept: Kept,
    found: Found,
    sizes: dict[str, int],
) -> Iterator[dict[str, float]]:
    with Ours(collection, axis, kept, settings_of(system)) as ours:
        found.digests[system] = ours.digest
        if system == "crp":
            sizes["facts"] += ours.facts
        for question, wanted in asked:
            packs = ours.packs(question.query, plan.budgets)
            # An envelope has no ranking beyond what it holds, so the largest one is looked at.
            largest = packs[plan.budgets[-1]]
            by_id = {unit.unit_id: unit for unit in largest.units}
            yield _values(wanted, packs, [by_id[unit_id] for unit_id in largest.ranked])
        found.unplaced[system] = found.unplaced.get(system, 0) + len(ours.unplaced)


def _values(wanted: Wanted, packs: dict[int, Packed], ranked: Sequence[Unit]) -> dict[str, float]:
    values = {MRR: reciprocal_rank(wanted, ranked)}
    for budget, packed in packs.items():
        measured = measure(wanted, packed, budget)
        values.update({f"{metric}@{budget}": measured[metric] for metric in PER_BUDGET})
    return values


def _means(values: Values) -> dict[str, float | None]:
    """Means over the questions for which a metric has a meaning; None when it has for none."""
    means = {}
    for metric, found in values.items():
        known = np.array(found)[~np.isnan(found)]
        means[metric] = round(float(known.mean()), 6) if len(known) else None
    return means

"""Measures how much of the evidence for a question is in a context of a given token budget.

Input: a folder of data sets (`data_sets` describes the format). Output: a report on what a relay
packs for every question, with the presets `default` and `literal`. `context_metrics` defines the
metrics, and its `TextAxis` finds packed text again in the documents. Other systems can be passed in
for comparison. No parameter is fitted to the data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

import numpy as np

from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.engines.tokens import counter_for
from crp_integrations.engines.vector_cache import CachedEmbedder, VectorCache
from crp_integrations.envelope.prompt import ELLIPSIS
from crp_integrations.envelope.records import Envelope, PackedFact
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.context_metrics import (
    MRR,
    PER_BUDGET,
    ContextUnit,
    MeasuredContext,
    TextAxis,
    WantedEvidence,
    measure,
    reciprocal_rank,
)
from crp_integrations.evaluation.data_sets import Collection, DataSet, read
from crp_integrations.fabric.ingest.chunker import chunk_document
from crp_integrations.fabric.records import Document, Fact, source_id
from crp_integrations.loaders.text import split_paragraphs
from crp_integrations.ports import Embedder, TokenCounter
from crp_integrations.relay.build import open_relay
from crp_integrations.relay.settings import Settings, load
from crp_integrations.relay.storeless_functions import CallerSelection
from crp_integrations.seals import sha256
from crp_integrations.vectors import cosine

# Its tokenizer, o200k, counts the tokens of all systems.
MODEL: Final = "gpt-4o"
# All facts have one date, so that no result depends on the day of a run.
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
BUDGETS: Final = (256, 512, 1_024, 2_048, 4_096)
# The budget of the headline number for sets without one of their own.
USUAL_BUDGET: Final = 1_024
HEADLINE: Final = "evidence_recall"
MACRO: Final = "macro"
# The package's own systems and their settings.
PRESETS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {"crp": {"preset": "default"}, "literal": {"preset": "literal"}}
)
# Systems that pack a dense retriever's passages, and the number of follow-up queries to it.
WRAPPED: Final[Mapping[str, int]] = MappingProxyType({"crp_wrap": 0, "crp_wrap_again": 8})
SYSTEMS: Final = (*PRESETS, *WRAPPED)
# Number of passages that the retriever returns for a question.
PASSAGES: Final = 50
_OFFSETS: Final = re.compile(r"(\d+)-(\d+)\Z")
_NONE: Final = "–"
Say = Callable[[str], None]
SetValues = dict[str, list[float]]
AUTO: Final = "auto"
PacksByBudget = dict[int | Literal["auto"], MeasuredContext]


class ContextSystem(Protocol):
    """Makes the contexts of a collection's questions.

    Attributes:
        size: number of units of text that it selects from.
        digest: digest of its settings, or the library's name and version.
        unplaced: ids of packed units that no document contains.
    """

    size: int
    digest: str
    unplaced: set[str]

    def contexts(
        self, question: str, budgets: Sequence[int]
    ) -> tuple[PacksByBudget, Sequence[ContextUnit]]:
        """The context for each budget (ours also for `auto`), and the units in rank order."""

    def close(self) -> None:
        """Release all resources."""
        ...


SystemOpener = Callable[[Collection, TextAxis, Embedder, TokenCounter], ContextSystem]


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """The systems and budgets to measure.

    Attributes:
        systems: names, in the order of the report.
        budgets: one or more token budgets, ascending.
        queries: maximum number of questions of a set; None for all.
        usual: budget of the headline number by set, for sets with one of their own.
    """

    systems: Sequence[str] = SYSTEMS
    budgets: Sequence[int] = BUDGETS
    queries: int | None = None
    usual: Mapping[str, int] = field(default_factory=dict)

    def headline_budget(self, name: str) -> int:
        """The budget of a set's headline number, or the next lower one that is measured."""
        wanted = self.usual.get(name, USUAL_BUDGET)
        below = [budget for budget in self.budgets if budget <= wanted]
        return max(below) if below else min(self.budgets)


def plan_of(
    systems: Sequence[str],
    budgets: Sequence[int],
    queries: int | None,
    *,
    known: Sequence[str] = SYSTEMS,
    usual: Mapping[str, int] = MappingProxyType({}),
) -> SelectionPlan:
    """Build a plan from a command's options."""
    if unknown := [name for name in systems if name not in known]:
        raise RequestError(f"system {unknown[0]!r:.40} is not one of {', '.join(known)}")
    sizes = tuple(sorted(set(budgets))) or BUDGETS
    if sizes[0] < 1 or (queries is not None and queries < 1):
        raise RequestError("a budget or --queries is below 1, wanted at least 1")
    return SelectionPlan(tuple(dict.fromkeys(systems or known)), sizes, queries, usual)


@dataclass
class SelectionValues:
    """All values of all questions, by system and set, with further data for the report."""

    values: dict[str, dict[str, SetValues]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    unplaced: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)
    budgets: dict[str, int] = field(default_factory=dict)
    engines: dict[str, str] = field(default_factory=dict)

    def add(self, system: str, name: str, values: Mapping[str, float]) -> None:
        """Add the values of one question."""
        by_metric = self.values.setdefault(system, {}).setdefault(name, {})
        for metric, value in values.items():
            by_metric.setdefault(metric, []).append(value)

    def report(self, plan: SelectionPlan) -> dict[str, Any]:
        """Means by system, set and metric, macro means, and the settings of the measurement."""
        results = {
            system: {name: _means(values) for name, values in sets.items()}
            for system, sets in self.values.items()
        }
        return {
            "results": results,
            "macro": {
                system: _macro(sets, self.budgets)
                for system, sets in results.items()
                if sets.keys() == self.budgets.keys()
            },
            "settings": {
                "model": MODEL,
                **self.engines,
                "budgets": list(plan.budgets),
                "usual_budgets": self.budgets,
                "queries": plan.queries,
                "sets": self.sizes,
                "systems": self.digests,
                "missing": self.missing,
                "facts_found_in_no_document": self.unplaced,
            },
        }


def measure_sets(
    folders: Sequence[Path],
    plan: SelectionPlan,
    *,
    cache: Path | None = None,
    embedder: Embedder | None = None,
    openers: Mapping[str, SystemOpener] = MappingProxyType({}),
    say: Say = lambda line: None,
) -> SelectionValues:
    """Measure every system of a plan on every set."""
    vectors = CachedEmbedder(embedder or OnnxEmbedder(), VectorCache(folder=cache))
    counter = counter_for(MODEL)
    values = SelectionValues(engines={"tokenizer": counter.identity, "embedder": vectors.identity})
    makers: dict[str, SystemOpener] = {
        **{name: _preset(name) for name in PRESETS},
        **{name: partial(WrappedContexts, further=further) for name, further in WRAPPED.items()},
        **openers,
    }
    for folder in folders:
        whole = read(folder, queries=plan.queries)
        values.budgets[whole.name] = plan.headline_budget(whole.name)
        _measure_set(whole, plan, vectors, counter, makers, values, say)
    return values


def _preset(name: str) -> SystemOpener:
    def opened(
        collection: Collection, axis: TextAxis, embedder: Embedder, counter: TokenCounter
    ) -> ContextSystem:
        return RelayContexts(collection, axis, embedder, PRESETS[name])

    return opened


def _measure_set(
    whole: DataSet,
    plan: SelectionPlan,
    vectors: Embedder,
    counter: TokenCounter,
    makers: Mapping[str, SystemOpener],
    values: SelectionValues,
    say: Say,
) -> None:
    units: dict[str, int] = {}
    documents = sum(len(collection.texts) for collection in whole.collections)
    for collection in whole.collections:
        say(f"{whole.name}: {len(collection.texts)} documents of {collection.name}")
        axis = TextAxis(collection.texts)
        asked = [(item.query, WantedEvidence(item, axis)) for item in collection.questions]
        for name in plan.systems:
            say(f"  {name}")
            try:
                system = makers[name](collection, axis, vectors, counter)
            except ImportError as error:
                values.missing[name] = f"{error.name or error} is not installed"
                continue
            with closing(system):
                values.digests[name] = system.digest
                units[name] = units.get(name, 0) + system.size
                for query, wanted in asked:
                    packs, ranked = system.contexts(query, plan.budgets)
                    values.add(name, whole.name, _values(wanted, packs, ranked))
                values.unplaced[name] = values.unplaced.get(name, 0) + len(system.unplaced)
    values.sizes[whole.name] = {
        "documents": documents,
        "questions": whole.questions,
        "units": units,
    }


def _values(
    wanted: WantedEvidence, packs: PacksByBudget, ranked: Sequence[ContextUnit]
) -> dict[str, float]:
    values = {MRR: reciprocal_rank(wanted, ranked)}
    for budget, packed in packs.items():
        measured = measure(wanted, packed, packed.tokens if budget == AUTO else int(budget))
        values.update({f"{metric}@{budget}": measured[metric] for metric in PER_BUDGET})
    return values


def _means(values: SetValues) -> dict[str, float | None]:
    """The mean of each metric over the questions that it applies to; None if there are none."""
    means = {}
    for metric, scores in values.items():
        known = np.array(scores)[~np.isnan(scores)]
        means[metric] = round(float(known.mean()), 6) if len(known) else None
    return means


def _macro(
    sets: Mapping[str, Mapping[str, float | None]], usual: Mapping[str, int]
) -> dict[str, float]:
    """Means over the sets at the budgets of their headline numbers."""
    return {
        metric: round(
            float(np.mean([sets[name][f"{metric}@{budget}"] for name, budget in usual.items()])), 6
        )
        for metric in (HEADLINE, "full_recall", "precision")
    }


def headings(report: Mapping[str, Any]) -> tuple[str, ...]:
    """Column headings: system, each set with its budget, and the macro mean."""
    usual = report["settings"]["usual_budgets"]
    return ("system", *(f"{name} @{budget:,}" for name, budget in usual.items()), MACRO)


def table(report: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of evidence recall in per cent at each set's usual budget, one row per system.

    The macro mean is over the sets; a system that did not run on all has none.
    """
    usual = report["settings"]["usual_budgets"]
    for system, sets in report["results"].items():
        cells = (
            percent(sets.get(name, {}).get(f"{HEADLINE}@{budget}"))
            for name, budget in usual.items()
        )
        yield (system, *cells, percent(report["macro"].get(system, {}).get(HEADLINE)))


def percent(value: float | None) -> str:
    """A share in per cent with one digit; a dash for none."""
    return _NONE if value is None else f"{100 * value:.1f}"


class EnvelopeContexts:
    """Contexts made of envelopes, whose facts are located in the documents.

    Attributes:
        digest: digest of the settings.
        size: number of facts made from the collection.
        unplaced: ids of packed facts whose text no document contains.
    """

    size: int

    def __init__(self, collection: Collection, axis: TextAxis, settings: Settings) -> None:
        """Prepare the collection's documents like text files."""
        self._axis = axis
        self._sources: dict[str, str] = {}
        self._units: dict[tuple[str, tuple[tuple[int, int], ...]], ContextUnit] = {}
        self.unplaced: set[str] = set()
        self.digest = settings.digest
        self._documents: list[Document] = []
        for document in collection.texts:
            uri = f"bench:{collection.name}/{document.doc_id}"
            self._sources[source_id(uri)] = document.doc_id
            self._documents.append(
                Document(
                    uri=uri,
                    title=document.title or document.doc_id,
                    blocks=tuple(split_paragraphs(document.text)),
                    document_hash=sha256(document.text),
                )
            )

    def packs(self, question: str, budgets: Sequence[int | Literal["auto"]]) -> PacksByBudget:
        """The context for each budget."""
        raise NotImplementedError

    def contexts(
        self, question: str, budgets: Sequence[int]
    ) -> tuple[PacksByBudget, Sequence[ContextUnit]]:
        """The context for each budget, and the units of the largest in rank order."""
        packs = self.packs(question, (*budgets, AUTO))
        largest = packs[budgets[-1]]
        by_id = {unit.unit_id: unit for unit in largest.units}
        return packs, [by_id[unit_id] for unit_id in largest.ranked]

    def _packed(self, envelope: Envelope) -> MeasuredContext:
        best = sorted(envelope.facts, key=lambda fact: (-fact.composite_score, fact.fact_id))
        return MeasuredContext(
            tuple(self._unit(fact, envelope.text) for fact in envelope.facts),
            tuple(fact.fact_id for fact in best),
            envelope.token_count,
        )

    def _unit(self, fact: PackedFact, text: str) -> ContextUnit:
        key = (fact.fact_id, fact.spans)
        unit = self._units.get(key)
        if unit is None:
            doc_id = self._sources.get(fact.source_id)
            match = _OFFSETS.search(fact.source_location)
            start, end = (int(match[1]), int(match[2])) if match else (0, 0)
            # Each part of a fact that is shown in parts is located by itself.
            pieces = fact.content.split(ELLIPSIS) if fact.spans else [fact.content]
            places = [self._axis.place(piece, doc_id, start, end) for piece in pieces]
            stretches = tuple(place for place in places if place is not None)
            if len(stretches) < len(pieces):
                stretches = ()
            unit = ContextUnit(
                fact.fact_id, doc_id or "", fact.content, fact.token_count, stretches
            )
            self._units[key] = unit
        # A fact counts only if the rendered text contains it, as the model reads that.
        if unit.stretches and fact.content in text:
            return unit
        self.unplaced.add(fact.fact_id)
        return ContextUnit(unit.unit_id, unit.doc_id, unit.text, unit.tokens, ())


class RelayContexts(EnvelopeContexts):
    """The package's own path: a relay in memory ingests the documents and packs each question."""

    def __init__(
        self,
        collection: Collection,
        axis: TextAxis,
        embedder: Embedder,
        settings: Mapping[str, Any],
    ) -> None:
        """Ingest the documents like text files."""
        chosen = load(**settings)
        super().__init__(collection, axis, chosen)
        self._relay = open_relay(None, embedder=embedder, settings=chosen, clock=_FixedClock())
        self._relay.ingest(self._documents)
        if chosen.fabric.maintain_on_open:
            # Opening a stored fabric does this too.
            self._relay.fabric.maintain(graph=False)
        self.size = self._relay.fabric.size()

    def packs(self, question: str, budgets: Sequence[int | Literal["auto"]]) -> PacksByBudget:
        """The context for each budget: the envelope that a model call would carry.

        Selection does not depend on the budget, so a turn selects once and packs for each budget.
        """
        turn = self._relay.turn(question, model=MODEL)
        made: PacksByBudget = {}
        for budget in budgets:
            turn.request = turn.request.changed(budget_tokens=budget)
            made[budget] = self._packed(turn.retrieve())
        return made

    def pack(self, question: str, budget: int, k: int | None = None) -> MeasuredContext:
        """The context for one budget; `k`, used by other systems, is ignored."""
        return self.packs(question, (budget,))[budget]

    def conversation(self, questions: Sequence[str], budget: int) -> list[str]:
        """The contexts of consecutive questions, each built on the previous one."""
        made: list[Envelope] = []
        for question in questions:
            before = made[-1] if made else None
            turn = self._relay.turn(question, model=MODEL, budget_tokens=budget, previous=before)
            made.append(turn.retrieve())
        return [envelope.text for envelope in made]

    def close(self) -> None:
        """Release the store."""
        self._relay.close()


class WrappedContexts(EnvelopeContexts):
    """Contexts as `CRPRetriever.wrap` makes them: the nearest passages, ranked and packed.

    The retriever is a dense one over the same passages as in a fabric; it may be queried again.
    """

    def __init__(
        self,
        collection: Collection,
        axis: TextAxis,
        embedder: Embedder,
        counter: TokenCounter,
        *,
        further: int = 0,
    ) -> None:
        """Cut the documents into passages and embed them."""
        self._settings = load(preset="default")
        super().__init__(collection, axis, self._settings)
        self._embedder = embedder
        self._further = further
        chunking = self._settings.fabric.chunking
        self._facts = [
            Fact(
                content=chunk.content,
                source_id=source_id(document.uri),
                source_location=chunk.location,
            )
            for document in self._documents
            for chunk in chunk_document(document, counter=counter, settings=chunking)
        ]
        self._rows = embedder.embed_passages([fact.content for fact in self._facts])
        self.size = len(self._facts)

    def packs(self, question: str, budgets: Sequence[int | Literal["auto"]]) -> PacksByBudget:
        """The context for each budget, from the same passages."""
        selection = CallerSelection(
            question, model=MODEL, embedder=self._embedder, settings=self._settings, now=NOW
        )
        places = self._nearest(question)
        again = selection.further_questions([self._facts[at] for at in places], self._further)
        places = list(dict.fromkeys(chain(places, *map(self._nearest, again))))
        facts = [self._facts[at] for at in places]
        return {budget: self._packed(selection.pack(facts, budget)) for budget in budgets}

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _nearest(self, question: str) -> list[int]:
        near = cosine(self._rows, self._embedder.embed_query(question))
        return [int(at) for at in np.argsort(-near, kind="stable")[:PASSAGES]]


class _FixedClock:
    """A clock that always returns the same time."""

    def now(self) -> datetime:
        return NOW

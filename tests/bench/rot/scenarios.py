"""What is asked of every system: each scenario gives points, one for each system and place.

A point is a mapping of coordinates and means over questions. `answer` is the share of questions
with a known answer in the context, `gold` that of those whose whole passage is there, `place`
where that passage stands (0 the head, 1 the end, by the tokens before its middle), `edge` the
share of found passages in the first or the last fifth, which is where long contexts are read best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

from crp_integrations.ports import Embedder, TokenCounter
from tests.bench.rot.data import Asked, collections, shuffled
from tests.bench.rot.systems import CRP, System, opened
from tests.bench.selection.axis import Axis
from tests.bench.selection.data import Collection, Question, Text
from tests.bench.selection.metrics import Packed, Wanted
from tests.bench.selection.units import units

Point = dict[str, Any]
# Passages asked of a peer's store, from its default upwards.
KS: Final = (2, 4, 8, 16, 32, 64)
SHUFFLES: Final = 3
# Where a scenario changes something else, a store has so many.
PASSAGES: Final = 100
EDGE: Final = 0.2
# Settings of ours that a scenario puts beside the default.
SCREENED: Final = "crp, screened"
STABLE: Final = "crp, cache-stable"


@dataclass(frozen=True)
class Bench:
    """What all scenarios are run with.

    Attributes:
        systems: names, see `systems.SYSTEMS`.
        budget: tokens of a context, where the scenario does not change them.
        missing: filled with the peers that are not installed, and why.
    """

    asked: Sequence[Asked]
    embedder: Embedder
    counter: TokenCounter
    systems: Sequence[str]
    questions: int
    sizes: Sequence[int]
    budgets: Sequence[int]
    budget: int
    missing: dict[str, str] = field(default_factory=dict)

    @cached_property
    def by_query(self) -> dict[str, Asked]:
        """The questions by their text."""
        return {one.query: one for one in self.asked}

    def found(self, question: Question, axis: Axis, packed: Packed) -> dict[str, float]:
        """Whether and where a context holds what answers a question."""
        wanted = Wanted(question, axis)
        characters, whole = wanted.found(packed.units)
        said = "\n".join(unit.text for unit in packed.units)
        place = _place(wanted, packed)
        return {
            "answer": float(self.by_query[question.query].right(said)),
            "gold": float(whole),
            "share": characters / wanted.length if wanted.length else 0.0,
            "place": place,
            "edge": place if math.isnan(place) else float(not EDGE < place < 1 - EDGE),
            "tokens": packed.tokens,
        }

    def collections(self, size: int = PASSAGES) -> Iterator[tuple[Collection, Axis]]:
        """Collections of a size, fewer where there are not so many passages."""
        for one in collections(self.asked, min(size, len(self.asked)), self.questions):
            yield one, Axis(one.texts)

    def open(
        self, name: str, collection: Collection, axis: Axis, settings: Mapping[str, Any]
    ) -> System | None:
        """A system over a collection, None where its library is not installed."""
        try:
            return opened(name, collection, axis, self.embedder, self.counter, settings)
        except ImportError as error:
            self.missing[name] = f"{error.name or error} is not installed"
            return None


@dataclass
class Means:
    """Values by point, in the order of their coming."""

    values: dict[tuple[tuple[str, Any], ...], dict[str, list[float]]] = field(default_factory=dict)

    def add(self, at: Mapping[str, Any], values: Mapping[str, float]) -> None:
        """Keep what one question gave; NaN counts for nothing."""
        held = self.values.setdefault(tuple(at.items()), {})
        for name, value in values.items():
            held.setdefault(name, [])
            if not math.isnan(value):
                held[name].append(value)

    def points(self) -> list[Point]:
        """A point for each place, with the number of questions of its first metric."""
        return [
            {
                **dict(at),
                "questions": max(map(len, values.values()), default=0),
                **{name: round(fmean(held), 4) for name, held in values.items() if held},
            }
            for at, values in self.values.items()
        ]


def _place(wanted: Wanted, packed: Packed) -> float:
    """Where the first hit stands, by the tokens before its middle; NaN without one."""
    held = sum(unit.tokens for unit in packed.units)
    before = 0.0
    for unit in packed.units:
        if wanted.is_hit(unit):
            return (before + unit.tokens / 2) / held
        before += unit.tokens
    return math.nan


def distractors(bench: Bench) -> list[Point]:
    """Gold among more and more passages, at each budget; a peer asks for its default number."""
    means = Means()
    for size in bench.sizes:
        for collection, axis in bench.collections(size):
            for name in bench.systems:
                system = bench.open(name, collection, axis, {})
                if system is None:
                    continue
                for question in collection.questions:
                    for budget in bench.budgets:
                        packed = system.pack(question.query, budget)
                        at = {"system": name, "passages": len(collection.texts), "budget": budget}
                        means.add(at, bench.found(question, axis, packed))
                system.close()
    return means.points()


def growing(bench: Bench) -> list[Point]:
    """Gold in contexts that grow: k of the peers, and as many tokens for ours."""
    means = Means()
    for collection, axis in bench.collections():
        cut = units(collection.texts, axis, bench.counter)
        typical = fmean(unit.tokens for unit in cut)
        for name in bench.systems:
            system = bench.open(name, collection, axis, {})
            if system is None:
                continue
            for question in collection.questions:
                for k in (k for k in KS if k <= len(cut)):
                    room = round(k * typical) if name == CRP else 10**6
                    packed = system.pack(question.query, room, k)
                    means.add({"system": name, "k": k}, bench.found(question, axis, packed))
            system.close()
    return means.points()


def order(bench: Bench) -> list[Point]:
    """The same store filled in other orders: whether the context is the same, byte for byte.

    `first`, `middle` and `last` are the shares of golds found by the third of the store that they
    were put in: a system that prefers a position of its store shows it here.
    """
    means = Means()
    for collection, axis in bench.collections():
        for name in bench.systems:
            before: dict[str, tuple[str, ...]] = {}
            for number in range(SHUFFLES + 1):
                stored = shuffled(collection, number) if number else collection
                system = bench.open(name, stored, axis, {})
                if system is None:
                    break
                places = {text.doc_id: place for place, text in enumerate(stored.texts)}
                for question in collection.questions:
                    packed = system.pack(question.query, bench.budget)
                    said = tuple(unit.text for unit in packed.units)
                    same = before.setdefault(question.query_id, said) == said
                    gold = bench.found(question, axis, packed)["gold"]
                    place = places[question.evidence[0].doc_id] / len(places)
                    third = ("first", "middle", "last")[min(2, int(3 * place))]
                    means.add(
                        {"system": name},
                        {third: gold} | ({"same": float(same)} if number else {}),
                    )
                system.close()
    return means.points()


def noise(bench: Bench, attacks: Sequence[str], screened: Mapping[str, Any]) -> list[Point]:
    """For each question a passage that repeats it and carries an injection.

    Args:
        attacks: texts that carry one, taken in turn.
        screened: settings of ours that screen facts.
    """
    means = Means()
    for collection, _ in bench.collections():
        bad = tuple(
            Text(
                f"x{number}",
                "",
                f"{question.query.capitalize()}? {attacks[number % len(attacks)]}",
            )
            for number, question in enumerate(collection.questions)
        )
        stored = Collection(collection.name, (*collection.texts, *bad), collection.questions)
        axis = Axis(stored.texts)
        for name in [*bench.systems, *([SCREENED] if CRP in bench.systems else [])]:
            chosen = screened if name == SCREENED else {}
            system = bench.open(name, stored, axis, chosen)
            if system is None:
                continue
            for question in collection.questions:
                packed = system.pack(question.query, bench.budget)
                within = [unit for unit in packed.units if unit.doc_id.startswith("x")]
                means.add(
                    {"system": name},
                    {
                        "gold": bench.found(question, axis, packed)["gold"],
                        "clean": float(not within),
                        "injected_share": sum(unit.tokens for unit in within)
                        / max(1, sum(unit.tokens for unit in packed.units)),
                    },
                )
            system.close()
    return means.points()


def prefix(bench: Bench) -> list[Point]:
    """How much of a context a provider's prefix cache can take over at a follow-up question."""
    means = Means()
    for collection, axis in bench.collections():
        for name in [*bench.systems, *([STABLE] if CRP in bench.systems else [])]:
            chosen = {"envelope": {"layout": "cache-stable"}} if name == STABLE else {}
            system = bench.open(name, collection, axis, chosen)
            if system is None:
                continue
            for question in collection.questions:
                title = bench.by_query[question.query].title
                asked = (question.query, f"{question.query} {title}", f"What else about {title}?")
                for before, text in pairwise(system.conversation(asked, bench.budget)):
                    shared = bench.counter.count(_head(before, text))
                    tokens = bench.counter.count(text)
                    means.add(
                        {"system": name}, {"reused": shared / (tokens or 1), "tokens": tokens}
                    )
            system.close()
    return means.points()


def _head(one: str, other: str) -> str:
    """The text that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return one[: next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))]

"""Near-duplicates: found when they matter, as the walk over all pairs finds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.envelope import near_duplicates
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.near_duplicates import (
    Deduplication,
    ListedPairs,
    NearDuplicates,
    as_pairs,
    split_near_duplicates,
)
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.language import negation
from crp_integrations.language.negation import differ
from crp_integrations.vectors import FloatRows, unit_rows
from tests.envelope.builders import SETTINGS, candidates, fact, made, near_pairs

ALL = EnvelopeSettings(duplicates_told="all")
PACKINGS = ("greedy", "in_order")


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[str], FloatRows]:
    """Texts and vectors of which many are equal or nearly so."""
    count = draw(st.integers(1, 14))
    kinds = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    turns = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    wordings = (
        "It is {n} days in all.",
        "In all it is {n} days.",
        "It is not {n} days in all.",
        "It is {n} days.",
    )
    texts = [wordings[turn].format(n=kind // 2) for kind, turn in zip(kinds, turns, strict=True)]
    rows = [
        [np.cos(kind * 0.25 + turn * 0.05), np.sin(kind * 0.25 + turn * 0.05)]
        for kind, turn in zip(kinds, turns, strict=True)
    ]
    return texts, unit_rows(rows)


def plainly(texts: list[str], rows: FloatRows, threshold: float) -> tuple[set[Any], set[Any]]:
    same, other = set(), set()
    for left, right in near_pairs(rows, threshold):
        (other if differ(texts[left], texts[right]) else same).add((left, right))
    return same, other


@pytest.mark.requirement("003-6.6-3")
@given(crowds(), st.sampled_from([0.9, 0.95, 1.0]), st.randoms(use_true_random=False))
def test_what_is_asked_for_late_equals_all_pairs(
    crowd: tuple[list[str], FloatRows], threshold: float, chance: Any
) -> None:
    texts, rows = crowd
    same, other = plainly(texts, rows, threshold)
    duplicates, conflicts = split_near_duplicates(texts, rows, threshold)
    asked = list(range(len(texts)))
    chance.shuffle(asked)
    duplicates.fetch(asked[: len(asked) // 3])
    for place in asked:
        wanted = sorted({*(j for i, j in same if i == place), *(i for i, j in same if j == place)})
        assert duplicates.of(place) == tuple(wanted)
    some = asked[: len(asked) // 2]
    for pairs, wanted in ((duplicates, same), (conflicts, other)):
        found = [(i, j) for i, j in sorted(wanted) if i in some and j in some]
        assert pairs.within(some) == pairs.listed().within(some) == found
    # Reading all of it afterwards gives the same, and so does reading all of it at once.
    assert set(duplicates) == same and set(conflicts) == other
    again, _ = split_near_duplicates(texts, rows, threshold)
    assert tuple(again) == tuple(sorted(same)) == tuple(again.listed())


@pytest.mark.requirement("003-6.6-3", "003-6.6-2")
@settings(max_examples=150)
@given(crowds(), st.integers(0, 400), st.sampled_from(PACKINGS), st.data())
def test_the_late_walk_shows_what_the_whole_walk_shows(
    crowd: tuple[list[str], FloatRows], budget: int, packing: str, data: st.DataObject
) -> None:
    texts, rows = crowd
    facts = [
        fact(
            f"f{n:02d}",
            data.draw(st.integers(0, 4)) / 4,
            community=data.draw(st.sampled_from([None, "x"])),
            content=text,
            tokens=data.draw(st.integers(1, 120)),
        )
        for n, text in enumerate(texts)
    ]
    k = data.draw(st.sampled_from([None, 1, 3]))
    late, conflicts = split_near_duplicates(texts, rows, 0.95)
    given_late = candidates(*facts, duplicates=late, conflicts=conflicts)
    given_all = candidates(*facts, duplicates=tuple(late), conflicts=tuple(conflicts))
    using = SETTINGS.model_copy(update={"packing": packing})
    whole = ALL.model_copy(update={"packing": packing})
    shown = made(given_late, budget_tokens=budget, settings=using, k=k)
    fully = made(given_all, budget_tokens=budget, settings=whole, k=k)
    assert shown.text == fully.text and shown.facts == fully.facts
    assert shown.conflicts == fully.conflicts
    # Listed pairs give the same bytes as pairs found late: an envelope replays without vectors.
    replayed = made(given_all, budget_tokens=budget, settings=using, k=k)
    assert replayed.model_dump_json() == shown.model_dump_json()
    # A fact called a duplicate is one; of those that did not fit, some are not told.
    told = {drop.fact_id for drop in shown.dropped if drop.reason.value == "duplicate"}
    true = {drop.fact_id for drop in fully.dropped if drop.reason.value == "duplicate"}
    assert told <= true
    alike = {frozenset(pair) for pair in late}
    names = {one.fact_id: place for place, one in enumerate(given_all.facts)}
    for drop in shown.dropped:
        if drop.kept is not None:
            assert frozenset((names[drop.fact_id], names[drop.kept])) in alike
    ids = {one.fact_id for one in shown.facts}
    assert not any({facts[i].fact_id, facts[j].fact_id} <= ids for i, j in late)


@pytest.mark.requirement("003-6.6-3")
def test_two_that_differ_are_kept_and_reported_and_a_third_that_agrees_is_dropped() -> None:
    texts = ["The limit is 20 days.", "The limit is 30 days.", "The limit is not 20 days."]
    texts += ["The limit, it is 20 days.", "The limit was set on 3 May 2024.", texts[0]]
    texts += ["The limit was set on 4 May 2024."]
    rows = unit_rows(np.ones((len(texts), 2)))
    duplicates, conflicts = split_near_duplicates(texts, rows, 0.95)
    facts = [fact(f"f{n}", 0.9 - n / 100, content=text) for n, text in enumerate(texts)]
    envelope = made(candidates(*facts, duplicates=duplicates, conflicts=conflicts))
    assert {item.fact_id for item in envelope.facts} == {"f0", "f1", "f2", "f4", "f6"}
    assert {(drop.fact_id, drop.kept) for drop in envelope.dropped} == {("f3", "f0"), ("f5", "f0")}
    pairs = {frozenset((one.left, one.right)) for one in envelope.conflicts}
    # Number, negation and date.
    assert {frozenset(pair) for pair in (("f0", "f1"), ("f0", "f2"), ("f4", "f6"))} <= pairs


def test_a_thousand_copies_cost_one_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the same text"] * 1500 + ["another text"]
    rows = unit_rows([*([[1.0, 0.0]] * 1500), [0.0, 1.0]])
    compared: list[int] = []
    above = NearDuplicates._above
    monkeypatch.setattr(
        NearDuplicates,
        "_above",
        lambda self, block: compared.append(len(block)) or above(self, block),
    )
    read: list[str] = []
    monkeypatch.setattr(negation, "read_statement", lambda text: read.append(text))
    duplicates, conflicts = split_near_duplicates(texts, rows, 0.95)
    facts = [fact(f"f{n:04d}", 0.5, content=text, tokens=5) for n, text in enumerate(texts)]
    envelope = made(
        candidates(*facts, duplicates=duplicates, conflicts=conflicts), budget_tokens=500
    )
    assert envelope.total_facts_included == 2
    assert {drop.kept for drop in envelope.dropped} == {"f0000"}
    assert sum(compared) < 300
    assert read == []


def test_walking_through_all_compares_copies_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the same text"] * 1500
    sizes: list[int] = []
    pairs = near_duplicates._all_pairs
    monkeypatch.setattr(
        near_duplicates,
        "_all_pairs",
        lambda rows, least: sizes.append(len(rows)) or pairs(rows, least),
    )
    duplicates, _ = split_near_duplicates(texts, unit_rows(np.ones((1500, 2))), 0.95)
    walk = Deduplication(np.arange(1500), np.arange(1500), duplicates)
    assert set(walk.all().values()) == {0}
    assert sizes == [1]


@given(crowds(), st.sampled_from([0.9, 0.95, 1.0]), st.randoms(use_true_random=False))
def test_who_is_known_to_be_alone_is_walked_past_as_before(
    crowd: tuple[list[str], FloatRows], threshold: float, chance: Any
) -> None:
    texts, rows = crowd
    order = np.array(chance.sample(range(len(texts)), len(texts)), dtype=np.intp)
    pairs, _ = split_near_duplicates(texts, rows, threshold)
    walk = Deduplication(order, order, pairs)
    listed = Deduplication(order, order, pairs.listed())
    asked = chance.sample(range(len(texts)), chance.randint(0, len(texts)))
    walk.fetch(asked)
    for place in range(len(texts)):
        assert walk.kept_instead_of(place) == listed.kept_instead_of(place)
        assert walk.below(place) == listed.below(place)
    assert walk.duplicates() == walk.all()


def test_equal_texts_with_different_vectors_are_compared_by_their_vectors() -> None:
    rows = unit_rows([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    duplicates, _ = split_near_duplicates(["same"] * 3, rows, 0.95)
    assert tuple(duplicates) == ((0, 2),)
    assert duplicates[0] == (0, 2) and len(duplicates) == 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda p: p[0] != p[1])))
def test_listed_pairs_stay_what_they_are_when_positions_move(pairs: list[Any]) -> None:
    listed = as_pairs(tuple(pairs))
    assert as_pairs(listed) is listed
    assert set(listed) == {(min(pair), max(pair)) for pair in pairs}
    assert listed == ListedPairs(reversed(pairs)) and hash(listed) == hash(ListedPairs(pairs))
    moved = {old: new for new, old in enumerate(place for place in range(10) if place % 3)}
    part = listed.among(moved)
    part.fetch(range(7))
    wanted = sorted((moved[i], moved[j]) for i, j in listed if i in moved and j in moved)
    assert list(part) == wanted and part.of(9) == ()
    assert all(list(part.of(i)) == sorted(
        {b for a, b in wanted if a == i} | {a for a, b in wanted if b == i}
    ) for i in range(7))  # fmt: skip


def test_a_chain_is_walked_without_deep_recursion() -> None:
    count = 5000
    chain = ListedPairs((n, n + 1) for n in range(count - 1))
    order = np.arange(count)
    walk = Deduplication(order, order, chain)
    # Each resembles the one above it alone, so every second one is kept.
    assert walk.kept_instead_of(count - 1) == count - 2
    assert walk.kept_instead_of(count - 2) is None


def test_candidates_with_pairs_found_late_are_equal_to_those_with_listed_ones() -> None:
    texts = ["one text", "one text"]
    duplicates, _ = split_near_duplicates(texts, unit_rows(np.ones((2, 2))), 0.95)
    late: Candidates = candidates(fact("a"), fact("b"), duplicates=duplicates)
    assert late == replace(late, duplicates=((0, 1),))
    assert late != replace(late, duplicates=())


@given(
    pairs=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda one: len(set(one)) > 1)
    ),
    inside=st.lists(st.integers(0, 9), unique=True),
)
def test_listed_pairs_within_positions_are_those_of_each(
    pairs: list[tuple[int, int]], inside: list[int]
) -> None:
    listed = ListedPairs(pairs)
    wanted = [
        (left, right)
        for left in sorted(inside)
        for right in listed.of(left)
        if right > left and right in inside
    ]
    assert listed.within(inside) == wanted

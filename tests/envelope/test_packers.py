"""Named packing algorithms, pinned facts, orders and layouts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.envelope.candidates import SUMMARY_SOURCE, Candidates, RankedFact
from crp_integrations.envelope.layout import order_facts, reusable_prefix
from crp_integrations.envelope.pack import PACKERS, pack
from crp_integrations.envelope.prompt import render
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from tests.envelope.builders import SETTINGS, LetterCounter, candidates, fact, made, ranked

STABLE = EnvelopeSettings(layout="cache-stable")
ROWS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 100)), max_size=11)


def in_rank_order(rows: list[tuple[int, int]]) -> list[RankedFact]:
    facts = [ranked(f"f{n:02d}", score / 100, tokens=t) for n, (t, score) in enumerate(rows)]
    return sorted(facts, key=lambda one: (-one.composite, one.candidate.fact_id))


def spent(facts: Any) -> int:
    return sum(one.candidate.tokens for one in facts)


def ids(facts: Any) -> list[str]:
    return [one.candidate.fact_id for one in facts]


@given(ROWS, st.integers(-5, 200), st.sampled_from([None, 1, 3]), st.sampled_from(list(PACKERS)))
def test_every_packing_keeps_budget_and_cap_and_names_the_rest(
    rows: list[tuple[int, int]], budget: int, k: int | None, name: str
) -> None:
    facts = in_rank_order(rows)
    packing = pack(facts, budget, k, packing=name)
    assert spent(packing.packed) <= max(0, budget)
    assert k is None or len(packing.packed) <= k
    parts = (packing.packed, packing.over_budget, packing.over_k)
    assert sorted(ids(itertools.chain(*parts))) == sorted(ids(facts))
    for part in parts:
        assert ids(part) == [one for one in ids(facts) if one in set(ids(part))]
    assert packing.algorithm == f"{name}@1"
    assert k is not None or not packing.over_k


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("pinned", [(), ("a",)])
def test_a_maximum_counts_facts_and_no_summary(name: str, pinned: tuple[str, ...]) -> None:
    def packed(place: float, tokens: int, k: int) -> list[str]:
        summary = ranked("s", place, tokens=tokens, source_id=f"{SUMMARY_SOURCE}1")
        rows = [*(ranked(i, 0.9 - n / 10, tokens=9) for n, i in enumerate("abc")), summary]
        facts = sorted(rows, key=lambda row: -row.composite)
        packing = pack(facts, 40, k, packing=name, pinned=pinned)
        left = {*ids(packing.over_budget), *ids(packing.over_k)}
        assert left == {*ids(facts)} - {*ids(packing.packed)}
        return sorted(ids(packing.packed))

    assert packed(0.95, 5, 1) == ["a", "s"]
    assert packed(0.95, 5, 2) == ["a", "b", "s"]
    # A summary that does not fit leaves its place to no fact.
    assert packed(0.95, 60, 1) == (["a"] if name == "greedy" or pinned else [])
    # Below the facts it is not reached.
    assert packed(0.1, 5, 2) == ["a", "b"]


def test_each_packing_takes_what_it_says() -> None:
    facts = [
        ranked(i, score, tokens=t)
        for i, score, t in (("a", 0.9, 60), ("b", 0.8, 50), ("c", 0.7, 20), ("d", 0.6, 20))
    ]
    assert ids(pack(facts, 100).packed) == ["a", "c", "d"]
    assert ids(pack(facts, 100, packing="in_order").packed) == ["a"]


# --- orders --------------------------------------------------------------------------------


@pytest.mark.requirement("003-7.4-3")
def test_sandwich_rank_opens_with_the_two_best_and_ends_with_the_other_critical_facts() -> None:
    scores = [0.97, 0.93, 0.88, 0.84, 0.8, 0.79, 0.5, 0.49, 0.1]
    facts = [ranked(f"f{n}", score) for n, score in enumerate(scores)]
    shown = order_facts(facts, EnvelopeSettings(ordering="sandwich_rank"))
    assert ids(shown.facts) == ["f0", "f1", "f7", "f8", "f5", "f6", "f2", "f3", "f4"]
    # The default puts the last critical fact second.
    assert ids(order_facts(facts, SETTINGS).facts)[:2] == ["f0", "f4"]


def test_rank_and_reversed_are_the_plain_orders() -> None:
    facts = [ranked(f"f{n}", 0.7 - n / 10) for n in range(4)]
    straight = order_facts(facts, EnvelopeSettings(ordering="rank"))
    assert ids(straight.facts) == ["f0", "f1", "f2", "f3"]
    assert straight.promoted == () and straight.algorithms == ("rank@1",)
    back = order_facts(facts, EnvelopeSettings(ordering="reversed"))
    assert ids(back.facts) == ["f3", "f2", "f1", "f0"]
    assert back.algorithms == ("reversed@1",)


@given(
    st.lists(st.integers(0, 100), max_size=10),
    st.sampled_from(["sandwich", "sandwich_rank", "rank", "reversed"]),
)
def test_every_order_is_a_permutation(scores: list[int], name: str) -> None:
    facts = in_rank_order([(1, score) for score in scores])
    using = SETTINGS.model_copy(update={"ordering": name})
    assert sorted(ids(order_facts(facts, using).facts)) == sorted(ids(facts))


# --- layouts -------------------------------------------------------------------------------


def some(names: str, **changed: float) -> Candidates:
    facts = [
        fact(name, changed.get(name, 0.9 - n / 20), content=f"fact {name}")
        for n, name in enumerate(names)
    ]
    return candidates(*facts)


def shown(envelope: Envelope) -> str:
    return "".join(item.fact_id for item in envelope.facts)


def test_pinned_facts_open_a_cache_stable_envelope_by_id_whatever_the_question() -> None:
    first = made(some("dbxcy"), settings=STABLE, pinned=["x", "b", "gone"])
    second = made(some("qrbzx", x=0.01), settings=STABLE, pinned=["b", "x"])
    assert shown(first).startswith("bx") and shown(second).startswith("bx")
    assert len(shown(first)) == 5
    assert first.layout == "cache-stable" and "cache-stable@1" in first.algorithms
    assert second.text.startswith("[1] fact b\n\n[2] fact x\n\n")
    assert first.prefix_tokens == first.prefix_characters == 0


def test_an_envelope_continues_the_text_of_the_one_before() -> None:
    first = made(some("dbxcy"), settings=STABLE)
    more = made(some("kdbxcyq", k=1.0), settings=STABLE, previous=first)
    assert more.text.startswith(first.text)
    assert more.prefix_characters == len(first.text)
    assert more.prefix_tokens == LetterCounter().count(first.text)
    # Another layout puts the best first and keeps nothing.
    moved = made(some("kdbxcyq", k=1.0), previous=first)
    assert (moved.layout, moved.prefix_characters) == ("position", 0)
    # A pinned fact that is new comes behind what the cache holds.
    pinned = made(some("kdbxcyq"), settings=STABLE, previous=first, pinned=["k"])
    assert shown(pinned).startswith(shown(first) + "k")


def test_a_fact_that_went_ends_what_can_be_used_again() -> None:
    first = made(some("abcde"), settings=EnvelopeSettings(layout="cache-stable", ordering="rank"))
    assert shown(first) == "abcde"
    second = made(some("abdef"), settings=STABLE, previous=first)
    assert shown(second).startswith("abde")
    assert first.text[: second.prefix_characters] == "[1] fact a\n\n[2] fact b"


def test_pinned_facts_are_packed_first_and_never_beyond_the_budget() -> None:
    room = len("[1] fact a\n\n[2] fact b")
    envelope = made(some("abcz"), budget_tokens=room + 8, settings=STABLE, pinned=["z", "c"])
    assert shown(envelope) == "cz"
    assert made(some("abcz"), budget_tokens=room + 8, pinned=["z", "c"]).token_count <= room + 8
    assert shown(made(some("abcz"), budget_tokens=room + 8)) == "ab"


@given(
    st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1),
    st.lists(st.sampled_from("abcdefgh"), unique=True),
    st.lists(st.sampled_from("abcdefghz"), unique=True),
    st.integers(-3, 130),
    st.sampled_from([None, 1, 3]),
    st.sampled_from(list(PACKERS)),
)
def test_a_cache_stable_envelope_keeps_the_laws(
    before: list[str], now: list[str], pinned: list[str], budget: int, k: int | None, packing: str
) -> None:
    using = STABLE.model_copy(update={"packing": packing})
    first = made(some("".join(before)), settings=using, budget_tokens=90)
    given_facts = some("".join(now))
    envelope = made(
        given_facts, settings=using, budget_tokens=budget, k=k, pinned=pinned, previous=first
    )
    assert envelope.token_count == len(envelope.text) <= max(0, budget)
    assert k is None or len(envelope.facts) <= k
    named = [item.fact_id for item in (*envelope.facts, *envelope.dropped)]
    assert sorted(named) == [item.fact_id for item in given_facts.facts]
    prefix = envelope.text[: envelope.prefix_characters]
    assert first.text.startswith(prefix) and envelope.prefix_tokens == len(prefix)
    # The same set of pinned ids in any order gives the same bytes.
    again = made(
        given_facts, settings=using, budget_tokens=budget, k=k, pinned=pinned[::-1], previous=first
    )
    assert again == envelope


@given(st.lists(st.text(max_size=6), max_size=5), st.lists(st.text(max_size=6), max_size=5))
def test_what_is_reusable_begins_both_texts(new: list[str], old: list[str]) -> None:
    prefix = reusable_prefix(new, render(old))
    assert render(new).startswith(prefix) and render(old).startswith(prefix)
    assert prefix in {render(new[:count]) for count in range(len(new) + 1)}


def patiently(facts: list[RankedFact], room: int, passed_over: int) -> list[str]:
    """In rank order; so many that do not fit are skipped for each one that is in."""
    taken: list[RankedFact] = []
    skipped = 0
    for one in facts:
        if one.candidate.tokens <= room - spent(taken):
            taken.append(one)
            continue
        skipped += 1
        if skipped > passed_over * len(taken):
            break
    return ids(taken)


@given(ROWS, st.integers(1, 200), st.integers(0, 3))
def test_the_patient_skip_so_many_for_each_that_is_in(
    rows: list[tuple[int, int]], budget: int, passed_over: int
) -> None:
    # What costs nothing fits behind the last as well, and is no case of stored facts.
    facts = in_rank_order([(tokens + 1, score) for tokens, score in rows])
    packing = pack(facts, budget, passed_over=passed_over)
    assert ids(packing.packed) == patiently(facts, budget, passed_over)
    assert packing.algorithm == "patient@1"
    without = pack(facts, budget, passed_over=len(facts))
    if without.packed and without.packed[0] == facts[0]:
        assert ids(without.packed) == ids(pack(facts, budget).packed)


def test_what_is_pinned_is_packed_however_much_does_not_fit() -> None:
    rows = [(90, 90), (90, 80), (90, 70), (10, 60), (10, 50)]
    facts = in_rank_order(rows)
    packing = pack(facts, 30, passed_over=0, pinned=["f00", "f01", "f03"])
    assert ids(packing.packed) == ["f03"]
    assert ids(pack(facts, 30, passed_over=0).packed) == []
    assert ids(pack(facts, 30).packed) == ["f03", "f04"]

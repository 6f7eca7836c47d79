"""Stage 3c: an answer that contradicts itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages import fidelity as stage
from crp_integrations.dpe.verifier.opposition import ALIKE, alike
from crp_integrations.dpe.verifier.values import read
from tests.dpe.helpers import check_literally as check
from tests.dpe.helpers import literal
from tests.dpe.texts import TEXTS

PAIRS = [
    ("The lake is 40 metres deep.", "The lake is 55 metres deep."),
    ("The contract was signed in 2018.", "The contract was signed in 2016."),
    ("The new law applies to small firms.", "The new law does not apply to small firms."),
]


@pytest.mark.parametrize("pairs", ["share", "all"])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_claims_that_cannot_both_be_true(first: str, second: str, pairs: str) -> None:
    settings = literal(pairs=pairs)
    report = check(f"{first} Whales sing. {second}", [first], settings=settings)
    assert report.contradiction_count == 1
    assert report.contradiction_scope == "intra"
    finding = next(f for f in report.findings if f.kind == "contradiction")
    assert (finding.claim_id, finding.other_claim_id) == ("c3", "c1")


@pytest.mark.parametrize(
    "answer",
    [
        "The lake is 40 metres deep. The river is 55 metres deep.",
        "In 2018 the lake was 40 metres deep. In 2020 the lake was 55 metres deep.",
        "Anna Weiss earned 5 points. Carl Berg earned 7 points.",
        "The lake is 40 metres deep. The lake is 40 metres deep.",
        " ".join(TEXTS),
    ],
)
def test_what_is_no_contradiction(answer: str) -> None:
    report = check(answer, TEXTS)
    assert report.contradiction_count == 0
    assert report.contradiction_scope == "none"


def test_what_the_context_says_twice_is_not_the_answers_fault() -> None:
    context = [PAIRS[0][0], PAIRS[0][1]]
    assert check(" ".join(context), context).contradiction_count == 0


def test_a_listing_that_is_not_compared_is_said_to_be() -> None:
    first, second = "The lake is 40 metres deep.", "The lake is 55 metres deep."
    listing = literal(most_pair_values=1)
    longer = "In 2018 the lake was 40 metres deep."
    report = check(f"{longer} {second}", [longer], settings=listing)
    assert "not-paired=1" in report.flags
    assert report.thresholds["most_pair_values"] == 1.0
    whole = check(f"{first} {second}", [first], settings=listing)
    assert whole.contradiction_count == 1
    assert not any(flag.startswith("not-paired") for flag in whole.flags)


# --- which claims are compared -----------------------------------------------------------

CLAIMS = st.lists(
    st.tuples(
        st.sampled_from(["lake", "river", "old lake", "lake near the town"]),
        st.sampled_from(["is", "is not", "was"]),
        st.integers(1, 4),
    ).map(lambda said: f"The {said[0]} {said[1]} {said[2]} metres deep."),
    max_size=14,
)


@given(CLAIMS)
def test_the_index_finds_the_pairs_that_share_enough_words(texts: list[str]) -> None:
    readings = [read(text) for text in texts]
    words = [{word.stem for word in one.words} for one in readings]
    near = list(alike(readings, [False] * len(texts), None))
    assert [list(one.places) for one in near] == [
        [
            place
            for place in range(at)
            if words[place] & own and len(words[place] & own) / len(words[place] | own) >= ALIKE
        ]
        for at, own in enumerate(words)
    ]
    settled = [len(text) % 2 == 0 for text in texts]
    for at, one in enumerate(alike(readings, settled, None)):
        kept = [p for p in near[at].places if not (settled[p] and settled[at])]
        assert (list(one.places), one.left) == (kept, 0)


@given(CLAIMS, st.integers(1, 4))
def test_of_many_alike_those_with_the_nearest_values_are_taken(texts: list[str], most: int) -> None:
    readings = [read(text) for text in texts]
    free = [False] * len(texts)
    whole, cut = list(alike(readings, free, None)), list(alike(readings, free, most))
    for all_, some in zip(whole, cut, strict=True):
        assert set(some.places) <= set(all_.places)
        assert list(some.places) == sorted(some.places)
        assert len(some.places) == min(most, len(all_.places))
        assert some.left == len(all_.places) - len(some.places)


def test_what_was_not_compared_is_said_to_be() -> None:
    told = "Somebody measured something."
    answer = " ".join(f"The lake was {40 + n} metres deep in {2001 + n}." for n in range(4))
    few = literal(alike_claims=1, pairs="share")
    assert "pairs-cut=2" in check(answer, [told], settings=few).flags
    for settings in (literal(pairs="share"), literal(pairs="all")):
        flags = check(answer, [told], settings=settings).flags
        assert not any(flag.startswith("pairs-cut") for flag in flags)


@pytest.mark.parametrize("count", [20, 40])
def test_the_work_on_a_listing_grows_with_its_length(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    real = stage._contradict
    monkeypatch.setattr(stage, "_contradict", lambda *two: compared.append(two) or real(*two))
    answer = " ".join(f"Plant {n} was built in {1900 + n}." for n in range(count))
    check(answer, ["Somebody built something."], settings=literal(pairs="share"))
    assert len(compared) <= count * DpeSettings().alike_claims

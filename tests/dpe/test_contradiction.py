"""Stage 3c: an answer that contradicts itself, by the document's arithmetic and by default."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.derivation import derive
from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.report_parts import JudgedConflict, JudgeRun
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages import fidelity as stage
from crp_integrations.dpe.stages.fidelity import ALIKE
from crp_integrations.dpe.verifier.opposition import StatementIndex, senses
from crp_integrations.dpe.verifier.values import read
from crp_integrations.vocabulary import RiskLevel
from tests.dpe.helpers import LITERAL, literal
from tests.dpe.helpers import check as by_default
from tests.dpe.helpers import check_literally as check
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


# --- by default --------------------------------------------------------------------------


@pytest.mark.requirement("005-5.4-1")
@pytest.mark.parametrize("settings", [DpeSettings(), LITERAL])
@pytest.mark.parametrize(("first", "second"), [
    *PAIRS,
    ("The plan was approved.", "The plan was not approved."),
    ("The plan was never approved.", "The plan was approved."),
])  # fmt: skip
def test_both_presets_find_a_changed_value_and_a_denial(
    first: str, second: str, settings: DpeSettings
) -> None:
    report = check(f"{first} {second}", [], settings=settings)
    assert (report.contradiction_count, report.contradiction_scope) == (1, "intra")
    assert report.flagged
    (finding,) = (f for f in report.findings if f.kind == "contradiction")
    assert (finding.claim_id, finding.other_claim_id) == ("c2", "c1")


def test_a_contradiction_of_unread_claims_is_medium_and_is_a_reason() -> None:
    report = by_default("The plan was approved. Whales sing. The plan is old.", [])
    assert report.risk_level is RiskLevel.UNKNOWN
    report = by_default("Plan A was approved. Whales sing. Plan A was not approved.", [])
    assert report.risk_level is RiskLevel.MEDIUM
    assert report.reasons[0] == (
        "The answer says “Plan A was not approved”, and before that “Plan A was approved”."
    )
    assert "the answer also says “Plan A was approved.”" in report.to_html()


@pytest.mark.parametrize(
    "answer",
    [
        # Other words are left to a reader.
        "The plan was approved. The plan was rejected.",
        # The answer does not say both itself.
        "The memo says that Plan A was approved. Plan A was not approved.",
        "Myth: Plan A was approved. Fact: Plan A was not approved.",
        "Possible outcomes:\n- Plan A was approved.\n- Plan A was not approved.",
        # Another thing, place, time or notation.
        "Flat A is cheap. The deposit is refundable. Flat B is dear. The deposit is not refundable.",
        "# Before\nThe Louvre is open.\n# After\nThe Louvre is not open.",
        "In 2018 the lake was 40 metres deep. In 2020 the lake was 55 metres deep.",
        "Version 2 costs 5 euros. Version 3 costs 5 euros.",
        "Berlin has 3.6 million inhabitants. Berlin has 3,600,000 inhabitants.",
        "Plan A was approved. Was Plan A not approved?",
        "Some rooms cost 40 euros. Some rooms cost 50 euros.",
        "A standard room costs 40 euros. A standard room costs 50 euros.",
    ],
)
def test_by_default_only_the_same_words_contradict(answer: str) -> None:
    report = by_default(answer, [])
    assert (report.contradiction_count, report.risk_level) == (0, RiskLevel.UNKNOWN)


def test_what_the_passages_state_both_ways_is_no_contradiction() -> None:
    for first, second in PAIRS:
        for context in ([first, second], [f"{first} {second}"]):
            assert by_default(f"{first} {second}", context).contradiction_count == 0


def test_a_judge_that_names_the_same_pair_counts_it_once() -> None:
    context, question = ["Plan A is old."], "What of plan A?"
    dossier = Dossier(
        question, "Plan A was approved. Plan A was not approved.", (("f1", context[0]),)
    )
    report = by_default(dossier.answer, context, question=question)
    pair = JudgedConflict(claims=("c1", "c2"), reason="both")
    for conflicts, count in (((), 1), ((pair,), 1), ((JudgedConflict(claims=("c1", "c3")),), 2)):
        run = JudgeRun(model="m", prompt="p", calls=(), passages=1, conflicts=conflicts)
        judged = derive(report.changed(judge=run), dossier, DpeSettings())
        assert judged.contradiction_count == count


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
    index = StatementIndex(len(texts))
    words: list[set[str]] = []
    for text in texts:
        own = {word for word, _ in senses(read(text))}
        near = index.near(read(text), ALIKE)
        assert sorted(near, key=lambda one: (-one[0], -one[1])) == near
        assert {place for _, place in near} == {
            place
            for place, other in enumerate(words)
            if own & other and len(own & other) / len(own | other) >= ALIKE
        }
        index.add(read(text))
        words.append(own)


SENTENCES = (
    "The tower has 40 floors.", "The tower has 60 floors.", "The bridge is open.",
    "The bridge is not open.", "The dome opened in 1990.", "The dome opened in 1991.",
    "It is 5.", "It is 7.", "Gardens grow tulips.", "A permit is required.",
    "A permit is not required.", "Nobody knows.", "The tower is red.",
)  # fmt: skip


@pytest.mark.requirement("005-5.4-1")
@given(st.lists(st.sampled_from(SENTENCES), min_size=2, max_size=8, unique=True))
def test_pairs_that_share_nothing_lose_no_contradiction(chosen: list[str]) -> None:
    """The published loss of `share` is 0: a contradiction needs three quarters of common words."""
    answer = " ".join(chosen)
    share, every = (check(answer, [], settings=literal(pairs=pairs)) for pairs in ("share", "all"))
    assert share.findings == every.findings
    opposed = [
        (a, b)
        for a, b in zip(SENTENCES[:6:2], SENTENCES[1:6:2], strict=True)
        if a in chosen and b in chosen
    ]
    assert len([one for one in every.findings if one.kind == "contradiction"]) >= len(opposed)


def test_what_was_not_compared_is_said_to_be() -> None:
    told = "Somebody measured something."
    answer = " ".join(f"The lake was {40 + n} metres deep in {2001 + n}." for n in range(4))
    few = literal(alike_claims=1, pairs="share")
    assert "pairs-cut=2" in check(answer, [told], settings=few).flags
    for settings in (literal(pairs="share"), literal(pairs="all")):
        flags = check(answer, [told], settings=settings).flags
        assert not any(flag.startswith("pairs-cut") for flag in flags)


@pytest.mark.requirement("005-5.4-1")
@pytest.mark.parametrize("pairs", ["all", "share"])
def test_literal_meets_every_pair_and_share_those_that_share_most(
    pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    real = stage.compare
    monkeypatch.setattr(stage, "compare", lambda *two: compared.append(two) or real(*two))
    answer = " ".join(f"Plant {n} was built in {1900 + n}." for n in range(20))
    check(answer, ["Somebody built something."], settings=literal(pairs=pairs))
    most = 20 * 19 // 2 if pairs == "all" else 20 * DpeSettings().alike_claims
    assert len(compared) == most if pairs == "all" else len(compared) <= most

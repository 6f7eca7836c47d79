"""Stage 6: an answer beside what earlier windows said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.dossier import Dossier, PriorWindow
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.ports import Judgement
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.report_parts import CrossContradiction
from crp_integrations.dpe.settings import QualitySettings
from crp_integrations.dpe.stages.report import finish
from crp_integrations.dpe.verifier.opposition import compare
from crp_integrations.dpe.verifier.values import read
from crp_integrations.vocabulary import ClaimType, Severity
from tests.doubles import HashEmbedder
from tests.dpe import windows
from tests.dpe.helpers import LITERAL, literal
from tests.dpe.texts import TEXTS

after = partial(windows.after, settings=LITERAL)


def found(answer: str, *prior: str) -> list[tuple[str, Severity]]:
    report = after(answer, *prior)
    return [(one.kind, one.severity) for one in report.cross_window_contradictions]


class Fixed:
    """A verifier that reads nothing and always says the same."""

    identity = "fixed@1"
    passage = 4_000
    thresholds: Mapping[str, float] = {}

    def __init__(self, contradiction: float) -> None:
        self.word = Judgement(0.0, contradiction, 1.0 - contradiction, 0)
        self.asked: list[tuple[str, str]] = []

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        self.asked += [(claim, passage) for passage in passages]
        return self.word


@pytest.mark.requirement("005-8.1-1")
def test_growth_after_a_decrease_is_a_contradiction() -> None:
    report = after("Revenue increased 20%.", "Revenue decreased 5%.")
    assert len(report.cross_window_contradictions) == 1
    assert report.contradiction_scope == "cross-window"
    assert report.contradiction_count == 1
    # Within one window neither sentence can be seen to be wrong.
    assert after("Revenue increased 20%.").contradiction_count == 0


@pytest.mark.requirement("005-8.2-4", "005-8.2-5", "005-8.2-6", "005-8.2-7")
@pytest.mark.parametrize(
    ("before", "here", "kind", "severity"),
    [
        ("Revenue was $4.2M.", "Revenue was $5.1M.", "numeric", Severity.CRITICAL),
        ("The policy was approved.", "The policy was rejected.", "logical", Severity.HIGH),
        ("The bridge is open.", "The bridge is not open.", "logical", Severity.HIGH),
        ("The product launched in 2024.", "The product launched in 2025.", "temporal",
         Severity.HIGH),
        ("Reviews were generally positive.", "Reviews were largely negative.", "stance",
         Severity.MEDIUM),
        ("Growth was about 15%.", "Growth was approximately 16%.", "minor", Severity.LOW),
        ("The fee is 5 dollars.", "The fee is about 5.3 dollars.", "minor", Severity.LOW),
    ],
)  # fmt: skip
def test_five_severities(before: str, here: str, kind: str, severity: Severity) -> None:
    assert found(here, before) == [(kind, severity)]
    assert found(before, here) == [(kind, severity)]


@pytest.mark.parametrize(
    ("before", "here"),
    [
        ("Revenue was 15%.", "Revenue was 16%."),
        ("Growth was about 15%.", "Growth was approximately 18%."),
    ],
)
def test_without_a_hedge_or_with_a_large_difference_it_is_not_minor(before: str, here: str) -> None:
    assert found(here, before) == [("numeric", Severity.CRITICAL)]


@pytest.mark.parametrize(
    ("before", "here"),
    [
        ("In 2019 revenue was $4M.", "In 2020 revenue was $5M."),
        ("Growth was 12 % in 2022.", "It declined by 3 % in 2023."),
        ("Exports grew by 12 %.", "Imports declined by 3 %."),
        ("The bridge is 310 metres long.", "The height of the bridge is 28 metres."),
        ("Revenue in Asia was $5.1M.", "Revenue in Europe was $4.2M."),
        ("The first phase costs 5 million.", "The second phase costs 7 million."),
        ("The small plan costs $5.", "The large plan costs $9."),
        ("Subscription revenue was $4M.", "Revenue was $5M."),
        ("The exam takes 3 hours.", "The exam takes 180 minutes."),
        ("Revenue was $4.2M in Q3.", "Revenue was $5.1M in Q4."),
        ("The policy was approved.", "The policy was approved and printed."),
    ],
)
def test_other_things_and_equal_ones_are_no_contradiction(before: str, here: str) -> None:
    assert found(here, before) == []
    assert found(before, here) == []


@pytest.mark.requirement("005-8.2-1")
def test_claims_that_share_a_value_or_a_state_are_compared_and_no_others() -> None:
    report = after(
        "The Meridian reactor was inspected. Tulips bloom. I think revenue is nice.",
        "The Meridian reactor delivers 412 megawatts.",
    )
    assert report.quality.coherence.compared == 1
    assert after("Tulips bloom.", "The reactor is closed.").quality.coherence.compared == 0


@pytest.mark.requirement("005-8.2-2")
def test_a_summary_stands_for_the_window_where_it_is_what_is_given() -> None:
    summary = PriorWindow("w1", 1, "The policy was approved.", summarised=True)
    report = after("The policy was rejected.", summary)
    assert report.cross_window_contradictions[0].prior_claim == "The policy was approved."
    assert "prior-summaries=1" in report.flags
    assert not any("prior-summaries" in flag for flag in after("A is B.", "The sky is blue.").flags)


def test_every_earlier_window_is_searched() -> None:
    filler = "The garden has 14 tulips. The river is 3 km long."
    report = after("The policy was rejected.", "The policy was approved.", filler, filler)
    assert [one.prior_window_id for one in report.cross_window_contradictions] == ["w1"]


@pytest.mark.requirement("005-8.2-3")
def test_only_above_the_threshold_is_a_pair_flagged() -> None:
    prior, here = "The northern harbour serves ferries.", "The northern harbour excludes ferries."
    for contradiction, count in ((0.75, 0), (0.751, 1)):
        verifier = Fixed(contradiction)
        report = after(here, prior, verifier=verifier)
        assert (here, prior) in verifier.asked
        assert len(report.cross_window_contradictions) == count
    high = literal(quality=QualitySettings(contradiction_probability=0.95))
    report = after("The bridge is not open.", "The bridge is open.", settings=high)
    assert report.cross_window_contradictions == ()
    assert report.quality.coherence.compared == 1


@pytest.mark.requirement("005-8.4-1")
def test_what_a_contradiction_holds() -> None:
    answer = "Tulips bloom. The product launched in 2025."
    prior = "Hello there. The product launched in 2024."
    report = finish(after(answer, prior), window_id="crp_win_9")
    one = report.cross_window_contradictions[0]
    assert (one.claim, one.prior_claim) == (
        "The product launched in 2025.", "The product launched in 2024.",
    )  # fmt: skip
    assert answer[one.start : one.end] == one.claim
    assert prior[one.prior_start : one.prior_end] == one.prior_claim
    assert (one.window_id, one.prior_window_id) == ("crp_win_9", "w1")
    assert one.severity is Severity.HIGH
    assert one.engine == "opposed@1"
    assert report.quality.coherence.contradictions == report.cross_window_contradictions


def test_scope_tells_where_contradictions_stand() -> None:
    inner = "The tower has 40 floors. The tower has 60 floors."
    assert after(inner).contradiction_scope == "intra"
    both = after(inner, "The tower has 80 floors.")
    assert both.contradiction_scope == "both"
    assert both.contradiction_count == 3
    assert after("The tower is high.").contradiction_scope == "none"


@pytest.mark.requirement("005-3.3-4")
@pytest.mark.parametrize(("prior", "answer"), [
    ("This summary covers the private part.", "This summary covers the public part."),
    ("This section covers three of them.", "This section covers four of them."),
])  # fmt: skip
def test_a_meta_claim_counts_for_coherence_and_for_no_attribution(prior: str, answer: str) -> None:
    report = after(answer, prior)
    meta = report.claims[0]
    assert meta.claim_type is ClaimType.META
    assert meta.attribution is None
    assert sum(report.attribution_breakdown.values()) == 0
    assert report.quality.coherence.compared == 1
    assert [one.claim_id for one in report.cross_window_contradictions] == [meta.claim_id]


def test_contradictions_count_once_in_the_fidelity_of_the_answer() -> None:
    alone = after("The policy was rejected.")
    crossed = after("The policy was rejected.", "The policy was approved.")
    assert crossed.fidelity_score == alone.fidelity_score
    assert crossed.base_score == alone.base_score


def test_the_first_window_is_coherent_and_says_that_nothing_was_compared() -> None:
    report = after("The policy was rejected.")
    assert report.quality.coherence.score == 1.0
    assert next(run.engine for run in report.stages if run.number == 6) == "no earlier window"


def test_a_window_that_was_not_handed_over_is_not_called_coherent() -> None:
    report = after("The policy was rejected.", "")
    assert {6, 7, 9}.isdisjoint(run.number for run in report.stages)
    assert "prior-not-read=1" in report.flags


def test_listings_that_are_not_compared_are_counted() -> None:
    listing = ", ".join(f"item {n} costs {n} dollars" for n in range(60)) + "."
    report = after(f"The list says {listing}", "The list says item 3 costs 4 dollars.")
    assert report.quality.coherence.unread >= 1
    assert f"not-compared={report.quality.coherence.unread}" in report.flags


def test_literal_compares_every_sharing_pair() -> None:
    prior = " ".join(f"The north gate has {n} locks in hall {n}." for n in range(2, 30))
    answer = "The north gate has 99 locks in hall 7."
    wide = after(answer, prior, settings=LITERAL, embedder=HashEmbedder())
    run = next(run for run in wide.stages if run.number == 6)
    assert "all sharing pairs" in run.engine


@given(st.sampled_from(TEXTS), st.sampled_from(TEXTS), st.booleans())
def test_comparison_is_symmetric_and_never_finds_a_text_against_itself(
    one: str, other: str, same: bool
) -> None:
    left, right = read(one), read(one if same else other)
    assert compare(left, right, 0.1) == compare(right, left, 0.1)
    if same:
        assert compare(left, right, 0.1).kind is None


@given(st.permutations(["The gate has 5 locks.", "The wall is red.", "The dome opened in 1990."]))
def test_the_order_of_what_was_said_before_changes_no_verdict(order: list[str]) -> None:
    report = after("The dome opened in 1991. The wall is not red.", " ".join(order))
    assert [one.kind for one in report.cross_window_contradictions] == ["temporal", "logical"]


def test_a_report_reads_back() -> None:
    report = after("The policy was rejected.")
    assert Report.model_validate_json(report.model_dump_json()) == report


def test_equal_input_gives_equal_bytes() -> None:
    one, two = (
        after("The policy was rejected. The dome opened in 1991.", "The policy was approved.")
        for _ in range(2)
    )
    assert one.model_dump_json() == two.model_dump_json()


def test_a_contradiction_is_a_record_that_refuses_a_probability_above_one() -> None:
    with pytest.raises(ValueError, match="probability"):
        CrossContradiction(
            claim_id="c1", claim="a", prior_claim="b", prior_window_id="w1", kind="numeric",
            severity=Severity.LOW, probability=1.5,
        )  # fmt: skip


def test_many_windows_cost_in_line_with_their_length() -> None:
    """Comparisons are counted, not seconds: each claim meets at most so many earlier ones."""
    verifier = Fixed(0.0)
    prior = " ".join(f"The north gate holds wagon {n} today." for n in range(400))
    examine(
        Dossier(
            "",
            " ".join(f"The north gate holds wagon {n} tonight." for n in range(50)),
            (),
            prior=(PriorWindow("w1", 1, prior),),
        ),
        embedder=HashEmbedder(),
        verifier=verifier,
        settings=literal(pairs="share"),
    )
    assert len(verifier.asked) <= 50

"""Stage 1: claims, their fields and their types."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.vocabulary import Checked, ClaimType, RiskLevel
from tests.dpe.helpers import check_literally as check
from tests.dpe.helpers import kinds
from tests.dpe.texts import HARBOUR, TEXTS


@pytest.mark.requirement("005-3.2-1")
def test_the_fields_of_a_claim() -> None:
    report = check(HARBOUR, [HARBOUR])
    ids = [claim.claim_id for claim in report.claims]
    assert len(set(ids)) == len(ids) >= 6
    assert [c.sentence_index for c in report.claims] == sorted(
        c.sentence_index for c in report.claims
    )
    assert report.claims[0].sentence_index == 0
    assert report.claims[-1].sentence_index == 5
    for claim in report.claims:
        assert 0.0 <= claim.specificity <= 1.0
        assert HARBOUR[claim.start : claim.end] == claim.text
        assert claim.reads_as.endswith(claim.text)
        for entity in claim.entities:
            assert HARBOUR[entity.start : entity.end] == entity.text
    found = {(e.text, e.kind) for c in report.claims for e in c.entities}
    assert {("Clara Voss", "name"), ("2024-03-12", "date"), ("15%", "quantity")} <= found


@pytest.mark.requirement("005-3.1-1", "005-3.4-1")
@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        ("The pier is closed and the harbour was sold in 2024.", ["pier", "2024"]),
        ("The dose is 50 mg and the trial ended in 2019.", ["50 mg", "2019"]),
        ("The probe is intact and its antenna was restored in 2020.", ["intact", "2020"]),
    ],
)
def test_two_statements_are_two_claims(answer: str, parts: list[str]) -> None:
    claims = check(answer, list(TEXTS)).claims
    assert len(claims) == 2
    for claim, part in zip(claims, parts, strict=True):
        assert part in answer[claim.start : claim.end]


@pytest.mark.requirement("005-3.1-1")
def test_a_clause_without_a_subject_borrows_it() -> None:
    answer = "The Arden Library holds 310,000 volumes and employs 12 people."
    first, second = check(answer, list(TEXTS)).claims
    assert first.reads_as == first.text
    assert second.text == "employs 12 people."
    assert second.reads_as == "The Arden Library employs 12 people."


@pytest.mark.requirement("005-3.1-1")
def test_a_false_half_does_not_condemn_the_true_one() -> None:
    answer = "The north pier was opened on 2024-03-12 and freight grew by 45% compared with 2022."
    first, second = check(answer, [HARBOUR]).claims
    assert not first.findings
    assert [f.kind for f in second.findings] == ["MAGNITUDE_ALTERED"]
    assert first.entailment is not None
    assert second.entailment is not None
    assert first.entailment > 0.5 > second.entailment


@pytest.mark.requirement("005-3.3-1")
@pytest.mark.parametrize(
    ("answer", "claim_type"),
    [
        ("The harbour employs 640 people.", ClaimType.FACTUAL),
        ("The harbour is busy.", ClaimType.FACTUAL),
        ("I think the harbour is beautiful.", ClaimType.OPINION),
        ("Here is a summary of the article in 198 words:", ClaimType.META),
        ("This section covers three of them.", ClaimType.META),
        ("This answer describes the GDPR.", ClaimType.META),
        ("This answer covers the fee of 40 euros.", ClaimType.FACTUAL),
        ("This answer describes why Acme went bankrupt.", ClaimType.FACTUAL),
        ("The answer is 42.", ClaimType.FACTUAL),
        ("Open the window slowly.", ClaimType.PROCEDURAL),
    ],
)
def test_claim_types(answer: str, claim_type: ClaimType) -> None:
    report = check(answer, list(TEXTS))
    assert [claim.claim_type for claim in report.claims] == [claim_type]
    assert report.claims_by_type[claim_type.value] == 1
    assert (report.claims[0].attribution is None) == (claim_type is not ClaimType.FACTUAL)


@pytest.mark.requirement("005-3.3-2")
def test_opinions_are_flagged_and_enter_no_score() -> None:
    fact = "The harbour of Lindmouth handled 4,200,000 tonnes of freight in 2023."
    opinion = "I think the harbour is beautiful."
    plain, with_opinion = check(fact, [HARBOUR]), check(f"{fact} {opinion}", [HARBOUR])
    assert "opinions=1" in with_opinion.flags
    assert "opinions=1" not in plain.flags
    assert with_opinion.claims[-1].checked is Checked.NOT_CHECKABLE
    for name in (
        "composite_score", "fidelity_score", "entailment_score", "grounding_pct", "signals",
        "unverifiable_pct", "fabrication_count", "distortion_count", "checked_share",
    ):  # fmt: skip
        assert getattr(with_opinion, name) == getattr(plain, name), name


def test_a_change_in_an_instruction_is_found() -> None:
    context = ["Open the window of the Arden Library slowly."]
    report = check("Open the window of the Halden Museum slowly.", context)
    assert report.claims[0].claim_type is ClaimType.PROCEDURAL
    assert kinds(report) == ["ENTITY_SUBSTITUTED"]
    assert report.composite_score >= 0.20
    assert check(context[0], context).composite_score < 0.20


def test_a_changed_dose_is_found_whatever_its_type() -> None:
    context = ["Take 50 mg of the powder twice daily with food."]
    report = check("Take 500 mg of the powder twice daily with food.", context)
    assert kinds(report) == ["NUMBER_CHANGED"]
    assert report.composite_score >= 0.20


def test_an_instruction_without_a_source_is_not_checkable() -> None:
    report = check("Please open the window slowly.", ["Whales are mammals."])
    assert report.claims[0].checked is Checked.NOT_CHECKABLE


@pytest.mark.parametrize("answer", ["", " ", "\n\n", "...", "-", "***"])
def test_an_answer_without_claims(answer: str) -> None:
    report = check(answer, [HARBOUR])
    assert report.claims == ()
    assert "claims=0" in report.flags
    assert report.composite_score == 0.0


@given(
    answer=st.text(max_size=120),
    context=st.lists(st.text(max_size=80), max_size=3),
)
def test_no_text_crashes_the_engine(answer: str, context: list[str]) -> None:
    report = check(answer, context)
    assert 0.0 <= report.composite_score <= 1.0
    for claim in report.claims:
        assert 0 <= claim.start < claim.end <= len(answer)
        for finding in claim.findings:
            assert 0 <= finding.start <= finding.end <= len(answer)


NASTY = st.text(
    alphabet="aA1½²٣\u200b\u0301\u202e\ufeff'’\"“.,;:-–—%$€°\n\t[]()|#*/\\𝟘İıßŉﬁ", max_size=60
)


@given(answer=NASTY, context=st.lists(NASTY, max_size=2))
def test_no_strange_characters_crash_the_engine(answer: str, context: list[str]) -> None:
    report = check(answer, context)
    for claim in report.claims:
        for finding in claim.findings:
            assert answer[finding.start : finding.end] is not None
            if finding.evidence is not None:
                text = context[int(finding.evidence.fact_id[1:]) - 1]
                assert 0 <= finding.evidence.start <= finding.evidence.end <= len(text)


FIGURES = st.lists(
    st.one_of(
        st.text(alphabet="0123456789.,", min_size=1, max_size=45),
        st.sampled_from(
            ["million", "k", "%", "$", "km", "about", "in", "cost", "2024", "12:30", "to"]
        ),
    ),
    max_size=8,
).map(" ".join)


@given(answer=FIGURES, context=FIGURES)
def test_no_figures_crash_the_engine(answer: str, context: str) -> None:
    report = check(answer, [context])
    assert 0.0 <= report.composite_score <= 1.0


def test_figures_of_forty_digits() -> None:
    digits = "1234567890" * 4
    report = check(
        f"The sum is {digits}.25 units.", [f"The sum is {digits}.3 units or 0.{digits}."]
    )
    assert report.risk_level is not RiskLevel.LOW


STEPS = ["Drain the tank for 20 minutes.", "Rinse the filter with cold water."]


@pytest.mark.requirement("005-3.3-3")
def test_an_instruction_is_checked_where_the_source_has_one_like_it() -> None:
    report = check("1. Rinse the filter with cold water.", STEPS)
    claim = report.claims[0]
    assert (claim.claim_type, claim.checked) == (ClaimType.PROCEDURAL, Checked.CHECKED)
    assert claim.evidence[0].fact_id == "f2"
    other = check("1. Install the spare wheel.", STEPS).claims[0]
    assert (other.claim_type, other.checked) == (ClaimType.PROCEDURAL, Checked.NOT_CHECKABLE)
    assert other.evidence == ()
    changed = check("1. Drain the tank for 50 minutes.", STEPS)
    assert kinds(changed) == ["NUMBER_CHANGED"]


@pytest.mark.requirement("005-3.4-2")
@pytest.mark.parametrize(
    "joint", [" and it", ", and it", "; it", ", but it", ", which", " while it", " although it"]
)
def test_a_fabricated_half_of_a_compound_sentence_is_found(joint: str) -> None:
    fact = "The port employs 640 people. It handled 12,000 ships. The old crane was sold to Oslo."
    answer = f"The port employs 640 people{joint} was founded by Nils Quill in 1720."
    report = check(answer, [fact])
    found = [answer[f.start : f.end] for f in report.findings]
    assert any("1720" in text for text in found), found
    assert not any("640" in text for text in found)
    assert report.claims_total >= 2

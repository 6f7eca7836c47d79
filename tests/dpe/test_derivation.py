"""A report from the statuses of its claims: the table, the worst of them, and what lifts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import examine
from crp_integrations.dpe.derivation import LEVELS, UNSUPPORTED_LEVEL, derive, worse
from crp_integrations.dpe.dossier import Dossier, System
from crp_integrations.dpe.judge.verdict import ALLOWED, CONFLICT
from crp_integrations.dpe.records import (
    HIDDEN_TEXT,
    Claim,
    ClaimCounts,
    Finding,
    PersonalData,
    PersonalDatum,
    Report,
)
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.vocabulary import (
    AiActClass,
    Attribution,
    Checked,
    ClaimStatus,
    ClaimType,
    DistortionType,
    Domain,
    ErrorKind,
    GroundingMode,
    PersonalCategory,
    RiskLevel,
    Verification,
)
from tests.dpe.helpers import check
from tests.dpe.judging import Case, contradicted, saying, supported
from tests.relay.judges import scripted_judge

LOW, UNKNOWN, MEDIUM, HIGH, CRITICAL = RiskLevel
OPEN, PREFERRED, STRICT = GroundingMode.OPEN, GroundingMode.PREFERRED, GroundingMode.STRICT
MODES = (OPEN, PREFERRED, STRICT)
# A status with the kind of error that goes with it.
Said = tuple[ClaimStatus, ErrorKind | None]
SUPPORTED: Said = (ClaimStatus.SUPPORTED, None)
CONTRADICTED: Said = (ClaimStatus.CONTRADICTED, ErrorKind.NUMBER)
OVERREACH: Said = (ClaimStatus.UNSUPPORTED, ErrorKind.OVERREACH)
INVENTION: Said = (ClaimStatus.UNSUPPORTED, ErrorKind.INVENTION)
UNREAD: Said = (ClaimStatus.NOT_CHECKED, None)
NO_CLAIM: Said = (ClaimStatus.NOT_CHECKABLE, None)
EVERY = (SUPPORTED, CONTRADICTED, OVERREACH, INVENTION, UNREAD, NO_CLAIM)
SENTENCE = "The pier is open. "


def claims_of(statuses: Sequence[Said], **changes: Any) -> tuple[Claim, ...]:
    """One claim of one sentence for each status."""
    width = len(SENTENCE)
    return tuple(
        Claim(
            claim_id=f"c{place + 1}",
            text=SENTENCE.strip(),
            start=place * width,
            end=place * width + width - 1,
            reads_as=SENTENCE.strip(),
            sentence_index=place,
            claim_type=ClaimType.FACTUAL,
            specificity=0.5,
            checked=Checked.CHECKED,
            status=status,
            error=error,
            **changes,
        )
        for place, (status, error) in enumerate(statuses)
    )


def derived(
    *statuses: Said, mode: GroundingMode = PREFERRED, claims: Sequence[Claim] = (), **about: Any
) -> Report:
    """The report on an answer whose claims have these statuses."""
    system = about.pop("system", System())
    given_ = tuple(claims) or claims_of(statuses)
    dossier = Dossier("", SENTENCE * len(given_), (("f1", "x"),), grounding=mode, system=system)
    bare = check("", ["x"]).model_copy(update={"claims": given_, "flags": (), **about})
    return derive(bare, dossier, DpeSettings())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("said", "attribution", "entailment", "fidelity", "grounding", "counts", "level", "verified"),
    [
        (SUPPORTED, Attribution.CONTEXT_GROUNDED, 1.0, 1.0, 1.0, (1, 1, 0, 0), LOW, "VERIFIED"),
        (CONTRADICTED, Attribution.PARAMETRIC, 0.0, 0.8, 0.0, (1, 0, 1, 0), HIGH, "VERIFIED"),
        (OVERREACH, Attribution.PARAMETRIC, 0.0, 1.0, 0.0, (1, 0, 1, 0), None, "VERIFIED"),
        (INVENTION, Attribution.PARAMETRIC, 0.0, 0.7, 0.0, (1, 0, 1, 0), HIGH, "VERIFIED"),
        (UNREAD, Attribution.UNVERIFIABLE, 0.0, 1.0, 0.0, (0, 0, 0, 1), UNKNOWN, "UNREAD"),
        (NO_CLAIM, None, 1.0, 1.0, 1.0, (0, 0, 0, 0), LOW, "VERIFIED"),
    ],
)
def test_the_table(
    mode: GroundingMode,
    said: Said,
    attribution: Attribution | None,
    entailment: float,
    fidelity: float,
    grounding: float,
    counts: tuple[int, int, int, int],
    level: RiskLevel | None,
    verified: str,
) -> None:
    report = derived(said, mode=mode)
    (claim,) = report.claims
    wanted = level or UNSUPPORTED_LEVEL[mode]
    assert claim.attribution is report.attribution_dominant is attribution
    assert report.grounding_pct == grounding
    assert report.unverifiable_pct == (said is UNREAD)
    assert report.fidelity_score == pytest.approx(fidelity)
    # Under `open` what the model knows itself may be left unentailed.
    allowed = mode is OPEN and said[0] is ClaimStatus.UNSUPPORTED
    assert report.entailment_score == (1.0 if allowed else entailment)
    read, supported_, wrong, unread = counts
    assert report.claim_counts == ClaimCounts(
        read=read, supported=supported_, wrong=wrong, unread=unread
    )
    assert report.risk_level is wanted
    assert (report.risk_score is None) == (wanted is UNKNOWN)
    assert report.flagged == (wanted in (MEDIUM, HIGH, CRITICAL))
    assert bool(report.reasons) == (wanted is not LOW)
    assert report.verification is Verification(verified)
    assert report.checked_share == (said is not UNREAD)
    assert (claim.checked is Checked.CHECKED) == (read == 1)
    assert (ALLOWED in report.flags) == (allowed and wanted is LOW)
    assert report.distortion_types == (
        (DistortionType.NUMBER_CHANGED,) if said is CONTRADICTED else ()
    )
    assert (report.fabrication_count, report.distortion_count) == (
        said is INVENTION,
        said is CONTRADICTED,
    )


def test_levels_stand_in_their_order() -> None:
    assert LEVELS == (LOW, UNKNOWN, MEDIUM, HIGH, CRITICAL)
    for one in LEVELS:
        for other in LEVELS:
            assert worse(one, other) is worse(other, one)
            assert LEVELS.index(worse(one, other)) == max(LEVELS.index(one), LEVELS.index(other))


def test_a_part_that_was_read_is_partial() -> None:
    report = derived(SUPPORTED, UNREAD, UNREAD, NO_CLAIM)
    assert report.verification is Verification.PARTIAL
    assert report.checked_share == pytest.approx(1 / 3)
    assert report.grounding_pct == pytest.approx(1 / 3)
    assert report.entailment_score == 0.0
    assert (report.risk_level, report.risk_score) == (UNKNOWN, None)


@pytest.mark.parametrize("answer", ["", "  \n"])
def test_an_answer_without_text_says_nothing(answer: str) -> None:
    report = check(answer, ["The pier is open."])
    assert (report.risk_level, report.risk_score) == (UNKNOWN, None)
    assert report.verification is Verification.UNREAD
    assert report.checked_share == report.grounding_pct == 0.0


@pytest.mark.parametrize("answer", ["Hello!", "Hello! How can I help you today?"])
def test_a_greeting_claims_nothing(answer: str) -> None:
    report = check(answer, ["The pier is open."])
    assert report.risk_level is LOW
    assert report.claim_counts == ClaimCounts()


STATUSES = st.lists(st.sampled_from(EVERY), min_size=1, max_size=12)


def rank(report: Report) -> tuple[int, float]:
    return LEVELS.index(report.risk_level), report.risk_score or 0.0


@given(STATUSES, st.sampled_from((CONTRADICTED, OVERREACH, INVENTION)), st.sampled_from(MODES))
def test_a_further_wrong_claim_never_lowers(
    said: list[Said], wrong: Said, mode: GroundingMode
) -> None:
    before, after = derived(*said, mode=mode), derived(*said, wrong, mode=mode)
    assert rank(after) >= rank(before)
    assert after.claim_counts.wrong == before.claim_counts.wrong + 1
    assert after.fidelity_score <= 1.0


@given(STATUSES, st.integers(0, 12), st.integers(1, 40), st.sampled_from(MODES))
def test_supported_claims_hide_nothing(
    said: list[Said], place: int, more: int, mode: GroundingMode
) -> None:
    before = derived(*said, mode=mode)
    after = derived(*said[:place], *[SUPPORTED] * more, *said[place:], mode=mode)
    assert rank(after) == rank(before)
    assert after.claim_counts.wrong == before.claim_counts.wrong
    assert after.claim_counts.unread == before.claim_counts.unread


@given(STATUSES, st.sampled_from(MODES))
def test_what_every_report_keeps_to(said: list[Said], mode: GroundingMode) -> None:
    report = derived(*said, mode=mode)
    assert rank(report) <= (LEVELS.index(HIGH), 0.7)
    counts = report.claim_counts
    assert counts.read == counts.supported + counts.wrong
    assert counts.read + counts.unread == sum(one is not NO_CLAIM for one in said)
    if report.risk_level is LOW:
        assert not counts.unread
    scores = [derived(*said, mode=each) for each in MODES]
    assert sorted(scores, key=rank) == scores
    assert Report.model_validate_json(report.model_dump_json()) == report


def personal_at(start: int, where: str = "answer") -> PersonalData:
    datum = PersonalDatum(
        category=PersonalCategory.DIRECT, kind="email", where=where, start=start, end=start + 3,
        recogniser="email@1", score=1.0,
    )  # fmt: skip
    return PersonalData(found=(datum,))


@pytest.mark.parametrize(
    ("start", "where", "level"),
    [
        (len(SENTENCE) + 4, "answer", CRITICAL),
        (4, "answer", HIGH),
        (len(SENTENCE) + 4, "prompt", HIGH),
    ],
)
def test_personal_data_count_in_the_sentence_of_a_contradicted_claim(
    start: int, where: str, level: RiskLevel
) -> None:
    report = derived(SUPPORTED, CONTRADICTED, SUPPORTED, personal=personal_at(start, where))
    assert report.risk_level is level


@pytest.mark.parametrize(
    ("passage", "question", "answer", "own"),
    [
        ("Anna Schmidt paid 300 euros.", "", "Anna Schmidt paid 400 euros.", False),
        ("SCHMIDT, Anna: 300 euros.", "", "Mr. Schmidt paid 400 euros.", False),
        (
            "The tenant paid 300 euros.",
            "What did Anna Schmidt pay?",
            "Anna Schmidt paid 400.",
            False,
        ),
        ("Call +1 (202) 555-0142.", "", "Call +1 202 555 0142 on Monday.", False),
        ("Call +1 202 555 0142.", "", "Call +1 202 555 0199.", True),
        ("Write to ann@example.com.", "", "Write to anna@example.com.", True),
        ("The tenant paid 300 euros.", "", "Anna Schmidt paid 300 euros.", True),
    ],
)
@pytest.mark.parametrize("tool", [False, True])
def test_data_that_evidence_or_question_brings_up_is_none_of_the_answers(
    passage: str, question: str, answer: str, own: bool, tool: bool
) -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "crm", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": question or "What is known?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t1", "content": passage},
    ]
    report = examine(
        answer,
        [] if tool else [passage],
        question or None,
        conversation=turns if tool else (),
        judge=scripted_judge("CONTRADICTED"),
    )
    assert report.personal.found
    assert report.risk_level is (CRITICAL if own else HIGH)


@pytest.mark.parametrize("said", [SUPPORTED, OVERREACH, INVENTION, UNREAD])
def test_personal_data_lift_nothing_that_is_not_contradicted(said: Said) -> None:
    assert derived(said, personal=personal_at(4)).risk_level is derived(said).risk_level


@pytest.mark.parametrize(
    ("domain", "act", "level"),
    [
        (Domain.EMPLOYMENT, AiActClass.HIGH, CRITICAL),
        (None, AiActClass.HIGH, HIGH),
        (Domain.CREATIVE, AiActClass.MINIMAL, HIGH),
    ],
)
def test_a_registered_high_risk_use_is_at_stake(
    domain: Domain | None, act: AiActClass, level: RiskLevel
) -> None:
    report = derived(CONTRADICTED, system=System(domain=domain), eu_ai_act_class=act)
    assert report.risk_level is level
    assert derived(SUPPORTED, system=System(domain=domain), eu_ai_act_class=act).risk_level is LOW


@pytest.mark.parametrize("said", [SUPPORTED, CONTRADICTED, INVENTION])
def test_a_disputed_claim_is_medium_with_a_flag(said: Said) -> None:
    report = derived(claims=claims_of([said], disputed=True))
    assert report.risk_level is MEDIUM
    assert CONFLICT in report.flags


@pytest.mark.parametrize("said", EVERY)
def test_hidden_text_is_medium_at_least(said: Said) -> None:
    hidden = Finding(stage=3, kind=HIDDEN_TEXT, claim_id="c1", start=0, end=1)
    report = derived(claims=claims_of([said], findings=(hidden,)))
    assert LEVELS.index(report.risk_level) >= LEVELS.index(MEDIUM)


def test_a_judges_statuses_decide_a_whole_report() -> None:
    case = Case("The fee is 50 euros. Dogs may swim.", ["The fee is 50 euros. No dog may swim."])
    held, denied = supported(1, (1, "The fee is 50 euros")), contradicted(2, (1, "No dog may swim"))
    report = case.judged(saying(held, denied))
    assert [claim.attribution for claim in report.claims] == [
        Attribution.CONTEXT_GROUNDED, Attribution.PARAMETRIC,
    ]  # fmt: skip
    assert report.grounding_pct == 0.5
    assert (report.risk_level, report.verification) == (HIGH, Verification.VERIFIED)
    assert report.claim_counts == ClaimCounts(read=2, supported=1, wrong=1)


@pytest.mark.parametrize(
    "answer", ["<think>It has 9 piers.", "<reasoning>The pier is open.</reasoning>\n"]
)
def test_reasoning_alone_is_no_answer(answer: str) -> None:
    for judge in (None, scripted_judge()):
        report = examine(answer, [SENTENCE], judge=judge)
        assert (report.risk_level, report.risk_score) == (UNKNOWN, None)
        assert (report.grounding_pct, report.checked_share) == (0.0, 0.0)
        assert report.verification is Verification.UNREAD

"""What needs a reader, and what becomes of an answer that nobody read."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings

from crp_integrations.dpe.derivation import derive
from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.policy.demands import halting_demands, reader_demands, refusal_words
from crp_integrations.policy.policy_text import has_directive, parse_policy
from crp_integrations.policy.records import Policy, PolicyJudgement
from crp_integrations.policy.verdict import (
    AnswerTerms,
    decide_answer,
    exceeds_level,
    judge_answer,
    unread_note,
    violation_report,
)
from crp_integrations.vocabulary import (
    ClaimStatus,
    ErrorKind,
    HaltReason,
    QualityTier,
    RiskLevel,
)
from tests.dpe.helpers import check
from tests.policy.policies import policies

ANSWER = "The plant gives 412 megawatts. It was opened in 2019. A company from the north runs it."
FACTS = ("The Meridian reactor was commissioned in 2019.",)
S, C, U, N = (
    ClaimStatus.SUPPORTED,
    ClaimStatus.CONTRADICTED,
    ClaimStatus.UNSUPPORTED,
    ClaimStatus.NOT_CHECKED,
)
# Each directive that needs a reader, whether it withholds (451) or makes unreachable (503).
NEED_READERS = (
    ("default-src context", True),
    ("default-src 'none'", True),
    ("halt-on MEDIUM", True),
    ("halt-on CRITICAL", True),
    ("require-grounding 0.90", True),
    ("require-entailment 0.50", True),
    ("require-completeness 0.50", False),
    ("block-ungrounded", True),
    ("block-parametric", True),
    ("block-fabrication", True),
    ("block-distortion", True),
)
NEED_NONE = (
    "warn-on MEDIUM",
    "require-flow 0.70",
    "require-quality S",
    "oversight human-review",
    "require-oversight halt",
    "block-pii",
    "block-repetition",
    "max-repetition NONE",
    "default-src context parametric",
    "default-src parametric ckf",
    "report-to ops",
)


@cache
def report_of(*statuses: ClaimStatus, unneeded: bool = True) -> Report:
    """The report on an answer whose three claims have these statuses."""
    plain = check(ANSWER, FACTS)
    assert len(plain.claims) == len(statuses) == 3
    claims = tuple(
        claim.model_copy(
            update={
                "status": status,
                "error": {C: ErrorKind.NUMBER, U: ErrorKind.INVENTION}.get(status),
                "entailment": None,
                "contradiction": None,
                "neutral": None,
                "findings": (),
            }
        )
        for claim, status in zip(plain.claims, statuses, strict=True)
    )
    found = derive(
        plain.model_copy(update={"claims": claims, "checked_by": "judge m", "flags": ()}),
        Dossier("", ANSWER, ()),
        DpeSettings(),
    )
    stages = found.stages if unneeded else tuple(one for one in found.stages if one.number != 8)
    run = next(one for one in found.stages if one.number == 8)
    read = run.model_copy(update={"engine": "read by a judge alone"})
    return found.changed(stages=stages if unneeded else (*stages, read))


def read_needs(*statuses: ClaimStatus) -> Report:
    """The same of a question with needs that nobody read."""
    return report_of(*statuses, unneeded=False)


@pytest.mark.parametrize("text", [row[0] for row in NEED_READERS])
def test_a_demand_on_what_is_true_needs_a_reader(text: str) -> None:
    assert reader_demands(parse_policy(text)) == halting_demands(parse_policy(text)) == (text,)
    assert reader_demands(parse_policy(f"{text}; unchecked allow")) == ()


@pytest.mark.parametrize("text", NEED_NONE)
def test_other_demands_need_none(text: str) -> None:
    assert reader_demands(parse_policy(text)) == ()


def test_asking_again_and_an_accepted_risk_need_one_too() -> None:
    upgrade = parse_policy("upgrade-on-risk reflexive")
    assert reader_demands(upgrade) == ("upgrade-on-risk reflexive",)
    # A sample that finds something may be asked again; nothing is withheld for it.
    assert halting_demands(upgrade) == ()
    for level in (RiskLevel.LOW, RiskLevel.MEDIUM, RiskLevel.HIGH):
        assert reader_demands(Policy(), level) == (f"accept-risk {level}",)
    assert reader_demands(Policy(), RiskLevel.CRITICAL) == ()
    assert reader_demands(Policy(), RiskLevel.UNKNOWN) == ()
    assert reader_demands(parse_policy("unchecked allow"), RiskLevel.LOW) == ()


def test_the_error_names_every_demand_and_both_ways_out() -> None:
    policy = parse_policy("halt-on HIGH; require-grounding 0.80; block-pii")
    words = refusal_words(reader_demands(policy), "nothing here reads answers")
    assert words.startswith("halt-on HIGH, require-grounding 0.80 need every answer to be read")
    assert "judge=" in words
    assert "'unchecked allow'" in words
    assert "block-pii" not in words


@given(policies())
@settings(max_examples=50)
def test_without_a_demand_nothing_unread_is_withheld(policy: Policy) -> None:
    # A share of 0 is met by anything.
    shares = {
        name: getattr(policy, name) or None for name in ("require_grounding", "require_entailment")
    }
    plain = policy.changed(oversight=None, require_oversight=None, require_flow=None, **shares)
    found = judge_answer(plain, read_needs(N, N, N), tier=QualityTier.S)
    if not halting_demands(plain):
        assert (found.halt, found.unreachable) == (None, False)
    else:
        assert found.halt is not None or found.unreachable
    assert has_directive(plain, "unchecked") is plain.allows_unread


@pytest.mark.parametrize(("text", "withholds"), NEED_READERS)
@pytest.mark.parametrize("statuses", [(N, N, N), (S, N, S)])
def test_what_nobody_read_is_unmet_unless_it_is_allowed(
    text: str, withholds: bool, statuses: tuple[ClaimStatus, ...]
) -> None:
    report = read_needs(*statuses)
    assert report.risk_level is RiskLevel.UNKNOWN
    found = judge_answer(parse_policy(text), report)
    if text == "default-src 'none'" and S in statuses:
        # What was read may not rest on the context either.
        assert found.halt is HaltReason.POLICY
        return
    assert (found.halt is HaltReason.POLICY) is withholds
    assert found.unreachable is not withholds
    allowed = judge_answer(parse_policy(f"{text}; unchecked allow"), report)
    assert allowed == PolicyJudgement()


@pytest.mark.parametrize("text", [row[0] for row in NEED_READERS if "none" not in row[0]])
def test_what_was_read_and_holds_passes(text: str) -> None:
    report = report_of(S, S, S)
    assert report.risk_level is RiskLevel.LOW
    assert judge_answer(parse_policy(text), report) == PolicyJudgement()
    assert judge_answer(parse_policy(f"{text}; unchecked allow"), report) == PolicyJudgement()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("default-src context", (C, U)),
        ("halt-on HIGH", (C, U)),
        ("require-grounding 0.80", (C, U)),
        ("require-entailment 0.50", (C, U)),
        ("block-ungrounded", (C, U)),
        ("block-parametric", (C, U)),
        ("block-fabrication", (U,)),
        ("block-distortion", (C,)),
    ],
)
@pytest.mark.parametrize("beside", [S, N])
def test_what_is_wrong_is_withheld_whatever_is_allowed(
    text: str, wrong: tuple[ClaimStatus, ...], beside: ClaimStatus
) -> None:
    policy = parse_policy(f"{text}; unchecked allow")
    for status in (C, U):
        report = report_of(status, S, beside)
        assert report.risk_level is RiskLevel.HIGH
        found = judge_answer(policy, report)
        assert (found.halt is HaltReason.POLICY) is (status in wrong)


def test_unread_claims_are_left_out_of_the_shares_that_are_allowed() -> None:
    report = report_of(S, C, N)
    assert report.grounding_pct == pytest.approx(1 / 3)
    assert judge_answer(parse_policy("require-grounding 0.50"), report).halt is not None
    allowed = parse_policy("require-grounding 0.50; unchecked allow")
    assert judge_answer(allowed, report) == PolicyJudgement()
    stricter = parse_policy("require-grounding 0.51; unchecked allow")
    assert judge_answer(stricter, report).violations[0].seen == "0.5"


def test_a_halt_says_how_much_was_not_read_and_why() -> None:
    policy, report = parse_policy("halt-on HIGH"), read_needs(S, N, N)
    (violation,) = judge_answer(policy, report).violations
    assert violation.seen == "UNKNOWN, 2 of 3 claims were not read"
    assert violation.wanted == "below HIGH"
    # Asking again would not make anybody read it.
    assert judge_answer(policy, report).unmet == ()
    note = unread_note(policy, report, HaltReason.POLICY)
    assert note == "UNKNOWN, 2 of 3 claims were not read: no judge was asked"
    assert (
        unread_note(parse_policy("halt-on HIGH; unchecked allow"), report, HaltReason.POLICY) == ""
    )
    assert unread_note(policy, report_of(S, S, S), HaltReason.POLICY) == ""
    assert violation_report(violation, report).hallucination_score is None


def test_warn_on_warns_of_what_nobody_read() -> None:
    report = read_needs(N, S, S)
    (warning,) = judge_answer(parse_policy("warn-on CRITICAL"), report).warnings
    assert warning.seen == "UNKNOWN, 1 of 3 claims was not read"
    assert judge_answer(parse_policy("warn-on CRITICAL; unchecked allow"), report).warnings == ()


def test_facts_of_which_none_fitted_end_as_an_unread_answer_does() -> None:
    report = report_of(S, S, S).changed(flags=("facts-did-not-fit=7",))
    found = judge_answer(parse_policy("halt-on HIGH"), report)
    assert found.violations[0].seen == "LOW, none of 7 facts fitted"
    assert found.halt is HaltReason.POLICY
    assert judge_answer(parse_policy("halt-on HIGH; unchecked allow"), report).halt is None
    terms = AnswerTerms(accept_risk=RiskLevel.MEDIUM)
    assert decide_answer(report, None, PolicyJudgement(), terms).reason is HaltReason.POLICY


@pytest.mark.parametrize("level", list(RiskLevel))
@pytest.mark.parametrize("most", [None, *RiskLevel])
def test_unknown_exceeds_what_is_accepted_but_itself_and_critical(
    level: RiskLevel, most: RiskLevel | None
) -> None:
    order = list(RiskLevel)
    if most is None:
        expected = False
    elif level is RiskLevel.UNKNOWN:
        expected = most in (RiskLevel.LOW, RiskLevel.MEDIUM, RiskLevel.HIGH)
    else:
        expected = order.index(level) > order.index(most)
    assert exceeds_level(level, most) is expected
    allowed = level is not RiskLevel.UNKNOWN and expected
    assert exceeds_level(level, most, unread=True) is allowed

"""Every directive acts on real reports, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.dpe.records import Classification, Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.policy.demands import acts, upgrades
from crp_integrations.policy.directives import DIRECTIVES, Demand, PolicySource, ViolationType
from crp_integrations.policy.inheritance import MODES
from crp_integrations.policy.policy_text import parse_policy, render_policy
from crp_integrations.policy.records import Policy, PolicyJudgement
from crp_integrations.policy.verdict import judge_answer
from crp_integrations.vocabulary import (
    AiActClass,
    Attribution,
    HaltReason,
    Oversight,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
    SafetyMode,
)
from tests.dpe import helpers
from tests.dpe.windows import after
from tests.policy.policies import policies

# The document's own arithmetic measures everything, without anybody who reads.
ARITHMETIC = DpeSettings(decides="composite", verifier="alignment")
check = partial(helpers.check_literally, settings=ARITHMETIC)

FACTS = (
    "The fee is 40 EUR per month. Refunds are granted within 30 days of purchase.",
    "Support is open on weekdays from 9 to 17.",
)
SAID = (
    "The refund is granted within thirty days of the purchase of an item. "
    "The monthly fee of the plan is forty euros for every customer."
)


@cache
def good() -> Report:
    """Everything rests on the context."""
    return check(FACTS[1], FACTS)


@cache
def bad() -> Report:
    """Made-up claims, a person's address, a critical risk."""
    return check(
        "The fee is 90 EUR per month. It was founded in 1987 by Ada Brown in Lisbon. "
        "Mail jo.smith@example.org for help. Water boils at low pressure.",
        FACTS,
    )


@cache
def repeated() -> Report:
    """What the window before said, word for word, and half of what was asked."""
    report = after(
        SAID,
        SAID,
        sub_queries=("the fee", "opening hours of the museum in Lisbon"),
        settings=ARITHMETIC,
    )
    return report.changed(completeness_score=0.5)


def at(level: RiskLevel) -> Report:
    """The good report at another level of risk."""
    return good().changed(risk_level=level)


def only(judgement: PolicyJudgement) -> tuple[ViolationType, str, str, str]:
    """The single violation."""
    (found,) = judgement.violations
    return found.violation_type, found.directive, found.seen, found.wanted


def test_the_reports_are_what_the_tests_take_them_for() -> None:
    assert good().grounding_pct == 1.0
    assert good().risk_level is RiskLevel.LOW
    assert bad().risk_level is RiskLevel.CRITICAL
    assert bad().fabrication_count > 0
    assert bad().attribution_breakdown["PARAMETRIC"] > 0
    assert bad().attribution_breakdown["UNVERIFIABLE"] > 0
    assert repeated().repetition_level is RepetitionLevel.SEVERE
    assert repeated().completeness_score < 0.7


@pytest.mark.parametrize("mode", list(SafetyMode))
def test_a_good_answer_passes(mode: SafetyMode) -> None:
    assert judge_answer(MODES[mode], good()) == PolicyJudgement()


def test_a_good_answer_passes_the_medical_profile_once_a_person_has_seen_it() -> None:
    found = judge_answer(parse_policy("profile=medical"), good())
    assert found == PolicyJudgement(needs_review=True, oversight=Oversight.HUMAN_REVIEW)


# Each row: directive, a report that breaks it, a report that does not, and what follows.
Row = tuple[str, Callable[[], Report], Callable[[], Report], ViolationType, Demand | None, bool]
ROWS: tuple[Row, ...] = (
    ("halt-on HIGH", bad, good, ViolationType.RISK, Demand.RISK, True),
    ("require-grounding 0.80", bad, good, ViolationType.GROUNDING, Demand.GROUNDING, True),
    ("require-entailment 0.50", bad, good, ViolationType.ENTAILMENT, Demand.ENTAILMENT, True),
    ("block-ungrounded", bad, good, ViolationType.UNGROUNDED, Demand.GROUNDING, True),
    ("block-parametric", bad, good, ViolationType.PARAMETRIC, Demand.GROUNDING, True),
    ("block-pii", bad, good, ViolationType.PERSONAL_DATA, None, True),
    ("block-fabrication", bad, good, ViolationType.FABRICATION, Demand.FABRICATION, True),
    ("block-distortion", bad, good, ViolationType.DISTORTION, Demand.DISTORTION, True),
    ("block-repetition", repeated, good, ViolationType.REPETITION, Demand.REPETITION, True),
    ("default-src context", bad, good, ViolationType.SOURCE, Demand.GROUNDING, True),
    ("default-src 'none'", good, lambda: check("I think so.", FACTS), ViolationType.SOURCE, None, True),
    ("require-completeness 0.70", repeated, good, ViolationType.COMPLETENESS, Demand.COMPLETENESS, False),
    ("max-repetition SIGNIFICANT", repeated, good, ViolationType.REPETITION, Demand.REPETITION, False),
    (
        "require-flow 0.70",
        lambda: after("Penguins live in cold seas.", SAID, settings=ARITHMETIC),
        good,
        ViolationType.FLOW,
        Demand.FLOW,
        False,
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("directive", "broken", "kept", "kind", "demand", "withholds"), ROWS, ids=[r[0] for r in ROWS]
)
def test_a_directive_acts_on_a_report(
    directive: str,
    broken: Callable[[], Report],
    kept: Callable[[], Report],
    kind: ViolationType,
    demand: Demand | None,
    withholds: bool,
) -> None:
    policy = parse_policy(directive)
    assert judge_answer(policy, kept()) == PolicyJudgement()
    found = judge_answer(policy, broken())
    (violation,) = found.violations
    assert (violation.violation_type, violation.directive) == (kind, directive)
    assert violation.withholds is withholds
    assert (found.halt is not None) is withholds
    assert found.unreachable is not withholds
    assert found.unmet == (() if demand is None else (demand,))
    # Without the directive nobody minds.
    assert judge_answer(Policy(), broken()).violations == ()


def test_every_directive_that_demands_something_has_a_row() -> None:
    shown = {row[0].split(" ")[0] for row in ROWS}
    elsewhere = {"warn-on", "require-quality", "require-oversight", "oversight"}
    settings_only = {
        "ask-again-on",
        "repair-on",
        "upgrade-on-risk",
        "unchecked",
        "report-uri",
        "report-to",
    }
    assert shown | elsewhere | settings_only == set(DIRECTIVES)


@pytest.mark.parametrize("level", [one for one in RiskLevel if one is not RiskLevel.UNKNOWN])
@pytest.mark.parametrize("named", ["CRITICAL", "HIGH", "MEDIUM"])
def test_halt_on_and_warn_on_act_from_their_level_on(level: RiskLevel, named: str) -> None:
    order = ["LOW", "MEDIUM", "HIGH", "CRITICAL"]
    reached = order.index(level) >= order.index(named)
    halted = judge_answer(parse_policy(f"halt-on {named}"), at(level))
    assert (halted.halt is not None) is reached
    if reached:
        critical = level is RiskLevel.CRITICAL
        assert halted.halt is (HaltReason.CRITICAL_RISK if critical else HaltReason.POLICY)
        assert only(halted) == (ViolationType.RISK, f"halt-on {named}", level, f"below {named}")
    warned = judge_answer(parse_policy(f"warn-on {named}"), at(level))
    assert [one.directive for one in warned.warnings] == [f"warn-on {named}"] * reached
    assert (warned.halt, warned.violations, warned.unmet) == (None, (), ())


@pytest.mark.parametrize(
    ("text", "lowest"),
    [
        ("upgrade-on-risk reflexive", RiskLevel.HIGH),
        ("upgrade-on-risk batch; warn-on CRITICAL", RiskLevel.HIGH),
        ("upgrade-on-risk batch; warn-on MEDIUM", RiskLevel.MEDIUM),
        ("upgrade-on-risk batch; halt-on MEDIUM", RiskLevel.MEDIUM),
    ],
)
def test_upgrade_on_risk_asks_again_from_a_level_on(text: str, lowest: RiskLevel) -> None:
    order = list(RiskLevel)
    for level in RiskLevel:
        wanted = order.index(level) >= order.index(lowest)
        assert (Demand.RISK in judge_answer(parse_policy(text), at(level)).unmet) is wanted


@pytest.mark.parametrize("field", ["grounding_pct", "entailment_score", "flow_score"])
def test_a_threshold_is_met_from_its_value_on(field: str) -> None:
    name = "require-" + field.split("_")[0]
    policy = parse_policy(f"{name} 0.70")
    # A sum of tenths lands a hair below.
    for score, met in ((0.1 + 0.6, True), (0.7, True), (0.6999, False), (0.0, False)):
        found = judge_answer(policy, good().changed(**{field: score}))
        assert (found.violations == ()) is met
    assert only(judge_answer(policy, good().changed(**{field: 0.25})))[2:] == (
        "0.25",
        "at least 0.70",
    )


@pytest.mark.parametrize("tier", [*QualityTier, None])
def test_require_quality_accepts_listed_tiers_and_better_ones(tier: QualityTier | None) -> None:
    found = judge_answer(parse_policy("require-quality A"), good(), tier=tier)
    met = tier in ("S", "A")
    assert found.unreachable is not met
    assert found.halt is None
    assert found.unmet == (() if met else (Demand.QUALITY,))
    if not met:
        seen = tier or "not checked"
        assert only(found) == (ViolationType.QUALITY, "require-quality S A", seen, "one of S, A")


def test_mixed_claims_are_not_ungrounded_and_do_not_count_as_grounded() -> None:
    mixed = good().changed(
        claims=tuple(
            claim.model_copy(update={"attribution": Attribution.MIXED}) for claim in good().claims
        ),
        attribution_breakdown={"CONTEXT_GROUNDED": 0, "PARAMETRIC": 0, "MIXED": 2, "UNVERIFIABLE": 0},
        grounding_pct=0.0,
    )  # fmt: skip
    assert (
        judge_answer(parse_policy("block-ungrounded; default-src context"), mixed).violations == ()
    )
    assert judge_answer(parse_policy("require-grounding 0.50"), mixed).halt is HaltReason.POLICY


def test_without_parametric_what_nothing_supports_is_refused_too() -> None:
    breakdown = {"CONTEXT_GROUNDED": 2, "PARAMETRIC": 0, "MIXED": 0, "UNVERIFIABLE": 1}
    report = good().changed(attribution_breakdown=breakdown)
    assert (
        only(judge_answer(parse_policy("default-src context"), report))[2]
        == "1 claim from parametric"
    )
    assert judge_answer(parse_policy("default-src context parametric"), report).violations == ()


@pytest.mark.parametrize("source", [PolicySource.CKF, PolicySource.CROSS_SESSION])
def test_facts_from_elsewhere_need_their_word(source: PolicySource) -> None:
    origins = {"f2": source}
    found = judge_answer(parse_policy("default-src context parametric"), good(), origins=origins)
    assert found.halt is HaltReason.POLICY
    assert only(found)[2] == f"1 claim from {source}"
    # The same facts asked for again would be no other ones.
    assert found.unmet == ()
    assert (
        judge_answer(parse_policy(f"default-src context {source}"), good(), origins=origins)
        == PolicyJudgement()
    )
    # A fact that no claim rests on is nobody's source.
    assert judge_answer(Policy(), good(), origins={"f1": source}) == PolicyJudgement()


def test_personal_data_of_the_question_is_not_blamed_on_the_answer() -> None:
    report = check(
        "The fee is 40 EUR per month.",
        FACTS,
        question="I am jo.smith@example.org, what is the fee?",
    )
    assert report.gdpr_pii_detected
    assert judge_answer(parse_policy("block-pii"), report) == PolicyJudgement()
    assert only(judge_answer(parse_policy("block-pii"), bad()))[2] == "2 direct"


def test_block_repetition_goes_by_max_repetition() -> None:
    order = ["NONE", "MINOR", "SIGNIFICANT", "SEVERE"]
    for most in order[:3]:
        for level in RepetitionLevel:
            report = good().changed(repetition_level=level)
            above = order.index(level) > order.index(most)
            bounded = judge_answer(parse_policy(f"max-repetition {most}"), report)
            assert (bounded.unreachable, bounded.halt) == (above, None)
            blocked = judge_answer(parse_policy(f"max-repetition {most}; block-repetition"), report)
            assert (blocked.halt is HaltReason.POLICY) is above


def test_what_was_not_measured_is_not_met() -> None:
    blind = good().changed(stages=())
    for name in sorted({row[0] for row in ROWS}):
        (violation,) = judge_answer(parse_policy(name), blind).violations
        assert (violation.directive, violation.seen) == (name, "not checked")
    assert judge_answer(Policy(), blind) == PolicyJudgement()
    foreign = judge_answer(Policy(), blind, origins={"f1": PolicySource.CKF})
    assert only(foreign)[2] == "not checked"


@pytest.mark.parametrize("text", ["oversight halt", "require-oversight halt"])
@pytest.mark.parametrize("enforced", [True, False])
def test_an_oversight_of_halt_is_honoured_unconditionally(text: str, enforced: bool) -> None:
    found = judge_answer(parse_policy(f"{text}; default-src context"), good(), enforced=enforced)
    assert (found.halt, found.oversight) == (HaltReason.OVERSIGHT, Oversight.HALT)
    asked = judge_answer(Policy(), good(), oversight=Oversight.HALT, enforced=enforced)
    assert asked.halt is HaltReason.OVERSIGHT


@given(policies(), st.none() | st.sampled_from(Oversight))
@settings(max_examples=200)
def test_the_strictest_oversight_holds(policy: Policy, asked: Oversight | None) -> None:
    order = [None, "log-only", "auto", "human-review", "halt"]
    wanted = max((policy.oversight, policy.require_oversight, asked), key=order.index)
    found = judge_answer(policy, good(), oversight=asked, tier=QualityTier.S)
    assert found.oversight == wanted
    assert found.needs_review is (wanted == "human-review")
    assert (found.halt is HaltReason.OVERSIGHT) is (wanted == "halt")


def test_an_unacceptable_use_is_withheld_whatever_the_policy_says() -> None:
    forbidden = good().changed(eu_ai_act_class=AiActClass.UNACCEPTABLE)
    unknown = good().changed(classification=Classification(failed=True, halts=True))
    for report in (forbidden, unknown):
        for enforced in (True, False):
            found = judge_answer(parse_policy("oversight halt"), report, enforced=enforced)
            assert found.halt is HaltReason.UNACCEPTABLE


@given(policies(), st.sampled_from((good, bad, repeated)), st.sampled_from((*QualityTier, None)))
@settings(max_examples=200, deadline=None)
def test_report_only_says_the_same_and_enforces_nothing(
    policy: Policy, report: Callable[[], Report], tier: QualityTier | None
) -> None:
    enforced = judge_answer(policy, report(), tier=tier)
    reported = judge_answer(policy, report(), tier=tier, enforced=False)
    same, acting = reported.violations, []
    if (count := len(same) - len(enforced.violations)) > 0:
        same, acting = same[:-count], [one.directive.split()[0] for one in same[-count:]]
    assert same == enforced.violations
    level = report().risk_level
    assert acting == [
        name
        for name, acts_here in (
            ("ask-again-on", acts(policy.ask_again_on, report())),
            ("repair-on", acts(policy.repair_on, report())),
            ("upgrade-on-risk", upgrades(policy, level)),
        )
        if acts_here
    ]
    assert (reported.warnings, reported.unmet) == (enforced.warnings, enforced.unmet)
    assert not reported.unreachable
    assert not reported.needs_review
    assert reported.halt in (None, HaltReason.OVERSIGHT)
    # An answer is withheld exactly for a violation that withholds, or by oversight.
    withheld = any(one.withholds for one in enforced.violations)
    assert (enforced.halt is not None) is (withheld or enforced.oversight is Oversight.HALT)
    assert enforced.unreachable is any(not one.withholds for one in enforced.violations)


@given(policies(), policies())
@settings(max_examples=150, deadline=None)
def test_a_tighter_policy_sees_no_less(one: Policy, other: Policy) -> None:
    plain = one.changed(report_uri=(), report_to=(), unchecked=None)
    other = other.changed(unchecked=None)
    both = parse_policy(f"{render_policy(plain)}; {render_policy(other)}")
    for report in (good(), bad(), repeated()):
        lax = {found.violation_type for found in judge_answer(plain, report).violations}
        assert lax <= {found.violation_type for found in judge_answer(both, report).violations}


def test_a_judgement_holds_no_word_of_the_answer() -> None:
    everything = parse_policy(
        "default-src 'none'; halt-on MEDIUM; warn-on MEDIUM; require-grounding 1.00; block-pii; "
        "require-entailment 1.00; block-ungrounded; block-parametric; block-fabrication"
    )
    text = judge_answer(everything, bad()).model_dump_json()
    assert len(judge_answer(everything, bad()).violations) == 8
    for word in ("Ada", "Lisbon", "1987", "90", "jo.smith", "Water", "f1"):
        assert word not in text

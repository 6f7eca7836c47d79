"""What is asked again, and the remedies: re-dispatch, bridges, stored reports, quarantine."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.audit import window_seals
from crp_integrations.audit.window_seals import session_key
from crp_integrations.dpe import remedies
from crp_integrations.dpe.records import Report
from crp_integrations.errors import SafetyHalt
from crp_integrations.fabric.ports.store import fault_counts_of
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.guard.decisions import AllowAll, Decision
from crp_integrations.headers import names
from crp_integrations.headers.codec import parse_response
from crp_integrations.relay.records import Answer
from crp_integrations.relay.steps import Halt
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import (
    AdviceWord,
    ChainIntegrity,
    EventType,
    FactStatus,
    HaltReason,
    Purpose,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
    Severity,
    Strategy,
)
from tests.doubles import NOON, FixedClock, ScriptedModel
from tests.relay.conftest import FACTS, Opener
from tests.relay.scripted_relays import (
    CHANGED,
    CRITICAL,
    HIGH,
    LOW,
    OPERATOR,
    QUESTION,
    SESSION,
    SOUND,
    answered,
    answers_asked,
    continued,
    medium,
    opened,
    outcome,
    priced,
    refusal,
    session_events,
    system,
)

REFLEXIVE = "upgrade-on-risk reflexive"
TULIPS = FACTS[4]


# --- risk --------------------------------------------------------------------------------


@pytest.mark.requirement("005-19.1-1", "005-19.2-1", "005-19.2-2", "005-2-3")
def test_a_risk_above_the_threshold_is_asked_again_with_what_was_wrong(open_relay: Opener) -> None:
    relay, model = opened(open_relay, HIGH, LOW, SOUND)
    answer = answered(relay, policy=REFLEXIVE, seed=7, temperature=0.7)
    first, second = answers_asked(model)
    assert answer.text == LOW
    assert (first.temperature, first.seed) == (0.7, 7)
    assert second.temperature == remedies.REDISPATCH_TEMPERATURE == 0.2
    assert second.seed not in (None, 7)
    # The claim is quoted as the model wrote it, before the facts and not among them.
    words = f"- {CHANGED}"
    assert words in system(second).split("<context>")[0]
    assert words not in system(first)
    assert second.messages[-1] == first.messages[-1]
    # The envelope stays the same, and so do the facts.
    assert system(second).split("<context>")[1] == system(first).split("<context>")[1]
    # Reflexive: what was written is verified.
    assert [call.purpose for call in model.calls] == [
        Purpose.ANSWER,
        Purpose.ANSWER,
        Purpose.CRITIQUE,
    ]
    assert answer.headers[names.STRATEGY] == "reflexive"


@pytest.mark.requirement("005-19.2-1")
def test_the_strategy_is_the_one_that_the_policy_names(open_relay: Opener) -> None:
    relay, model = opened(open_relay, HIGH, LOW)
    answer = answered(relay, policy="upgrade-on-risk hierarchical")
    assert answer.envelope.strategy is Strategy.HIERARCHICAL
    assert "one after the other" in system(model.calls[1])
    (upgrade,) = session_events(relay, EventType.STRATEGY_UPGRADE)
    assert (upgrade.data["before"], upgrade.data["to"]) == ("push", "hierarchical")


def test_without_the_directive_nothing_is_asked_again(open_relay: Opener) -> None:
    relay, model = opened(open_relay, HIGH, LOW)
    answer = answered(relay, policy="warn-on HIGH")
    assert (answer.text, len(model.calls)) == (HIGH, 1)


@pytest.mark.requirement("005-19.1-1")
def test_the_threshold_is_high_unless_the_policy_names_a_lower_one(open_relay: Opener) -> None:
    between = medium(open_relay)
    relay, model = opened(open_relay, between, LOW, SOUND)
    assert answered(relay, policy=REFLEXIVE).text == between
    assert len(model.calls) == 1
    relay, model = opened(open_relay, between, LOW, SOUND)
    assert answered(relay, policy=f"warn-on MEDIUM; {REFLEXIVE}").text == LOW


@pytest.mark.requirement("005-19.2-3", "005-19.3-1")
@pytest.mark.parametrize("policy", [REFLEXIVE, "upgrade-on-risk hierarchical"])
def test_a_third_attempt_is_refused(open_relay: Opener, policy: str) -> None:
    """Two re-dispatches are made; what the last one says is delivered as it is."""
    relay, model = opened(
        open_relay, lambda call: SOUND if call.purpose is Purpose.CRITIQUE else HIGH
    )
    answer = answered(relay, policy=policy, seed=7)
    asked = answers_asked(model)
    assert len(asked) == 1 + remedies.MOST_REDISPATCHES == 3
    assert len({call.seed for call in asked}) == 3
    assert answer.text == HIGH
    assert answer.report.risk_level is RiskLevel.HIGH
    assert "re-dispatches=2" in answer.report.flags
    redispatched = session_events(relay, EventType.RE_DISPATCH)
    assert [event.data["attempt"] for event in redispatched] == [1, 2]
    assert all("risk" in event.data["triggers"] for event in redispatched)
    # The words of the second re-dispatch answer to the second reply: they stand there once.
    assert system(asked[2]).count("IMPORTANT") == 1


def test_what_is_left_after_the_last_attempt_is_judged(open_relay: Opener) -> None:
    relay, model = opened(
        open_relay, lambda call: SOUND if call.purpose is Purpose.CRITIQUE else HIGH
    )
    ended = outcome(relay, policy=f"halt-on HIGH; {REFLEXIVE}")
    assert isinstance(ended, Halt)
    assert ended.reason is HaltReason.POLICY
    assert len(answers_asked(model)) == 3
    assert answers_asked(model)[2].temperature == 0.2


@pytest.mark.requirement("005-19.3-1")
def test_every_call_counts_in_usage_and_in_the_window(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, priced(HIGH), priced(LOW, 20, 6), priced(SOUND, 30, 1))
    answer = answered(relay, policy=REFLEXIVE)
    usage = answer.reply.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (60, 12)
    assert usage.cost_usd == pytest.approx(0.75)
    with relay.fabric.begin(write=False) as transaction:
        (node,) = transaction.sessions.windows(SESSION)
    assert node.tokens == 72
    assert node.strategy is Strategy.REFLEXIVE


@pytest.mark.requirement("005-19.3-2", "005-7.4-5")
def test_only_the_delivered_answer_is_charged(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, CRITICAL, LOW, SOUND)
    assert answered(relay, policy=REFLEXIVE).headers[names.SAFETY_BUDGET] == "1.0"
    # Three answers of high risk cost as much as one.
    relay, model = opened(
        open_relay, lambda call: SOUND if call.purpose is Purpose.CRITIQUE else HIGH
    )
    assert answered(relay, policy=REFLEXIVE).headers[names.SAFETY_BUDGET] == "0.85"
    assert len(answers_asked(model)) == 3


@pytest.mark.requirement("005-19.3-3", "005-18.5-1")
def test_headers_and_report_are_those_of_the_final_response(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, CRITICAL, LOW, SOUND)
    answer = answered(relay, policy=REFLEXIVE)
    alone, _ = opened(open_relay, LOW)
    once = answered(alone)
    for name in (
        *(names.RISK, names.RISK_SCORE, names.FABRICATIONS, names.GROUNDING_PCT, names.FIDELITY),
        *(names.CLAIM_COUNT, names.QUALITY_SCORE, names.REPETITION, names.COMPLETENESS),
    ):
        assert answer.headers[name] == once.headers[name], name
    assert answer.report.response_content_hash == once.report.response_content_hash
    # One window, sealed once, whatever it took.
    assert answer.headers[names.WINDOW] == "1/5"
    assert relay.verify().windows == 1


def test_a_refused_model_in_a_redispatch_ends_the_window_as_failed(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, HIGH, RuntimeError("gone"))
    with pytest.raises(RuntimeError):
        relay.ask(QUESTION, session_id=SESSION, policy=REFLEXIVE)
    assert [event.data["attempt"] for event in session_events(relay, EventType.RE_DISPATCH)] == [1]
    assert relay.verify().windows == 1


# --- contradiction -----------------------------------------------------------------------


@pytest.mark.requirement("005-8.3-2", "005-18.1-1", "005-19.1-2")
def test_a_critical_contradiction_is_asked_again_without_permission(open_relay: Opener) -> None:
    relay, model = opened(open_relay, LOW, CHANGED, FACTS[1], SOUND)
    second = continued(relay, answered(relay), QUESTION)
    _, asked, again = answers_asked(model)
    assert second.text == FACTS[1]
    assert second.report.contradiction_scope == "none"
    words = system(again).split("<context>")[0]
    assert "contradicts what was said before" in words
    assert f"\n  Now: {CHANGED}\n" in words
    earlier = words.partition("- Earlier: ")[2].partition("\n")[0]
    assert "412 megawatts" in earlier
    assert earlier in LOW
    assert "correct it openly" in words
    assert "contradicts" not in system(asked)
    (event,) = session_events(relay, EventType.RE_DISPATCH)
    assert event.data["triggers"] == ["contradiction"]
    (upgrade,) = session_events(relay, EventType.STRATEGY_UPGRADE)
    assert upgrade.data["why"] == "contradiction"


@pytest.mark.requirement("005-8.3-2", "005-8.4-2", "005-5.4-2")
def test_it_is_asked_again_twice_and_then_says_so(open_relay: Opener) -> None:
    relay, model = opened(
        open_relay, LOW, lambda call: SOUND if call.purpose is Purpose.CRITIQUE else CHANGED
    )
    second = continued(relay, answered(relay), QUESTION)
    assert len(answers_asked(model)) == 4
    (found,) = second.report.cross_window_contradictions
    assert found.severity is Severity.CRITICAL
    assert second.headers[names.CONTRADICTIONS] == "1; scope=cross-window"


@pytest.mark.requirement("005-5.4-2")
def test_contradictions_within_an_answer_and_across_windows_are_counted_together(
    open_relay: Opener,
) -> None:
    split = (
        "The Meridian reactor delivers 900 megawatts. The Meridian reactor delivers 700 megawatts."
    )
    alone, _ = opened(open_relay, split)
    intra = answered(alone)
    counted, _, scope = intra.headers[names.CONTRADICTIONS].partition("; scope=")
    assert (scope, int(counted)) == ("intra", intra.report.contradiction_count)
    relay, _ = opened(
        open_relay, LOW, lambda call: SOUND if call.purpose is Purpose.CRITIQUE else split
    )
    both = continued(relay, answered(relay), QUESTION)
    assert both.headers[names.CONTRADICTIONS].endswith("; scope=both")


# --- repetition --------------------------------------------------------------------------


@pytest.mark.requirement("005-9.3-1", "005-19.1-2", "005-2-3")
@pytest.mark.parametrize("permission", ["policy", "setting"])
def test_severe_repetition_is_asked_again_with_permission(
    open_relay: Opener, permission: str
) -> None:
    allowed = {"redispatch_on_repetition": permission == "setting"}
    policy = REFLEXIVE if permission == "policy" else ""
    relay, model = opened(open_relay, LOW, LOW, FACTS[1], SOUND, dispatch=allowed)
    second = continued(relay, answered(relay), policy=policy)
    assert second.text == FACTS[1]
    assert second.report.repetition_level is RepetitionLevel.NONE
    (event,) = session_events(relay, EventType.RE_DISPATCH)
    assert "repetition" in event.data["triggers"]
    assert len(answers_asked(model)) == 3


@pytest.mark.requirement("005-9.3-1", "005-9.4-1")
def test_without_permission_it_is_only_reported(open_relay: Opener) -> None:
    relay, model = opened(open_relay, LOW)
    second = continued(relay, answered(relay))
    assert len(model.calls) == 2
    assert second.headers[names.REPETITION] == "SEVERE; overlap=1.0"
    assert answered(relay, session_id="").headers[names.REPETITION] == "NONE"


@pytest.mark.requirement("005-9.3-2", "005-18.1-2")
def test_the_words_against_repetition(open_relay: Opener) -> None:
    said = f"{LOW} {FACTS[1]}"
    relay, model = opened(
        open_relay, LOW, said, FACTS[1], SOUND, dispatch={"redispatch_on_repetition": True}
    )
    first = answered(relay)
    again = f"{LOW} It is so."
    model.script = (LOW, again, FACTS[1], SOUND)
    continued(relay, first)
    words = system(answers_asked(model)[2]).split("<context>")[0]
    assert "already been provided" in words
    assert "DO NOT repeat this content" in words
    assert "Build upon it, extend it" in words
    # What was said is summed up, and of it what is repeated is marked.
    assert f"{remedies.REPEATED}{LOW}" in words
    assert f"{remedies.REPEATED}It is so." not in words
    assert "Continue from where the prior response ended. Provide NEW information only." in words


@pytest.mark.requirement("005-9.3-3", "005-19.2-3")
def test_the_new_reply_passes_the_whole_pipeline_and_repeats_at_most_twice(
    open_relay: Opener,
) -> None:
    relay, model = opened(
        open_relay, lambda call: SOUND if call.purpose is Purpose.CRITIQUE else LOW,
        dispatch={"redispatch_on_repetition": True},
    )  # fmt: skip
    second = continued(relay, answered(relay))
    assert len(answers_asked(model)) == 1 + 3
    assert second.report.repetition_level is RepetitionLevel.SEVERE
    assert len(session_events(relay, EventType.RE_DISPATCH)) == 2
    # Nothing but the answer before was shown, so no fact can have been left out (stage 10).
    assert {run.number for run in second.report.stages} >= set(range(1, 14)) - {10, 13}


# --- flow --------------------------------------------------------------------------------


@pytest.mark.requirement("005-19.1-3", "005-11.5-2", "005-11.6-1")
@pytest.mark.parametrize("permission", ["policy", "setting"])
def test_a_broken_flow_is_asked_again_with_permission(open_relay: Opener, permission: str) -> None:
    allowed = {"redispatch_on_flow": permission == "setting"}
    policy = REFLEXIVE if permission == "policy" else ""
    before = f"{FACTS[3]} {FACTS[1]} {FACTS[2]} {LOW}"
    relay, model = opened(open_relay, before, TULIPS, LOW, SOUND, dispatch=allowed)
    second = continued(relay, answered(relay), QUESTION, policy=policy)
    words = system(answers_asked(model)[2]).split("<context>")[0]
    # The last three sentences, and no more of it.
    assert f"'{FACTS[1]} {FACTS[2]} {LOW}'" in words
    assert FACTS[3] not in words
    for demand in (
        *("Do NOT re-introduce the topic", "Do NOT repeat content", "transitional language"),
        "Maintain the same style, formality, and level of detail.",
    ):
        assert demand in words
    assert second.headers[names.FLOW].endswith("; remediation=prompt-augmented")
    assert "flow" in session_events(relay, EventType.RE_DISPATCH)[0].data["triggers"]
    remedied = session_events(relay, EventType.FLOW_REMEDIATION)[0]
    assert remedied.data["remedy"] == "prompt-augmented"


@pytest.mark.requirement("005-19.1-3")
@pytest.mark.parametrize(
    "settings",
    [{}, {"redispatch_on_flow": True, "flow": "stitch"}, {"redispatch_on_flow": True, "flow": "none"}],
    ids=["no-permission", "stitching", "reporting"],
)  # fmt: skip
def test_without_permission_or_augmentation_flow_asks_nothing_again(
    open_relay: Opener, settings: dict[str, object]
) -> None:
    relay, model = opened(open_relay, LOW, TULIPS, dispatch=settings)
    second = continued(relay, answered(relay))
    assert second.report.flow_score < 0.30
    assert len(model.calls) == 2
    assert second.headers[names.FLOW] == f"{second.report.flow_score:.3f}".rstrip("0")


def test_several_triggers_are_mended_together(open_relay: Opener) -> None:
    split = f"{LOW} {HIGH}"
    relay, model = opened(open_relay, LOW, split, FACTS[1], SOUND)
    continued(relay, answered(relay), QUESTION, policy=REFLEXIVE)
    event = session_events(relay, EventType.RE_DISPATCH)[0]
    assert event.data["triggers"] == ["contradiction", "repetition", "risk"]
    words = system(answers_asked(model)[2]).split("<context>")[0]
    assert "contradicts what was said before" in words
    assert "DO NOT repeat this content" in words


# --- what of a policy asks again -----------------------------------------------------------


@pytest.mark.requirement("005-2-3")
@pytest.mark.parametrize(
    ("directive", "trigger"),
    [
        ("require-grounding 0.90", "grounding"),
        ("require-entailment 0.99", "entailment"),
        ("block-fabrication", "fabrication"),
        ("block-ungrounded", "grounding"),
        ("halt-on CRITICAL", "risk"),
    ],
)
def test_what_a_policy_demands_of_a_stage_is_asked_for_again(
    open_relay: Opener, directive: str, trigger: str
) -> None:
    relay, _ = opened(open_relay, CRITICAL, LOW, SOUND)
    outcome(relay, policy=f"{directive}; {REFLEXIVE}")
    first = session_events(relay, EventType.RE_DISPATCH)[0]
    assert trigger in first.data["triggers"]
    # Without permission the same demand is judged at once.
    relay, model = opened(open_relay, CRITICAL, LOW)
    error = refusal(relay, policy=directive)
    assert isinstance(error, SafetyHalt)
    assert isinstance(error.report, Report)
    assert len(model.calls) == 1


OPERATED, REVENUE, COOLING = FACTS[1], FACTS[2], FACTS[3]
NEEDS = (
    "Who operates the Meridian reactor",
    "what revenue did Northfield Energy report",
    "does the cooling system draw water from the river",
)
MANY = f"{NEEDS[0]}, {NEEDS[1]}, and {NEEDS[2]}?"
BRIDGE = "So much for the operator; the cooling comes next."


def in_parts(relay: Relay, **asking: Any) -> Answer:
    """A question of three needs, with room for two facts a window."""
    return answered(relay, MANY, **{"sub_queries": NEEDS, "k": 2, **asking})


# --- completeness ------------------------------------------------------------------------


def test_no_summary_is_asked_for_where_nothing_is_left_to_show(open_relay: Opener) -> None:
    long = " ".join(
        f"Unit {number} of the plant has {number + 20} pumps and {number + 50} valves."
        for number in range(1, 60)
    )
    relay, model = opened(open_relay, long, context_limits={"extractive": 1_900})
    answer = answered(relay, max_tokens=200)
    assert answer.headers[names.COMPLETENESS].startswith("INCOMPLETE")
    assert [call.purpose for call in model.calls] == [Purpose.ANSWER]


@pytest.mark.requirement("005-10.4-1", "005-20-2")
def test_the_headers_of_the_quality_stages(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, f"{OPERATED} {REVENUE}")
    headers = in_parts(relay).headers
    slug = NEEDS[2].replace(" ", "-")
    assert headers[names.COMPLETENESS] == f"PARTIAL; sub-queries=2/3; uncovered={slug}"
    whole, _ = opened(open_relay, f"{OPERATED} {REVENUE} {COOLING}")
    told = in_parts(whole).headers
    assert told[names.COMPLETENESS] == "COMPLETE; sub-queries=3/3"


@pytest.mark.requirement("005-18.3-1")
def test_the_quality_score_says_nothing_of_risk(open_relay: Opener) -> None:
    risky, _ = opened(open_relay, HIGH)
    silent, _ = opened(open_relay, "It may deliver some power, as reactors often do.")
    bad, poor = answered(risky).headers, answered(silent).headers
    assert (bad[names.RISK], bad[names.QUALITY_SCORE]) == ("HIGH", "1.0")
    assert poor[names.RISK] != "HIGH"
    assert float(poor[names.QUALITY_SCORE]) < 0.7


# --- flow --------------------------------------------------------------------------------


@pytest.mark.requirement("005-11.5-1")
def test_a_flow_that_reads_on_needs_no_bridge(open_relay: Opener) -> None:
    on = (
        "In addition, Northfield Energy, which operates the Meridian reactor under a forty-year "
        "licence, reported revenue of $4.2 million in 2023. The cooling system does not draw water "
        "from the river during summer."
    )
    relay, model = opened(open_relay, OPERATED, on, BRIDGE)
    answer = in_parts(relay)
    assert answer.report.flow_score >= 0.50
    assert [call.purpose for call in model.calls] == [Purpose.ANSWER, Purpose.ANSWER]
    assert [piece.text for piece in answer.pieces] == [OPERATED, on]


@pytest.mark.requirement("005-18.5-1")
def test_stages_and_remedies_stand_in_their_order(open_relay: Opener) -> None:
    """Stages, verdict, remedy, stages again, tier, release with headers; all in one trail."""
    relay, _ = opened(open_relay, LOW, HIGH, f"{LOW} {OPERATED}", "NONE")
    second = continued(relay, answered(relay), QUESTION)
    ran = [run.number for run in second.report.stages]
    assert [number for number in ran if 6 <= number <= 9] == [6, 7, 8, 9]
    kinds = [event.event_type for event in session_events(relay, window=second.window_id)]
    order = [
        EventType.SESSION_CONTINUED,
        EventType.DISPATCH_STARTED,
        EventType.RE_DISPATCH,
        EventType.DISPATCH_COMPLETED,
        EventType.DPE_COMPLETED,
    ]
    assert [kind for kind in kinds if kind in order] == order
    assert {names.RISK, names.QUALITY_SCORE, names.QUALITY_TIER, names.CHAINED_HMAC} <= set(
        second.headers
    )


# --- falling tiers -----------------------------------------------------------------------


@pytest.mark.requirement("003-14.3-2", "003-14.3-3")
def test_tiers_that_fall_recommend_and_warn_in_the_trail(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    first = answered(relay).envelope.as_prior()
    prior = [
        first.changed(window_number=1, quality_tier=QualityTier.A),
        first.changed(window_number=2, quality_tier=QualityTier.B),
    ]
    fallen = answered(relay, prior=prior)
    assert fallen.envelope.quality_tier is QualityTier.D
    assert fallen.envelope.suggests(AdviceWord.HIERARCHICAL)
    (event,) = session_events(relay, EventType.DPE_COMPLETED, window=fallen.window_id)
    assert event.data["tiers"] == ["A", "B", "D"]
    assert event.data["recommended"] == "dispatch_hierarchical"
    assert "may lack depth" in event.data["warning"]
    # Tiers that do not fall warn of nothing.
    level = answered(relay, prior=[prior[0].changed(quality_tier=QualityTier.D)])
    (event,) = session_events(relay, EventType.DPE_COMPLETED, window=level.window_id)
    assert "warning" not in event.data


# --- the stored report -------------------------------------------------------------------


@pytest.mark.requirement("005-15.4-1", "005-15.4-2", "005-20-3")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_report_is_stored_and_its_header_refers_to_it(
    open_relay: Opener, tmp_path: Path, kind: str
) -> None:
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "kb")
    handed: list[Report] = []
    relay, _ = opened(open_relay, LOW, store=store, receiver=handed.append)
    answer = answered(relay)
    uri = answer.headers[names.REPORT_URI]
    assert uri == f"/crp/windows/{answer.window_id}/report"
    assert parse_response(answer.headers).report_uri == uri
    kept = relay.report(uri.split("/")[-2])
    assert kept is not None
    assert kept == answer.report
    # It is in the journal by its hash.
    (event,) = session_events(relay, EventType.DPE_COMPLETED)
    assert event.data["report_hash"] == kept.report_hash
    assert answer.headers[names.CHAIN_INTEGRITY] == "UNVERIFIED"
    later = continued(relay, answer)
    assert later.report.chain_integrity == "VALID"
    assert relay.report(later.window_id) == later.report
    assert answer.headers[names.CHAINED_HMAC] == answer.report.hmac
    # The compliance receiver has it as well.
    relay.close()
    assert handed == [answer.report, later.report]


def test_a_receiver_that_fails_holds_nothing_up(
    open_relay: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Report) -> None:
        raise RuntimeError(LOW)

    relay, _ = opened(open_relay, LOW, receiver=broken)
    with caplog.at_level(logging.WARNING):
        assert answered(relay).text == LOW
        relay.close()
    assert "RuntimeError" in caplog.text
    assert LOW not in caplog.text


@pytest.mark.requirement("005-21.1-2", "005-15.4-1")
def test_a_changed_report_breaks_the_chain(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    answered(relay)
    answered(relay)
    with relay.fabric.begin(write=False) as transaction:
        seals = transaction.journal.seals(SESSION)
    key = session_key(relay._world.keyring, SESSION)
    assert window_seals.verify_seals(seals, key) is ChainIntegrity.VALID
    other = seals[0].changed(report_hash="sha256:" + "0" * 64)
    assert window_seals.verify_seals([other, seals[1]], key) is ChainIntegrity.BROKEN
    assert window_seals.first_break([other, seals[1]], key) == 0


# --- facts that answers keep going wrong with --------------------------------------------


def statuses(relay: Relay) -> dict[str, FactStatus]:
    found = relay.fabric.export(Where(statuses=tuple(FactStatus)))
    return {fact.content: fact.status for fact in found if isinstance(fact, Fact)}


@pytest.mark.requirement("009-8.4-1")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_fact_is_quarantined_after_three_findings_in_half_of_its_uses(
    open_relay: Opener, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "kb")
    # Right, wrong, right, wrong, wrong: three findings in five uses.
    relay, _ = opened(open_relay, LOW, HIGH, LOW, HIGH, HIGH, store=store)
    for number in range(5):
        assert statuses(relay)[LOW] is FactStatus.ACTIVE
        answered(relay, session_id=f"crp_sess_{number:016d}")
    assert statuses(relay)[LOW] is FactStatus.QUARANTINED
    others = {text: status for text, status in statuses(relay).items() if text != LOW}
    assert set(others.values()) == {FactStatus.ACTIVE}
    # The operator is told, retrieval leaves it out, and the journal says which fact it was.
    assert "quarantined" in caplog.text
    assert LOW not in caplog.text
    (event,) = session_events(relay, EventType.FACT_QUARANTINED)
    assert event.data["count"] == 1
    after = answered(relay, session_id="crp_sess_" + "f" * 16)
    assert LOW not in [fact.content for fact in after.envelope.facts]
    relay.verify()


@pytest.mark.requirement("009-8.4-1")
def test_three_findings_in_less_than_half_of_the_uses_do_nothing(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW, LOW, LOW, LOW, HIGH, HIGH, HIGH, HIGH)
    for number in range(7):
        answered(relay, session_id=f"crp_sess_{number:016d}")
    assert statuses(relay)[LOW] is FactStatus.ACTIVE
    answered(relay, session_id="crp_sess_" + "7" * 16)
    assert statuses(relay)[LOW] is FactStatus.QUARANTINED


@pytest.mark.requirement("009-8.4-1")
def test_both_bounds_are_settings_and_halted_answers_count(open_relay: Opener) -> None:
    limits = {"lifecycle": {"quarantine_findings": 2, "quarantine_share": 1.0}}
    relay, _ = opened(open_relay, HIGH, fabric=limits)
    for number in range(2):
        assert statuses(relay)[LOW] is FactStatus.ACTIVE
        outcome(relay, session_id=f"crp_sess_{number:016d}", policy="halt-on HIGH")
    assert statuses(relay)[LOW] is FactStatus.QUARANTINED


def test_a_lifted_fact_is_not_held_against_its_past(open_relay: Opener) -> None:
    relay, model = opened(open_relay, HIGH)
    for number in range(3):
        answered(relay, session_id=f"crp_sess_{number:016d}")
    found = relay.fabric.export(Where(statuses=(FactStatus.QUARANTINED,)))
    (fact,) = [one for one in found if isinstance(one, Fact)]
    relay.fabric.lift([fact.fact_id])
    answered(relay, session_id="crp_sess_" + "4" * 16)
    assert statuses(relay)[LOW] is FactStatus.ACTIVE
    with relay.fabric.begin(write=True) as transaction:
        facet = fault_counts_of(transaction)
        assert facet is not None
        assert facet.count([fact.fact_id])[fact.fact_id] == (2, 1)
    assert isinstance(model, ScriptedModel)


def test_who_may_only_read_gets_his_answer_and_quarantines_nothing(
    open_relay: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    class Reading(AllowAll):
        def decide(self, subject: Any, action: Any, labels: Any) -> Decision:
            if action == "read":
                return super().decide(subject, action, labels)
            return Decision(allowed=False, reason="reading alone", guard="reading")

    store = MemoryStore()
    writer, _ = opened(open_relay, HIGH, store=store)
    reader = open_relay(store, guard=Reading(), models=ScriptedModel(HIGH))
    for number in range(4):
        assert answered(reader, session_id=f"crp_sess_{number:016d}").text == HIGH
    assert statuses(writer)[LOW] is FactStatus.ACTIVE
    assert "due for quarantine" in caplog.text
    # The next finding of somebody who may does it.
    answered(writer)
    assert statuses(writer)[LOW] is FactStatus.QUARANTINED


def test_a_window_that_keeps_nothing_counts_nothing(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, HIGH)
    for number in range(4):
        answered(relay, session_id=f"crp_sess_{number:016d}", cache="no-store")
    assert statuses(relay)[LOW] is FactStatus.ACTIVE


# --- sources that changed ----------------------------------------------------------------


@pytest.fixture
def moving(open_relay: Opener) -> tuple[Relay, FixedClock]:
    clock = FixedClock()
    relay, _ = opened(open_relay, LOW, OPERATED, OPERATED, clock=clock)
    return relay, clock


@pytest.mark.requirement("009-4.5-7")
def test_stage_6_is_told_of_a_source_that_changed_since(moving: tuple[Relay, FixedClock]) -> None:
    relay, _ = moving
    first = answered(relay)
    (fact,) = [fact for fact in first.envelope.facts if fact.content == LOW]
    still = continued(relay, first)
    assert not [flag for flag in still.report.flags if flag.startswith("prior-outdated")]
    relay.fabric.update(fact.fact_id, content=LOW.replace("412", "415"))
    second = continued(relay, first)
    assert f"prior-outdated={first.window_id}" in second.report.flags
    (event,) = session_events(relay, EventType.SESSION_CONTINUED, window=second.window_id)
    assert event.data["outdated"] == [first.window_id]
    # It is part of the sealed report.
    kept = relay.report(second.window_id)
    assert kept is not None
    assert f"prior-outdated={first.window_id}" in kept.flags


@pytest.mark.requirement("009-4.5-7")
def test_a_fact_that_became_stale_since_counts_and_one_that_was_before_does_not(
    moving: tuple[Relay, FixedClock],
) -> None:
    relay, clock = moving
    every = relay.fabric.export()
    ids = {one.content: one.fact_id for one in every if isinstance(one, Fact)}
    relay.fabric.mark_stale([ids[REVENUE]])
    clock.moment = NOON.replace(hour=13)
    first = answered(relay)
    assert ids[REVENUE] in {fact.fact_id for fact in first.envelope.facts}
    clock.moment = NOON.replace(hour=14)
    assert not [f for f in continued(relay, first).report.flags if "outdated" in f]
    relay.fabric.mark_stale([ids[COOLING]])
    after = continued(relay, first, OPERATOR)
    assert f"prior-outdated={first.window_id}" in after.report.flags

"""A window that asks again: what triggers it, its words and parameters, and the third time."""

from __future__ import annotations

import pytest

from crp_integrations.dpe import remedies
from crp_integrations.dpe.records import Report
from crp_integrations.errors import SafetyHalt
from crp_integrations.headers import names
from crp_integrations.relay.steps import Halt
from crp_integrations.vocabulary import (
    EventType,
    HaltReason,
    Purpose,
    RepetitionLevel,
    RiskLevel,
    Severity,
    Strategy,
)
from tests.relay.conftest import FACTS, Opener
from tests.relay.scripted_relays import (
    CHANGED,
    CRITICAL,
    HIGH,
    LOW,
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

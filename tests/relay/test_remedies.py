"""Remedies and findings act: continuation, bridges, stored reports, quarantine, changed sources."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.audit import window_seals
from crp_integrations.audit.window_seals import session_key
from crp_integrations.dpe.records import Report
from crp_integrations.fabric.ports.store import fault_counts_of
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.guard.decisions import AllowAll, Decision
from crp_integrations.headers import names
from crp_integrations.headers.codec import parse_response
from crp_integrations.relay.records import Answer
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import (
    AdviceWord,
    ChainIntegrity,
    EventType,
    FactStatus,
    Purpose,
    QualityTier,
)
from tests.doubles import NOON, FixedClock, ScriptedModel
from tests.relay.conftest import FACTS, Opener
from tests.relay.scripted_relays import (
    HIGH,
    LOW,
    OPERATOR,
    QUESTION,
    SESSION,
    answered,
    continued,
    opened,
    outcome,
    session_events,
)

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
    assert kept.changed(hmac=answer.report.hmac) == answer.report
    # It is in the journal by its hash.
    (event,) = session_events(relay, EventType.DPE_COMPLETED)
    assert event.data["report_hash"] == kept.report_hash
    assert answer.headers[names.CHAIN_INTEGRITY] == "UNVERIFIED"
    assert answer.headers[names.CHAINED_HMAC] == answer.report.hmac
    # The compliance receiver has it as well.
    relay.close()
    assert handed == [answer.report]


def test_where_reports_are_read_is_a_setting(open_relay: Opener) -> None:
    uri = "https://crp.example.org/{session_id}/{window_id}"
    relay, _ = opened(open_relay, LOW, headers={"report_uri": uri, "trail_uri": uri})
    answer = answered(relay)
    wanted = f"https://crp.example.org/{SESSION}/{answer.window_id}"
    assert answer.headers[names.REPORT_URI] == answer.headers[names.TRAIL_URI] == wanted
    silent, _ = opened(open_relay, LOW, headers={"report_uri": ""})
    assert names.REPORT_URI not in answered(silent).headers


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

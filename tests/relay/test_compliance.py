"""A relay's compliance: what it registers, what halts, what is told, what never is."""

from __future__ import annotations

import logging

import pytest

from crp_integrations import Relay
from crp_integrations.audit.records import Event
from crp_integrations.errors import AccessDenied, EngineError, SafetyHalt
from crp_integrations.receipt.replay import replay
from crp_integrations.vocabulary import AiActClass, EventType
from tests.doubles import ScriptedModel

FACTS = (
    "The Brannock ferry carries forty cars and sails at nine every morning.",
    "The water tower of Brannock was repainted green in the year 2019.",
)
QUESTION = "When does the Brannock ferry sail?"
SECRET = "jo.moon@example.org"


def _relay(**options: object) -> Relay:
    relay = Relay.open(None, **options)
    relay.add(FACTS)
    return relay


def _events(relay: Relay) -> list[Event]:
    with relay.fabric.begin(write=False) as transaction:
        return list(transaction.journal.events())


def _system(domain: str, **more: object) -> dict[str, object]:
    return {"system": {"domain": domain, **more}}


@pytest.mark.requirement("005-14.2-1")
def test_an_unacceptable_use_halts_with_451() -> None:
    with _relay(**_system("biometric-identification")) as relay:
        with pytest.raises(SafetyHalt) as caught:
            relay.ask(QUESTION, session_id="crp_sess_0123456789abcdef")
        assert caught.value.status_hint == 451
        assert "UNACCEPTABLE_EU_AI_ACT" in str(caught.value)
        assert (caught.value.directive, caught.value.value) == ("eu-ai-act", "UNACCEPTABLE")
        assert caught.value.report.eu_ai_act_class is AiActClass.UNACCEPTABLE
        assert caught.value.trail.startswith("crp_win_")
        with pytest.raises(SafetyHalt):
            list(relay.stream(QUESTION))
        types = [event.event_type for event in _events(relay)]
        assert EventType.SAFETY_HALT in types
        assert EventType.EU_AI_ACT_CLASSIFIED in types
        assert relay.verify().windows == 2


@pytest.mark.requirement("005-14.1-1", "005-14.1-2")
def test_what_is_registered_reaches_report_and_headers() -> None:
    attested = ["roles-assigned", "human-oversight", "monitoring-planned"]
    with _relay(**_system("general-information", evidence=attested)) as relay:
        answer = relay.ask(QUESTION)
        assert answer.headers["CRP-Compliance-EU-AI-Act"] == "LIMITED"
        assert answer.headers["CRP-Compliance-GDPR-PII"] == "false"
        assert answer.headers["CRP-Compliance-NIST-Tier"].startswith("TIER-")
        met, total = map(int, answer.headers["CRP-Compliance-Controls-Met"].split("/"))
        assert 0 < met < total
        # The relay seals and chains, which is the evidence that A.6.2.8 needs.
        assert "A.6.2.8" in answer.headers["CRP-Compliance-ISO-42001"]
        assert "A.2.2" not in answer.headers["CRP-Compliance-ISO-42001"]
    with _relay() as relay:
        assert relay.ask(QUESTION).headers["CRP-Compliance-EU-AI-Act"] == "UNKNOWN"


@pytest.mark.requirement("005-17-2")
def test_a_call_from_too_deep_is_stopped() -> None:
    with _relay() as relay:
        deep = relay.ask(QUESTION, loop_depth=3)
        assert "agent-loop-depth" in deep.report.amplifiers_applied
        assert relay.ask(QUESTION, loop_depth=2).report.amplifiers_applied == ()
        assert relay.ask(QUESTION, loop_depth=5).text
        with pytest.raises(AccessDenied, match="loop depth 6 is above 5"):
            relay.ask(QUESTION, loop_depth=6)


@pytest.mark.requirement("005-13.1-1", "005-13.3-2")
def test_personal_data_of_a_prompt_is_found_and_told_nowhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with _relay() as relay:
        session = "crp_sess_0123456789abcdef"
        answer = relay.ask(QUESTION, system_prompt=f"The user is {SECRET}.", session_id=session)
        assert answer.headers["CRP-Compliance-GDPR-PII"] == "true"
        assert answer.report.personal.warning
        assert {datum.where for datum in answer.report.personal.found} == {"prompt"}
        kept = relay.ask(QUESTION, system_prompt=f"The user is {SECRET}.", cache="no-store")
        assert kept.report.gdpr_pii_detected
        assert kept.report.personal.warning == ""
        told = [
            answer.report.model_dump_json(),
            repr(answer.headers),
            repr(_events(relay)),
            caplog.text,
        ]
        assert [text for text in told if SECRET in text] == []
        assert EventType.PII_DETECTED in [e.event_type for e in _events(relay)]


def test_block_pii_lets_an_answer_repeat_what_the_history_says() -> None:
    words = f"The ferry sails at nine; write to {SECRET}."
    with _relay(models=ScriptedModel(words)) as relay:
        history = [{"role": "user", "content": f"I am at {SECRET}."}]
        answer = relay.ask(QUESTION, policy="block-pii", history=history)
        assert answer.text == words
        assert replay(relay.receipt(answer.receipt_id)).same
        for other in ({}, {"history": [{**history[0], "role": "system"}]}):
            with pytest.raises(SafetyHalt, match="block-pii"):
                relay.ask(QUESTION, policy="block-pii", **other)


def test_a_policy_engine_that_fails_withholds_a_registered_systems_answer() -> None:
    class Broken:
        identity = "broken@1"

        def decide(self, bundle: object, question: object) -> dict[str, object]:
            raise EngineError("no", engine="broken")

    with _relay(policy=Broken(), **_system("creative")) as relay, pytest.raises(SafetyHalt):
        relay.ask(QUESTION)
    with _relay(policy=Broken()) as relay:
        answer = relay.ask(QUESTION)
        assert "classification-not-checked" in answer.report.flags


def test_omissions_come_from_the_envelopes_own_importances() -> None:
    with _relay() as relay:
        answer = relay.ask(QUESTION)
        assert "CRP-Safety-Omissions" in answer.headers
        assert 10 in [run.number for run in answer.report.stages]


class Forbidding:
    """A policy engine that fails, or that forbids the answer."""

    identity = "forbidding@1"

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails

    def decide(self, bundle: object, question: object) -> dict[str, object]:
        if self._fails:
            raise EngineError("the engine is away")
        return {
            "ai_act_class": "MINIMAL",
            "nist_tier": "TIER-1",
            "iso_42001": [],
            "met": {},
            "open": [],
            "halts": True,
        }


@pytest.mark.parametrize(
    "options",
    [
        {"policy": Forbidding(fails=True), **_system("general-information")},
        {"policy": Forbidding(fails=False)},
    ],
    ids=["failing", "forbidding"],
)
def test_what_a_policy_engine_withholds_is_not_shown_live(options: dict[str, object]) -> None:
    shown: list[object] = []
    with _relay(**options) as relay, pytest.raises(SafetyHalt):
        shown.extend(relay.stream(QUESTION, live=True))
    assert shown == []

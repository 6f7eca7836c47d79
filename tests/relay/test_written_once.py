"""What a window keeps of itself is what its records say, though nothing is written down twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings_compliance import PersonalSettings
from crp_integrations.dpe.stages.s13_report import finish, finished, report_hash
from crp_integrations.relay.world import PersonalDataIndex
from crp_integrations.seals import sha256, sha256_each
from crp_integrations.session.ports import sessions_of
from tests.doubles import NOON, HashEmbedder, ScriptedModel

FACTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "Ada Quill (ada.quill@example.org) signs for every change of its fuel.",
    "Its cooling tower is 162 metres high — the Größte of the valley.",
]
SAID = "It was commissioned on 4 March 2019 and delivers 999 megawatts."


@pytest.fixture(params=["memory", "sqlite"])
def relay(request: pytest.FixtureRequest, tmp_path: Path) -> Relay:
    relay = Relay.open(
        None if request.param == "memory" else tmp_path,
        embedder=HashEmbedder(),
        clock=NOON,
        models=ScriptedModel(SAID),
    )
    relay.fabric.add(FACTS)
    return relay


def test_the_report_that_is_kept_is_the_one_that_was_hashed(relay: Relay) -> None:
    answer = relay.ask("What does the Meridian reactor deliver?")
    with relay.fabric.begin(write=False) as transaction:
        kept = sessions_of(transaction).report(answer.window_id)
    unsealed = answer.report.model_copy(
        update={
            name: Report.model_fields[name].get_default() for name in ("hmac", "chain_integrity")
        }
    )
    assert kept == unsealed.model_dump_json()
    assert report_hash(unsealed) == report_hash(answer.report) == answer.report.report_hash


def test_the_values_of_a_report_are_those_of_its_json(relay: Relay) -> None:
    report = relay.ask("What does the Meridian reactor deliver?").report
    identity = {"session_id": "crp_sess_0123456789abcdef", "window_id": "w", "window_number": 3}
    made, values = finished(report, **identity)
    assert made == finish(report, **identity)
    assert values == made.model_dump(mode="json")
    assert list(values) == list(made.model_dump(mode="json"))


def test_what_a_continuation_knows_of_the_facts_is_the_same_with_hashes_at_hand(
    relay: Relay,
) -> None:
    envelope = relay.ask("What does the Meridian reactor deliver?").envelope
    assert envelope.facts
    for most in (0, len(envelope.facts[0].content), 10_000):
        found = PersonalDataIndex().of(envelope.facts, PersonalSettings(), most)
        assert found.hashes == {
            fact.fact_id: sha256(fact.content)
            for fact in envelope.facts[: len(envelope.facts) - found.unread]
        }
        assert envelope.as_prior(hashes=found.hashes) == envelope.as_prior()


def test_texts_are_looked_at_once_and_the_latest_stay(relay: Relay) -> None:
    facts = relay.ask("What does the Meridian reactor deliver?").envelope.facts
    whole = PersonalDataIndex().of(facts, PersonalSettings(), 10_000)
    assert whole.held == 1
    searched = PersonalDataIndex(most_texts=2)
    for _ in range(2):
        for fact in facts:
            alone = searched.of([fact], PersonalSettings(), 10_000)
            assert alone.held == ("@" in fact.content)
    searched = PersonalDataIndex(most_texts=2)
    for place in (0, 1, 0, 2):
        searched.of([facts[place]], PersonalSettings(), 10_000)
    assert [*searched._known] == [sha256(facts[place].content) for place in (0, 2)]


def test_several_are_hashed_as_each_is_by_itself() -> None:
    texts = [text.encode() for text in FACTS]
    assert sha256_each(texts) == [sha256(text) for text in texts]
    assert sha256_each([]) == []

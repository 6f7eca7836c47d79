"""An operator's own weights stay the operator's: what leaves the relay has their digest alone."""

import pytest

from tests.doubles import ScriptedModel

FACT = "The Falcon bridge is 503 metres long and carries eight lanes of traffic."
SAID = "The Falcon bridge is 977 metres long. It carries eight lanes of traffic."
WEIGHTS = {
    "attribution_weight": 0.33717,
    "fidelity_weight": 0.26113,
    "entailment_weight": 0.25937,
    "specificity_weight": 0.14233,
}


@pytest.mark.requirement("005-21.3-2")
def test_custom_weights_are_in_no_header_and_no_answer(open_relay, tmp_path):
    relay = open_relay(tmp_path / "kb", models=ScriptedModel(SAID), dpe=WEIGHTS)
    usual = open_relay(models=ScriptedModel(SAID))
    for one in (relay, usual):
        one.add([FACT])
    answer = relay.ask("How long is the Falcon bridge?", model="scripted")
    assert (
        answer.report.composite_score
        != usual.ask("How long is the Falcon bridge?", model="scripted").report.composite_score
    )

    with relay.fabric.begin(write=False) as transaction:
        journal = "".join(event.model_dump_json() for event in transaction.journal.events())
        stored = transaction.sessions.report(answer.window_id)
    told = answer.model_dump_json() + journal + stored + "".join(answer.headers.values())
    for weight in WEIGHTS.values():
        assert str(weight) not in told
    assert answer.report.settings_digest == relay.settings.digest
    assert answer.report.settings_digest != usual.settings.digest

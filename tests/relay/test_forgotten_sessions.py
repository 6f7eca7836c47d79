"""A session that the store has forgotten does not begin with a whole safety budget again."""

from crp_integrations.messages import Reply
from tests.doubles import ScriptedModel

SESSION = "crp_sess_abcdefgh12345678"
FACT = "The Falcon bridge is 503 metres long and carries eight lanes of traffic."
WRONG = "The Falcon bridge is 977 metres long. It was built by Otto Brenner in 1871 for $9 million."


def test_its_seals_say_what_was_spent(open_relay, tmp_path):
    relay = open_relay(tmp_path / "kb", models=ScriptedModel(Reply(text=WRONG), Reply(text=FACT)))
    relay.add([FACT])
    first = relay.ask("How long is the Falcon bridge?", session_id=SESSION)
    with relay.fabric.begin(write=False) as transaction:
        left = transaction.sessions.session(SESSION).safety_budget
    assert first.report.risk_level in ("MEDIUM", "HIGH", "CRITICAL")
    assert left < 1.0
    relay.fabric.forget_session(SESSION)
    with relay.fabric.begin(write=False) as transaction:
        assert transaction.sessions.session(SESSION) is None
    relay.ask("How long is the Falcon bridge?", session_id=SESSION)
    with relay.fabric.begin(write=False) as transaction:
        assert transaction.sessions.session(SESSION).safety_budget <= left

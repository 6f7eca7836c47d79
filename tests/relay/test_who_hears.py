"""What a user hears of windows with facts that only another one may read."""

from __future__ import annotations

from crp_integrations import Relay
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import Action, Decision, Subject
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import ScriptedModel
from tests.relay.conftest import FACTS
from tests.relay.scripted import (
    LOW,
    Opener,
    answered,
    continued,
)

SECRET = "The price of the Falcon contract of Northfield Energy is 77 million euros."


PRICE = "What is the price of the Falcon contract of Northfield Energy?"


class Labelled:
    """Lets nobody but one user read what is secret."""

    name = "labelled"

    def decide(self, subject: Subject, action: Action, labels: tuple[str, ...]) -> Decision:
        allowed = action != "read" or "secret" not in labels or subject.name == "alice"
        return Decision(allowed=allowed, guard=self.name, reason="what is secret is alice's")


def two_users(open_relay: Opener, *said: str) -> tuple[Relay, Relay, ScriptedModel]:
    """Relays of two users over one store, of whom one may read what is secret."""
    store, model = MemoryStore(), ScriptedModel(*said)
    alice, bob = (
        open_relay(store, models=model, guard=Labelled(), subject=Subject(tenant="t", name=name))
        for name in ("alice", "bob")
    )
    alice.fabric.add([Fact(content=SECRET, labels=("secret",))])
    alice.fabric.add(list(FACTS))
    return alice, bob, model


def test_a_continuation_hears_nothing_of_facts_that_its_user_may_not_read(
    open_relay: Opener,
) -> None:
    alice, bob, model = two_users(open_relay, SECRET)
    first = answered(alice, PRICE)
    second = continued(alice, first, PRICE)
    assert SECRET in "".join(message.content for message in model.calls[-1].messages)
    for before in (first, second):
        continued(bob, before, PRICE)
        assert "77" not in "".join(message.content for message in model.calls[-1].messages)


def test_a_report_is_read_by_who_may_read_what_it_is_about(open_relay: Opener) -> None:
    alice, bob, _ = two_users(open_relay, SECRET, SECRET, LOW)
    first = answered(alice, PRICE)
    second = continued(alice, first, PRICE)
    assert alice.report(first.window_id) is not None
    assert alice.report(second.window_id) is not None
    assert bob.report(first.window_id) is None
    assert bob.report(second.window_id) is None
    plain = answered(bob, session_id="crp_sess_" + "b" * 16)
    assert bob.report(plain.window_id) is not None
    assert alice.report(plain.window_id) is not None

"""Copies of what was shown, behind a guard: receipts, reports, envelopes and artifacts.

Each is made from facts for one subject at one time, and may be asked for by another, or later.

What a user hears of windows with facts that only another one may read.

Redacted texts that are kept in memory: bounded, and gone with an erasure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.dpe.pii.spans import PersonalSpan
from crp_integrations.dpe.settings import PersonalSettings
from crp_integrations.errors import AccessDenied, EngineError, RequestError
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import Action, Decision, Subject
from crp_integrations.relay.safeguards import RedactingGuard
from crp_integrations.relay.settings import Settings
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import PersonalCategory
from tests.doubles import FixedClock, HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS, Opener
from tests.relay.scripted_relays import LOW, answered, continued

QUESTION = "Who answers for the pump station and its spare keys?"
MAIL = "joan.miller@waterboard.example"
PERSONAL = f"Whoever finds the pump station open writes to {MAIL} about its spare keys."
SESSION = "crp_sess_" + "c" * 16
LOG = "the pump ran dry at noon and was stopped by hand\n" * 300


class Opinion:
    """Lets read what no label keeps for a role; takes addresses out while it is told to."""

    name = "opinion"

    def __init__(self, *, redacts: bool = False) -> None:
        self.redacts = redacts

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        needed = {label.removeprefix("role:") for label in labels if label.startswith("role:")}
        redact = ("email",) if self.redacts and "pii" in labels and action == "read" else ()
        return Decision(
            allowed=needed <= set(subject.roles),
            guard=self.name,
            reason="opinion",
            redact=redact,
            lasting=False,
        )


def relay(store: MemoryStore | Path, guard: Opinion, *roles: str) -> Relay:
    return Relay.open(
        store,
        subject=Subject(tenant="acme", name="anna", roles=roles),
        embedder=HashEmbedder(),
        guard=guard,
        settings=Settings(key="ab" * 32),
        models=ScriptedModel("They hang beside the door."),
        clock=FixedClock(),
    )


def test_a_receipt_with_personal_data_is_not_for_whom_it_must_be_redacted() -> None:
    store = MemoryStore()
    officer = relay(store, Opinion())
    officer.fabric.add([Fact(content=PERSONAL, labels=("pii",))])
    answer = officer.ask(QUESTION, session_id=SESSION)
    window = answer.report.window_id
    assert MAIL in repr(officer.receipt(answer.receipt_id).texts)
    assert officer.report(window) is not None
    reader = relay(store, Opinion(redacts=True))
    assert reader.receipt(answer.receipt_id) is None
    assert reader.receipt(window) is None
    assert reader.report(window) is None


def test_what_was_shown_redacted_stays_the_readers_own() -> None:
    store = MemoryStore()
    relay(store, Opinion()).fabric.add([Fact(content=PERSONAL, labels=("pii",))])
    reader = relay(store, Opinion(redacts=True))
    answer = reader.ask(QUESTION, session_id=SESSION)
    receipt = reader.receipt(answer.receipt_id)
    assert receipt is not None
    assert MAIL not in repr(receipt.texts)
    assert reader.report(answer.report.window_id) is not None


def test_an_earlier_envelope_is_not_confirmed_once_its_text_must_be_redacted() -> None:
    guard = Opinion()
    opened = relay(MemoryStore(), guard)
    opened.fabric.add([Fact(content=PERSONAL, labels=("pii",))])
    first = opened.ask(QUESTION, session_id=SESSION)
    assert MAIL in first.envelope.text
    guard.redacts = True
    step = opened.turn(QUESTION, session_id=SESSION, if_match=first.envelope.etag).begin()
    assert MAIL not in repr(step)


def test_forgetting_a_session_takes_its_artifacts_along(tmp_path: Path) -> None:
    with relay(tmp_path, Opinion()) as opened:
        sandbox = opened.sandbox(session_id=SESSION)
        ref = sandbox.put(LOG, kind="log", sources=["call-1"]).ref
        kept = opened.sandbox().put("of none", kind="log", sources=["call-1"]).ref
        opened.fabric.forget_session(SESSION)
        with pytest.raises(RequestError):
            sandbox.get(ref)
        assert sandbox.refs() == (kept,)


def test_an_artifact_is_guarded_by_the_labels_that_its_facts_have_now(tmp_path: Path) -> None:
    with relay(tmp_path, Opinion(), "board") as chief:
        (fact,) = chief.fabric.add([PERSONAL]).facts
        ref = chief.sandbox().put(PERSONAL, kind="log", sources=[fact]).ref
        chief.fabric.update(fact, labels=["role:board"])
        assert chief.sandbox().get(ref).text == PERSONAL
    with relay(tmp_path, Opinion()) as clerk:
        with pytest.raises(AccessDenied):
            clerk.sandbox().get(ref)
        with pytest.raises(AccessDenied):
            clerk.sandbox().sign(ref)
        assert clerk.sandbox().refs() == ()
        # Nor does a copy by who may not see the fact lose its label.
        with pytest.raises(AccessDenied):
            clerk.sandbox().put(PERSONAL, kind="log", sources=[fact])


def test_a_redacted_artifact_does_not_tell_the_hash_of_the_whole_text() -> None:
    guard = Opinion()
    opened = relay(MemoryStore(), guard)
    sandbox = opened.sandbox(labels=["pii"])
    ref = sandbox.put(PERSONAL, kind="log", sources=["call-1"]).ref
    whole = sandbox.get(ref).artifact
    guard.redacts = True
    shown = sandbox.get(ref)
    assert MAIL not in shown.text
    assert shown.artifact.checksum != whole.checksum
    assert shown.artifact.size == len(shown.data)


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


TEXT = "Whoever finds the pump station open writes to joan.miller@waterboard.example at once."


def test_an_erasure_takes_redacted_texts_out_of_memory() -> None:
    redacting = RedactingGuard(PersonalSettings())
    redacted = redacting.redacted(TEXT, ("email",))
    assert "[redacted email]" in redacted
    assert redacting.kept == 1
    with Relay.open(None, embedder=HashEmbedder()) as relay:
        (fact,) = relay.fabric.facts(relay.fabric.add([TEXT]).facts)
        relay.fabric.erase(fact.source_id)
    assert redacting.kept == 0
    assert redacting.redacted(TEXT, ("email",)) == redacted


def test_no_more_texts_are_kept_than_it_was_told() -> None:
    redacting = RedactingGuard(PersonalSettings(), most_kept=3)
    for number in range(9):
        redacting.redacted(f"{TEXT} That was said {number} times.", ("email",))
    assert redacting.kept == 3


@pytest.mark.requirement("SUM-privacy-3")
def test_a_kind_that_nobody_looks_for_is_an_error_and_not_a_whole_text() -> None:
    """A policy may misspell a kind; the text would be shown as if it had been redacted."""
    for kinds in (("e-mail",), ("email", "name"), ("",)):
        with pytest.raises(EngineError, match="no recogniser finds") as caught:
            RedactingGuard(PersonalSettings()).redacted(TEXT, kinds)
        assert "joan" not in str(caught.value)
    own = RedactingGuard(PersonalSettings(), [Badges()])
    assert own.redacted(f"{TEXT} Badge 4471.", ("badge",)) == f"{TEXT} [redacted badge]."


@pytest.mark.requirement("SUM-privacy-3")
def test_a_kind_that_a_policy_names_is_taken_out_though_reports_leave_it_aside() -> None:
    settings = PersonalSettings(aside=("email", "badge"))
    redacting = RedactingGuard(settings, [Badges()])
    told = redacting.redacted(f"{TEXT} Badge 4471.", ("badge", "email"))
    assert "[redacted email]" in told
    assert "[redacted badge]" in told
    # Every kind is every kind that is looked for.
    assert redacting.redacted(TEXT, ("*",)) == TEXT


class Badges:
    """Looks for badges, a kind of its own."""

    identity = "badges 1"
    kinds: Mapping[str, PersonalCategory] = {"badge": PersonalCategory.QUASI}

    def find(self, text: str) -> list[PersonalSpan]:
        return [
            PersonalSpan(self.kinds["badge"], "badge", found.start(), found.end(), "badges", 1.0)
            for found in re.finditer(r"Badge \d+", text)
        ]

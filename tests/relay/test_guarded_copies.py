"""Copies of what was shown, behind a guard: receipts, reports, envelopes and artifacts.

Each is made from facts for one subject at one time, and may be asked for by another, or later.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.errors import AccessDenied, RequestError
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.relay.settings import Settings
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import FixedClock, HashEmbedder, ScriptedModel

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

"""A relay behind a policy: what it shows, what it withholds, and where each decision stands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.engines.guards import guard_of
from crp_integrations.envelope.retrieval import gather
from crp_integrations.errors import AccessDenied, ConfigError, RequestError
from crp_integrations.fabric.records import Edge, Fact
from crp_integrations.guard.decisions import PolicyGuard, Subject
from crp_integrations.guard.settings import GuardSettings
from crp_integrations.messages import ModelCall
from crp_integrations.relay.settings import Settings
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import EventType
from tests.doubles import NOON, FixedClock, HashEmbedder, ScriptedModel, WordCounter

POLICY = {"policy": True}
QUESTION = "Who answers for the pump station and its spare keys?"
OPEN = "The pump station has two spare keys and they hang beside the door."
INTERNAL = "The pump station is answered for by the water board's second shift."
MAIL = "joan.miller@waterboard.example"
PERSONAL = f"Whoever finds the pump station open writes to {MAIL} about its spare keys."
SECRET = "The pump station code is 4471 and the spare keys are under the mat."
FACTS = (
    Fact(content=OPEN, labels=("class:public",)),
    Fact(content=INTERNAL, labels=("class:internal", "tenant:acme")),
    Fact(content=PERSONAL, labels=("class:internal", "pii:low")),
    Fact(content=SECRET, labels=("class:secret",)),
)
HOUR = timedelta(hours=1)


@contextmanager
def relay(
    store: MemoryStore, *roles: str, settings: dict[str, Any] | None = None, **more: Any
) -> Iterator[Relay]:
    """A relay of the tenant `acme` for a user with these roles; the store stays open."""
    yield Relay.open(
        store,
        subject=Subject(tenant="acme", name="anna", roles=roles),
        embedder=HashEmbedder(),
        settings=Settings(guard=GuardSettings(**(settings or POLICY)), key="ab" * 32),
        **{"models": ScriptedModel("The water board answers."), "clock": FixedClock(), **more},
    )


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    with relay(made, "operator") as opened:
        opened.fabric.add(list(FACTS))
    return made


def contents(found: Any) -> set[str]:
    return {fact.content for fact in found}


def events(opened: Relay, kind: EventType) -> list[Any]:
    with opened.fabric.begin(write=False) as transaction:
        return [event for event in transaction.journal.events() if event.event_type is kind]


# --- every read passes the guard ----------------------------------------------------------


@pytest.mark.requirement("SUM-privacy-1")
@pytest.mark.requirement("SUM-store-2")
def test_no_way_of_asking_gives_an_id_that_policy_denies(store: MemoryStore) -> None:
    """Vectors, words, filters, graph, ids by heart, export: each is asked by who may not."""
    with relay(store, "operator") as operator:
        ids = {
            fact.labels: fact.fact_id for fact in operator.fabric.export() if isinstance(fact, Fact)
        }
        by_heart = sorted(ids.values())
        operator.fabric.link(
            [
                Edge(source_fact=by_heart[0], target_fact=other, kind="near")
                for other in by_heart[1:]
            ]
        )
    assert len(by_heart) == 4
    for roles, allowed in (
        ((), {("class:public",)}),
        (("reader",), set(ids) - {("class:secret",)}),
        (("operator",), set(ids)),
    ):
        wanted = {ids[labels] for labels in allowed}
        with relay(store, *roles) as opened:
            view = opened.fabric.view()
            vector = view.embedder.embed_query(QUESTION)
            assert {hit.fact_id for hit in view.nearest(vector, 10)} == wanted
            assert {hit.fact_id for hit in view.search_text(QUESTION, 10)} == wanted
            assert {fact.fact_id for fact in view.facts(by_heart)} == wanted
            assert {brief.fact_id for brief in view.briefs(by_heart)} == wanted
            assert set(view.token_counts("w", by_heart, lambda texts: [1] * len(texts))) == wanted
            ends = {
                id_ for edge in view.edges(by_heart) for id_ in (edge.source_fact, edge.target_fact)
            }
            assert ends <= wanted
            exported = {one.fact_id for one in opened.fabric.export() if isinstance(one, Fact)}
            assert exported == wanted
            found = gather(view, QUESTION, counter=WordCounter(), settings=opened.settings.envelope)
            assert {fact.fact_id for fact in found.facts} == wanted


@pytest.mark.requirement("SUM-store-2")
def test_a_vector_is_put_with_its_label_and_found_by_it(store: MemoryStore) -> None:
    embedder = HashEmbedder()
    with relay(store, "operator") as operator:
        new = Fact(
            content="The turbine of the old mill was painted green by nobody in particular last year.",
            fact_id="turbine",
            labels=("class:x",),
        )
        operator.fabric.put([new], vectors=embedder.embed_passages([new.content]))
        vector = embedder.embed_query("turbine painted green")
        assert operator.fabric.nearest(vector, 1)[0].fact_id == "turbine"
    with relay(store, "reader") as reader:
        assert "turbine" not in {hit.fact_id for hit in reader.fabric.nearest(vector, 10)}


def test_what_carries_no_label_is_stored_by_nobody_and_read_by_nobody(store: MemoryStore) -> None:
    with relay(store, "operator") as operator, pytest.raises(AccessDenied, match="no label"):
        operator.fabric.add(["A fact without any label stands here and is read by nobody at all."])
    with relay(store, guard=guard_of(GuardSettings())) as open_door:
        open_door.fabric.add(["A fact without any label stands here and is read by nobody at all."])
    with relay(store, "operator") as operator:
        assert len(list(operator.fabric.export())) == len(FACTS)


# --- what is selected -----------------------------------------------------------------------


@pytest.mark.requirement("SUM-pipe-9")
def test_what_fails_policy_is_no_candidate_and_in_no_pack(store: MemoryStore) -> None:
    with relay(store, "reader") as reader:
        preview = reader.preview(QUESTION)
        answer = reader.ask(QUESTION)
    shown = contents(answer.envelope.facts)
    assert {OPEN, INTERNAL} <= shown
    assert SECRET not in shown
    # Nothing tells that there was one: it is no drop either.
    assert preview.facts_available == 3
    assert answer.envelope.total_facts_available == 3
    assert "policy crp-access@1" in next(f for f in answer.report.flags if f.startswith("guard="))


@pytest.mark.requirement("SUM-policy-2")
@pytest.mark.requirement("SUM-select-9")
def test_every_item_names_its_decision_in_evidence_receipt_and_journal(store: MemoryStore) -> None:
    with relay(store, "reader") as reader:
        guard = reader.fabric.guard
        assert isinstance(guard, PolicyGuard)
        by_content = {
            OPEN: guard.decide(reader.fabric.subject, "read", ("class:public",)).id,
            INTERNAL: guard.decide(
                reader.fabric.subject, "read", ("class:internal", "tenant:acme")
            ).id,
        }
        assert len(set(by_content.values())) == 2
        found = gather(
            reader.fabric, QUESTION, counter=WordCounter(), settings=reader.settings.envelope
        )
        for fact in found.facts:
            assert fact.decision.startswith("pd:")
            assert by_content.get(fact.content, fact.decision) == fact.decision
        answer = reader.ask(QUESTION)
        decided = {fact.fact_id: fact.decision for fact in found.facts}
        receipt = reader.receipt(answer.receipt_id)
        assert receipt is not None
        told = {one["id"]: one["decision"] for one in receipt.content["candidates"]}
        assert told == decided
        (event,) = events(reader, EventType.FACT_RETRIEVED)
        journalled = dict(zip(event.data["facts"], event.data["decisions"], strict=True))
        assert journalled == {id_: decided[id_] for id_ in event.data["facts"]}
        assert journalled
        assert reader.verify().state.value == "VALID"


# --- redaction ------------------------------------------------------------------------------


@pytest.mark.requirement("003-17.1-2")
@pytest.mark.requirement("SUM-privacy-3")
@pytest.mark.requirement("SUM-fail-2")
def test_personal_data_are_gone_before_anybody_sees_the_text(store: MemoryStore) -> None:
    sent: list[ModelCall] = []

    def keep(call: ModelCall) -> str:
        sent.append(call)
        return "They hang beside the door."

    with relay(store, "reader", models=ScriptedModel(keep)) as reader:
        answer = reader.ask(QUESTION)
        ways = {
            "envelope": answer.envelope.text,
            "prompt": "".join(message.content for message in sent[0].messages),
            "receipt": repr(reader.receipt(answer.receipt_id).texts),
            "facts": "".join(
                contents(reader.fabric.facts([f.fact_id for f in answer.envelope.facts]))
            ),
            "export": "".join(contents(f for f in reader.fabric.export() if isinstance(f, Fact))),
            "assembled": reader.assemble(QUESTION).text,
        }
        assert [name for name, text in ways.items() if MAIL in text] == []
        assert [name for name, text in ways.items() if "[redacted email]" not in text] == []
        assert "redact@1" in answer.envelope.algorithms
        # The count is that of the text that is shown.
        fact = next(f for f in answer.envelope.facts if "[redacted email]" in f.content)
        counter = reader._world.engines.counter_for(reader.settings.model)
        assert abs(fact.token_count - counter.count(fact.content)) < 10
    with relay(store, "reader", "privacy-officer") as officer:
        assert MAIL in officer.ask(QUESTION).envelope.text


@pytest.mark.requirement("SUM-privacy-3")
def test_a_label_mismatch_denies_exposure_also_of_what_would_be_redacted(
    store: MemoryStore,
) -> None:
    with relay(store) as visitor:
        answer = visitor.ask(QUESTION)
        assert contents(answer.envelope.facts) == {OPEN}


def test_a_session_held_in_memory_is_redacted_and_withheld_alike(store: MemoryStore) -> None:
    session = "crp_sess_" + "a" * 16
    with relay(store, "operator") as operator:
        held = [
            Fact(
                content=f"The pump of the session is looked after by {MAIL}.", labels=("pii:low",)
            ),
            Fact(content="The session's pump is a secret of the board.", labels=("class:secret",)),
        ]
        operator.fabric.hold(session, held)
        reading = operator.fabric
        shown = contents(reading.view(session).facts([fact.fact_id for fact in held]))
        assert len(shown) == 2
        assert not any(MAIL in text for text in shown)
        reader = reading._region.bind(
            Subject(tenant="acme", name="anna", roles=("reader",)), reading.guard
        )
        seen = contents(reader.view(session).facts([fact.fact_id for fact in held]))
        assert seen == {"The pump of the session is looked after by [redacted email]."}


# --- the engine is down -----------------------------------------------------------------------


@pytest.mark.requirement("SUM-store-4")
def test_with_its_policy_engine_down_a_relay_shows_nothing_and_says_why(store: MemoryStore) -> None:
    # Nobody listens on the discard port.
    down = {"opa_url": "http://127.0.0.1:9", "opa_timeout_s": 0.5}
    with relay(store, "operator", settings=down) as opened:
        with pytest.raises(AccessDenied, match=r"the policy engine failed.*cannot be reached"):
            opened.ask(QUESTION)
        with pytest.raises(AccessDenied, match="the policy engine failed"):
            opened.fabric.facts(["any"] + [f.fact_id for f in FACTS])
        with pytest.raises(AccessDenied, match="the policy engine failed"):
            opened.fabric.add([Fact(content=OPEN + " Twice.", labels=("class:public",))])


def test_settings_name_a_bundle_and_a_wrong_one_is_said(tmp_path: Path) -> None:
    (tmp_path / "own.rego").write_text(
        "package crp.access\n\nimport rego.v1\n\n"
        'default decision := {"allow": false}\n\n'
        'decision := {"allow": true} if input.resource.labels == data.open\n',
        encoding="utf-8",
    )
    (tmp_path / "data.json").write_text('{"name": "own@3", "open": ["a:b"]}', encoding="utf-8")
    own = guard_of(GuardSettings(bundle=tmp_path))
    anna = Subject(tenant="acme", name="anna")
    assert own.name.startswith("policy own@3 ")
    assert own.decide(anna, "read", ("a:b",)).allowed
    assert not own.decide(anna, "read", ("a:c",)).allowed
    with pytest.raises(ConfigError, match="not a folder"):
        guard_of(GuardSettings(bundle=tmp_path / "gone"))
    (tmp_path / "data.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigError, match="list, wanted an object"):
        guard_of(GuardSettings(bundle=tmp_path))
    with pytest.raises(ConfigError, match="both given"):
        GuardSettings(bundle=tmp_path, opa_url="http://127.0.0.1:8181")
    assert guard_of(GuardSettings()).name == "allow-all"


# --- governed exceptions ------------------------------------------------------------------------


def registry(folder: Path, **more: Any) -> dict[str, Any]:
    one = {
        "id": "key-audit",
        "owner": "kim",
        "reason": "The yearly audit of keys.",
        "granted_at": (NOON - HOUR).isoformat(),
        "expires_at": (NOON + HOUR).isoformat(),
        "rollback": {"event": "FACT_QUARANTINED", "count": 1},
        "scope": {
            "tenant": "acme",
            "subjects": ["anna"],
            "actions": ["read", "write"],
            "labels": ["class:secret"],
        },
        "decisions": ["board-2026-17"],
        "hooks": ["journal"],
        **more,
    }
    path = folder / "exceptions.json"
    path.write_text(json.dumps([one]), encoding="utf-8")
    return {"policy": True, "exceptions": path}


@pytest.mark.requirement("SUM-exception-2")
def test_each_use_of_an_exception_is_journalled_and_it_ends_on_the_hour(
    store: MemoryStore, tmp_path: Path
) -> None:
    clock = FixedClock()
    with relay(store, "reader", settings=registry(tmp_path), clock=clock) as opened:
        assert opened.fabric.guard_name.endswith("+exceptions")
        answer = opened.ask(QUESTION)
        assert SECRET in contents(answer.envelope.facts)
        used = events(opened, EventType.EXCEPTION_USED)
        assert used
        assert used[0].data["exception"] == "key-audit"
        assert used[0].data["labels"] == ["class:secret"]
        assert used[0].data["decisions"][0] == "board-2026-17"
        assert used[0].data["decisions"][1].startswith("pd:")
        (retrieved,) = events(opened, EventType.FACT_RETRIEVED)
        assert "ge:key-audit" in retrieved.data["decisions"]
        entry = opened.fabric.guard.ledger()[0]
        assert (entry.state, entry.uses) == ("active", len(used))
        assert entry.scope.labels == ("class:secret",)
        # The relay goes on; the exception does not.
        clock.moment = NOON + HOUR
        later = opened.ask(QUESTION)
        assert SECRET not in contents(later.envelope.facts)
        assert len(events(opened, EventType.EXCEPTION_USED)) == len(used)
        assert opened.fabric.guard.ledger()[0].state == "expired"
        assert opened.verify().state.value == "VALID"


def test_a_write_by_exception_is_journalled_with_the_write_or_not_at_all(
    store: MemoryStore, tmp_path: Path
) -> None:
    with relay(store, "reader", settings=registry(tmp_path)) as opened:
        opened.fabric.add([Fact(content=SECRET + " Twice.", labels=("class:secret",))])
        used = events(opened, EventType.EXCEPTION_USED)
        assert used[0].data["action"] == "write"
        with pytest.raises(AccessDenied):
            opened.fabric.add([Fact(content=OPEN + " Twice.", labels=("class:public",))])


def test_an_event_of_the_journal_ends_an_exception(store: MemoryStore, tmp_path: Path) -> None:
    with relay(store, "reader", settings=registry(tmp_path)) as opened:
        assert SECRET in contents(opened.ask(QUESTION).envelope.facts)
        with relay(store, "operator") as operator:
            operator.fabric.quarantine([operator.fabric.search_text("water board", 1)[0].fact_id])
        assert SECRET not in contents(opened.ask(QUESTION).envelope.facts)
        assert opened.fabric.guard.ledger()[0].state == "rolled-back"


@pytest.mark.requirement("SUM-isolate-16")
def test_a_bypass_is_refused_unless_a_registered_exception_holds_for_it(
    store: MemoryStore, tmp_path: Path
) -> None:
    """The runtime audit: code that asks no guard names its exception, and is stopped without."""
    clock = FixedClock()
    labels = ("class:secret",)
    with relay(store, "reader", settings=registry(tmp_path), clock=clock) as opened:
        guard, anna = opened.fabric.guard, opened.fabric.subject
        assert guard.bypass("key-audit", anna, "read", labels).id == "ge:key-audit"
        assert len(events(opened, EventType.EXCEPTION_USED)) == 1
        for id_, subject, action, what in (
            ("old-dump", anna, "read", labels),
            ("key-audit", anna, "erase", labels),
            ("key-audit", anna, "read", ("class:top",)),
            ("key-audit", Subject(tenant="globex", name="anna"), "read", labels),
            ("key-audit", Subject(tenant="acme", name="eve"), "read", labels),
        ):
            with pytest.raises(AccessDenied, match=r"old-dump|key-audit"):
                guard.bypass(id_, subject, action, what)
        clock.moment = NOON + HOUR
        with pytest.raises(AccessDenied, match="is expired"):
            guard.bypass("key-audit", anna, "read", labels)
        assert len(events(opened, EventType.EXCEPTION_USED)) == 1


def test_exceptions_are_refused_on_opening_when_something_is_missing(
    store: MemoryStore, tmp_path: Path
) -> None:
    for settings, error, says in (
        (registry(tmp_path, expires_at=None), RequestError, "expires_at"),
        (
            registry(tmp_path, hooks=["pager"]),
            RequestError,
            "audit hooks that do not exist: pager",
        ),
        ({"policy": True, "exceptions": tmp_path / "none.json"}, ConfigError, "cannot be read"),
    ):
        if "none.json" not in str(settings["exceptions"]):
            registry(
                tmp_path, **({"hooks": ["pager"]} if "pager" in says else {"expires_at": None})
            )
        with pytest.raises(error, match=says), relay(store, settings=settings):
            pass

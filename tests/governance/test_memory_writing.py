"""Writing memories: audit entries with signer, corrections and retractions, validity in time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import ActionReport, check_call
from crp_integrations.audit.journal import verify_journal
from crp_integrations.errors import AccessDenied, FactRejected, RequestError, StoreBusy
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.governance.memory_items import MemoryItem, Scope, item, valid_at
from crp_integrations.governance.memory_writer import (
    Emitter,
    MemoryWriter,
    PolicyContext,
    make_sink,
)
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite.store import SqliteStore
from crp_integrations.vocabulary import EventType
from tests.doubles import NOON, CountingIds, FixedClock
from tests.example_scripts import load_example
from tests.fabric.lifecycle_fixtures import events, fabric, setting
from tests.governance.memories import ANNA, CONTEXT, TEXT, bound, fields, memory, writer

EXAMPLE = load_example("memory_replay")
MARCH, JUNE, SEPTEMBER = (datetime(2026, month, 1, tzinfo=UTC) for month in (3, 6, 9))


@pytest.fixture(params=["memory", "sqlite"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Fabric:
    return fabric(MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb"))


def at(door: MemoryWriter, moment: datetime) -> list[str]:
    return [one.id[-1] for one in door.as_of(moment, CONTEXT)]


@pytest.mark.requirement("SUM-api-1")
def test_a_write_takes_item_and_context_and_gives_a_reference(made: Fabric) -> None:
    door = writer(made)
    one = memory()
    reference = door.write(one, CONTEXT)
    assert (reference.id, reference.signer, reference.written) == (one.id, "anna", True)
    assert reference.checksum == sha256(TEXT)
    assert reference.state_hash == bound(made).state_hash()
    stored = next(iter(door.items()))
    assert stored.provenance.signer == "anna"
    assert stored.embedding_ref == reference.fact_id
    # One store: the memory is a fact that search finds.
    found = bound(made).search_text("boiler inspection", 3)
    assert [hit.fact_id for hit in found] == [reference.fact_id]
    again = door.write(one, CONTEXT)
    assert (again.id, again.written) == (one.id, False)


@pytest.mark.requirement("SUM-privacy-2")
def test_the_entry_of_a_memory_with_a_summary_has_the_summarys_hash_too(made: Fabric) -> None:
    door = writer(made)
    for text in ("The pump was replaced.", "The pump of hall four was replaced."):
        door.write(memory(1, summary={"text": text, "dropped": [{"start": 5, "end": 20}]}), CONTEXT)
    door.write(memory(2, content=f"{TEXT} Again."), CONTEXT)
    signed = [event.data for event in events(made) if "signer" in event.data]
    assert [data.get("summary_hash") for data in signed] == [
        sha256("The pump was replaced."),
        sha256("The pump of hall four was replaced."),
        None,
    ]
    assert {data["signer"] for data in signed} == {"anna"}


@pytest.mark.requirement("SUM-privacy-2")
@pytest.mark.requirement("SUM-write-2")
def test_each_new_memory_has_an_audit_entry_with_signer_in_the_chain(made: Fabric) -> None:
    door = writer(made)
    for number in range(1, 4):
        door.write(memory(number, content=f"{TEXT} Visit {number}."), CONTEXT)
    log = events(made)
    signed = [event for event in log if "signer" in event.data]
    assert [event.event_type for event in signed] == [EventType.FACT_INGESTED] * 3
    assert {event.data["signer"] for event in signed} == {"anna"}
    by_fact = {event.data["facts"][0]: event.data for event in signed}
    for one in door.items():
        data = by_fact[one.fact_id]
        assert data["content_hash"] == sha256(one.text)
        assert data["document_hash"].startswith("sha256:")
    assert TEXT not in repr(log)
    # Append-only: a changed signer breaks the chain at its place.
    place = log.index(signed[1])
    forged = list(log)
    forged[place] = signed[1].model_copy(update={"data": {**signed[1].data, "signer": "eve"}})
    from crp_integrations.audit.window_seals import journal_key
    from crp_integrations.errors import ChainBroken
    from tests.fabric.lifecycle_fixtures import KEYS

    with pytest.raises(ChainBroken):
        verify_journal(forged, journal_key(KEYS, "acme"))


def test_what_is_there_is_never_written_over(made: Fabric) -> None:
    door = writer(made)
    door.write(memory(), CONTEXT)
    with pytest.raises(FactRejected, match="other content"):
        door.write(memory(content=TEXT + " No."), CONTEXT)
    assert [one.text for one in door.items()] == [TEXT]


def test_tenant_subject_and_signer_are_the_writers_own(made: Fabric) -> None:
    door = writer(made)
    other = fields(scope={"tenant": "other"}, security_label=["tenant:other"])
    with pytest.raises(AccessDenied, match="tenant"):
        door.write(item(other), CONTEXT)
    for subject in (Subject(tenant="acme", name="eve"), Subject(tenant="other", name="anna")):
        with pytest.raises(AccessDenied, match="bound to subject 'anna'"):
            door.write(memory(), PolicyContext(subject=subject))
    with pytest.raises(AccessDenied, match="no tenant"):
        door.write(memory(), PolicyContext(subject=Subject(tenant=" ")))
    forged = fields(provenance={"source_uri": "a", "signer": "eve"})
    with pytest.raises(AccessDenied, match="signed by another"):
        door.write(item(forged), CONTEXT)
    assert list(door.items()) == []


class NoExport:
    name = "no-export"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        allowed = "export:restricted" not in labels
        return Decision(allowed=allowed, guard=self.name, reason="restricted")


def test_the_guard_decides_about_an_items_labels(made: Fabric) -> None:
    door = MemoryWriter(made.bind(ANNA, NoExport()))
    labels = ["tenant:acme", "export:restricted"]
    with pytest.raises(AccessDenied, match="no-export"):
        door.write(memory(security_label=labels), CONTEXT)
    writer(made).write(memory(security_label=labels), CONTEXT)
    assert list(door.items()) == []
    assert door.as_of(NOON, CONTEXT) == ()


def test_a_correction_takes_over_and_both_stay_in_the_log(made: Fabric) -> None:
    door = writer(made)
    door.write(memory(1, valid_from=MARCH), CONTEXT)
    door.correct(memory(1).id, memory(2, content=TEXT + " Twice."), CONTEXT, since=JUNE)
    assert at(door, MARCH - timedelta(days=1)) == []
    assert at(door, MARCH) == ["1"]
    assert at(door, JUNE - timedelta(seconds=1)) == ["1"]
    assert at(door, JUNE) == ["2"]
    assert at(door, SEPTEMBER) == ["2"]
    # Selection sees the new one alone.
    ids = {hit.fact_id for hit in bound(made).search_text("boiler", 9)}
    assert ids == {memory(2).fact_id}
    assert bound(made).facts([memory(2).fact_id])[0].supersedes == memory(1).fact_id
    assert len(list(door.items())) == 2
    door.correct(memory(1).id, memory(2, content=TEXT + " Twice."), CONTEXT, since=JUNE)
    assert at(door, SEPTEMBER) == ["2"]


def test_a_retraction_ends_an_item_or_says_that_it_never_held(made: Fabric) -> None:
    door = writer(made)
    door.write(memory(1, valid_from=MARCH), CONTEXT)
    door.write(memory(2, valid_from=MARCH, content=TEXT + " Twice."), CONTEXT)
    door.retract(memory(1).id, CONTEXT, since=JUNE)
    door.retract(memory(2).id, CONTEXT)
    assert at(door, MARCH) == ["1"]
    assert at(door, JUNE) == []
    assert bound(made).search_text("boiler", 9) == []
    with pytest.raises(RequestError, match="holds from"):
        door.retract(memory(1).id, CONTEXT, since=MARCH - timedelta(days=1))
    with pytest.raises(RequestError, match="not stored"):
        door.retract(memory(9).id, CONTEXT)


def test_a_correction_that_was_stopped_half_way_answers_rightly_and_is_finished(
    made: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = writer(made)
    door.write(memory(1, valid_from=MARCH), CONTEXT)

    def stopped(*_: Any, **__: Any) -> Any:
        raise StoreBusy("killed")

    with monkeypatch.context() as patched:
        patched.setattr(type(bound(made)), "update", stopped)
        with pytest.raises(StoreBusy):
            door.correct(memory(1).id, memory(2, content=TEXT + " 2."), CONTEXT, since=JUNE)
    assert (at(door, MARCH), at(door, JUNE)) == (["1"], ["2"])
    door.correct(memory(1).id, memory(2, content=TEXT + " 2."), CONTEXT, since=JUNE)
    assert (at(door, MARCH), at(door, JUNE)) == (["1"], ["2"])
    assert {hit.fact_id for hit in bound(made).search_text("boiler", 9)} == {memory(2).fact_id}


def test_the_log_rebuilds_what_is_stored_and_names_what_nobody_signed(made: Fabric) -> None:
    door = writer(made)
    for number in (1, 2, 3):
        door.write(memory(number, content=f"{TEXT} Visit {number}."), CONTEXT)
    door.correct(memory(1).id, memory(4, content=TEXT + " Again."), CONTEXT, since=JUNE)
    stored = list(door.items())
    found = EXAMPLE.rebuild(stored, events(made))
    assert (sorted(one.id[-1] for one in found.items), found.unwitnessed) == (list("1234"), ())
    assert {version[0].signer for version in found.versions.values()} == {"anna"}
    stranger = memory(5, content=TEXT + " Unsigned.")
    altered = stored[0].changed(
        content=TEXT + " Altered.",
        provenance=stored[0].provenance.model_copy(update={"checksum": ""}),
    )
    doubtful = EXAMPLE.rebuild([altered, *stored[1:], stranger], events(made))
    assert doubtful.unwitnessed == tuple(sorted((altered.id, stranger.id)))
    # Written into an empty store from the log, everything is as it was.
    second = fabric()
    for one in sorted(found.items, key=lambda one: found.versions[one.id][0].seq):
        writer(second).write(one, CONTEXT)
    assert valid_at(writer(second).items(), SEPTEMBER) == valid_at(stored, SEPTEMBER)
    assert setting(second, "embedder") == setting(made, "embedder")


def test_plain_python_agents_have_an_emitter_for_each_type(made: Fabric) -> None:
    door = writer(made)
    kept: list[MemoryItem] = []
    emit = Emitter(
        Scope(tenant="acme", session="s1"), ("tenant:acme",), "session://s1", FixedClock(),
        CountingIds(), sink=kept.append,
    )  # fmt: skip
    emit.episodic(f"{TEXT} So the user said.", "transcript")
    recipe = {
        "tool": "search",
        "arguments": {"q": "the boiler in the hall and its next inspection in spring"},
    }
    emit.procedural(recipe, "tool-recipe")
    emit.semantic(f"{TEXT} So the manual says.", confidence=0.95, ttl="P30D")
    assert [one.type for one in kept] == ["episodic", "procedural", "semantic"]
    assert [one.decay_fn for one in kept] == ["half-life@1:P7D", "plateau@1:P180D", None]
    assert len({one.id for one in kept}) == 3
    sink = make_sink(door, CONTEXT)
    assert [sink(one).signer for one in kept] == ["anna"] * 3
    assert {one.type for one in door.items()} == {"episodic", "procedural", "semantic"}
    with pytest.raises(FactRejected, match="category"):
        emit.episodic("text", "playbook")


def test_a_correction_that_is_refused_writes_nothing(made: Fabric) -> None:
    door = writer(made)
    door.write(memory(1, valid_from=JUNE), CONTEXT)
    before = made.store, events(made)
    # The new item was stored before the end of the old one was refused.
    with pytest.raises(RequestError, match="which is after 2026-03-01"):
        door.correct(memory(1).id, memory(2, content=f"{TEXT} Again."), CONTEXT, since=MARCH)
    with pytest.raises(FactRejected, match="item: valid_to is before valid_from"):
        door.correct(
            memory(1).id,
            memory(2, content=f"{TEXT} Again.", valid_to=JUNE),
            CONTEXT,
            since=SEPTEMBER,
        )
    with pytest.raises(RequestError, match="cannot correct itself; give the correction an id"):
        door.correct(memory(1).id, memory(1), CONTEXT, since=SEPTEMBER)
    assert (made.store, events(made)) == before
    assert at(door, SEPTEMBER) == ["1"]


@pytest.mark.parametrize("odd", ["anna", None, ANNA], ids=type)
def test_a_context_is_given_as_one(made: Fabric, odd: Any) -> None:
    door, wanted = writer(made), f"context is of type {type(odd).__name__}; give a PolicyContext"
    calls: tuple[Callable[[], object], ...] = (
        lambda: door.write(memory(), odd),
        lambda: door.correct(memory().id, memory(2), odd, since=JUNE),
        lambda: door.retract(memory().id, odd),
        lambda: door.as_of(JUNE, odd),
    )
    for call in calls:
        with pytest.raises(RequestError, match=wanted):
            call()


def test_items_ids_moments_and_the_namespace_are_given_as_such(made: Fabric) -> None:
    door = writer(made)
    odd: Any
    door.write(memory(1), CONTEXT)
    for odd in (fields(), None, "an item"):
        with pytest.raises(RequestError, match=r"item is of type .*; give a MemoryItem"):
            door.write(odd, CONTEXT)
    for odd in (None, memory(1)):
        with pytest.raises(RequestError, match=r"id of a memory item is of type .*; give a text"):
            door.retract(odd, CONTEXT)
    for odd in ("2026-06-01", None, JUNE.date(), 5):
        with pytest.raises(RequestError, match=r"moment is of type .*; give a datetime"):
            door.as_of(odd, CONTEXT)
    naive = JUNE.replace(tzinfo=None)
    with pytest.raises(RequestError, match="moment 2026-06-01T00:00:00 has no time zone"):
        door.as_of(naive, CONTEXT)
    for call in (
        lambda: door.retract(memory(1).id, CONTEXT, since=naive),
        lambda: door.correct(memory(1).id, memory(2), CONTEXT, since=naive),
    ):
        with pytest.raises(RequestError, match="since 2026-06-01T00:00:00 has no time zone"):
            call()
    for odd in (None, "kb", made):
        with pytest.raises(RequestError, match=r"namespace is of type .*; give a Namespace"):
            MemoryWriter(odd)
    text: Any = "always"
    with pytest.raises(RequestError, match=r"check is of type str; give a function"):
        MemoryWriter(bound(made), check=text)

    async def later(_: MemoryItem) -> Any: ...

    with pytest.raises(RequestError, match="check is a coroutine function"):
        MemoryWriter(bound(made), check=later)


@pytest.mark.parametrize("result", [None, True, False, {"may_run": True}])
def test_a_check_that_returns_no_report_writes_nothing(made: Fabric, result: Any) -> None:
    door = MemoryWriter(bound(made), check=lambda _: result)
    with pytest.raises(RequestError, match=f"result is of type {type(result).__name__}; give an"):
        door.write(memory(1), CONTEXT)
    assert list(door.items()) == []


def test_an_item_that_the_conversation_does_not_bear_out_is_not_written(made: Fabric) -> None:
    told = [{"role": "user", "content": f"Remember this: {TEXT}"}]
    checked: list[str] = []

    def check(new: MemoryItem) -> ActionReport:
        checked.append(new.id)
        call = {"name": "save_memory", "arguments": {"content": new.content}}
        rules = {"save_memory": {"content": "exact:user"}}
        tool = {"name": "save_memory", "parameters": {"properties": {"content": {}}}}
        return check_call(call, told, [tool], judge=False, rules=rules)

    door = MemoryWriter(bound(made), check=check)
    for _ in range(2):
        door.write(memory(1), CONTEXT)
    invented = TEXT.replace("four", "five")
    refused = "not written: save_memory must not run; ./content. UNGROUNDED$"
    with pytest.raises(FactRejected, match=refused):
        make_sink(door, CONTEXT)(memory(2, content=invented))
    with pytest.raises(FactRejected, match=refused):
        door.correct(memory(1).id, memory(3, content=invented), CONTEXT, since=JUNE)
    assert [item.text for item in door.items()] == [TEXT]
    # What is stored already is not checked again.
    assert checked == [memory(number).id for number in (1, 2, 3)]
    quoting = ActionReport(tool="save_memory", arguments=(), may_run=False, missing=TEXT)
    with pytest.raises(FactRejected) as caught:
        MemoryWriter(bound(made), check=lambda _: quoting).write(memory(4), CONTEXT)
    assert TEXT not in str(caught.value)
    call = {"name": "save_memory", "arguments": {"content": TEXT}}
    unread = MemoryWriter(bound(made), check=lambda _: check_call(call, told, [], judge=False))
    with pytest.raises(FactRejected, match="was not read"):
        unread.write(memory(4, content=f"{TEXT} It runs."), CONTEXT)

"""What other processes write to a store, and what must hold of it at any moment.

A batch is one transaction over facts, vectors, words, a setting and the journal, and its event
says what was done; a window is closed as the relay closes it. So the journal tells what there must
be, and each facet shows whether the others were committed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from crp_integrations.audit import window_seals
from crp_integrations.audit.drafts import EventDraft
from crp_integrations.audit.journal import append_events, verify_journal
from crp_integrations.audit.trail import closing_data, verify_trail
from crp_integrations.errors import StoreBusy, StoreError
from crp_integrations.fabric.ports import Store, Transaction
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.seals import iso, sha256, sha256_hex
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import Session, WindowNode
from crp_integrations.session.settings import WindowGraphSettings
from crp_integrations.testing.fixtures import KEY, NAMESPACE, NOON, fact, prior, report, rows
from crp_integrations.vocabulary import EventType, FactStatus, Pattern
from tests.session import graph_faults

# Opens the place of a store in any process.
Opener = Callable[[], Store]
# `add` or `remove`, and the name of a batch.
Deed = tuple[str, str]
BATCH = 5
PAUSE_SECONDS = 0.02
# Batches of a writer that stay; one of them is removed when there are more.
LIVE = 6
SCRUB_EVERY = 9


def batch(name: str) -> list[Fact]:
    """The facts of one batch."""
    return [fact(f"batch {name} part {part}", source_id=name) for part in range(BATCH)]


def deeds(transaction: Transaction) -> list[Deed]:
    """What was done so far, as the journal says."""
    told = [str(event.data["source"]).partition(":") for event in transaction.journal.events()]
    return [(what, name) for what, _, name in told]


def apply_deed(store: Store, deed: Deed) -> None:
    """Add or remove a batch, again and again while the store is busy."""
    again = False
    while True:
        try:
            with store.begin(NAMESPACE) as transaction:
                # A commit whose answer was lost may have been carried out.
                if not (again and deed in deeds(transaction)):
                    record_deed(transaction, *deed)
            return
        except StoreBusy:
            again = True
            time.sleep(PAUSE_SECONDS)


def record_deed(transaction: Transaction, what: str, name: str) -> None:
    """Add or remove a batch, with the event that says so."""
    made = batch(name)
    facts = transaction.facts
    if what == "add":
        facts.add(made, rows(made))
        facts.set_status([made[0].fact_id], FactStatus.STALE, NOON)
    else:
        facts.remove([one.fact_id for one in made])
    facts.set_setting("count", str(int(facts.setting("count") or 0) + 1))
    draft = EventDraft(EventType.FACT_INGESTED, {"source": f"{what}:{name}"})
    append_events(transaction.journal, KEY, [draft], "2026-05-25T10:00:00Z")


def check_deeds(transaction: Transaction) -> list[Deed]:
    """What was done so far; every facet holds what that leaves, and nothing else.

    Raises:
        AssertionError: a batch is there in part, or one facet knows of what another does not.
    """
    facts = transaction.facts
    done = deeds(transaction)
    assert verify_journal(transaction.journal.events(), KEY) == len(done) == len({*done})
    assert int(facts.setting("count") or 0) == len(done)
    live: set[str] = set()
    for what, name in done:
        # Nothing is removed that was not added before.
        assert (what == "add") is (name not in live)
        live ^= {name}
    wanted = {one.fact_id: one for name in live for one in batch(name)}
    ids = [id_ for id_, _ in facts.retrievable()]
    assert ids == sorted(wanted) == facts.find(Where(statuses=tuple(FactStatus)))
    found = facts.get(ids)
    assert [one.content for one in found] == [wanted[id_].content for id_ in ids]
    assert facts.vectors(ids).tolist() == rows(found).tolist()
    hits = facts.search_text(["batch"], len(ids) + 1)
    assert sorted(id_ for id_, _ in hits) == ids
    stale = {one.fact_id for one in found if one.status is FactStatus.STALE}
    assert stale == {batch(name)[0].fact_id for name in live}
    return done


def check_batches(store: Store) -> set[Deed]:
    """What was done to a store, which is sound and holds whole batches alone."""
    with store.begin(NAMESPACE, write=False) as transaction:
        done = check_deeds(transaction)
    assert store.check(NAMESPACE) == []
    return {*done}


# --- what other processes do ---------------------------------------------------------------


def write_until_killed(wire: Connection, opener: Opener, run: int) -> None:
    """Add and remove batches; tell of each once it is committed."""
    store = opener()
    chance = random.Random(run)
    live: list[str] = []
    number = 0
    while True:
        if len(live) >= LIVE:
            deed = "remove", live.pop(chance.randrange(len(live)))
        else:
            deed = "add", f"{run}-{number}"
            live.append(deed[1])
        apply_deed(store, deed)
        wire.send(deed)
        number += 1
        if number % SCRUB_EVERY == 0:
            store.scrub(NAMESPACE)


def write_batches(wire: Connection, opener: Opener, writer: int, batches: int) -> None:
    """Add batches beside other writers, remove every third, and say when that is done."""
    store = opener()
    wire.send("ready")
    wire.recv()
    for number in range(batches):
        apply_deed(store, ("add", f"{writer}-{number}"))
        if number % 3 == 2:
            apply_deed(store, ("remove", f"{writer}-{number - 1}"))
    store.close()
    wire.send("done")


def read_until_stopped(wire: Connection, opener: Opener) -> None:
    """Look again and again; say how often, and how much was seen at last."""
    store = opener()
    wire.send("ready")
    wire.recv()
    looks, before = 0, 0
    while not wire.poll():
        with store.begin(NAMESPACE, write=False) as transaction:
            count = len(check_deeds(transaction))
        # What was once seen is not taken back.
        assert count >= before
        looks, before = looks + 1, count
    store.close()
    wire.send((looks, before))


SESSIONS = tuple(f"crp_sess_{number:016}" for number in range(24))
# What a window takes from the budget: every one shows in the sum.
COST = 0.0001
# Siblings of a fan-out.
FAN = 3


def id_of(session_id: str, name: str) -> str:
    """The id of a session's window by its name."""
    return "crp_win_" + sha256_hex(f"{session_id} {name}")[:16]


def fact_of(window_id: str) -> Fact:
    """A fact that is added with a window, so that each shows whether the other was committed."""
    return fact(f"window {window_id} was closed with this", source_id=window_id)


def close_window(transaction: Transaction, session_id: str, name: str, *, fan: bool) -> str:
    """Seal a window behind the session's last ones, charge it, and keep what it said.

    Args:
        fan: whether it is one of a fan-out: a sibling of the last ones, while there is room.
    """
    sessions, journal = sessions_of(transaction), transaction.journal
    kept = sessions.session(session_id)
    session = kept or Session(session_id=session_id, created_at=iso(NOON), modified_at=iso(NOON))
    nodes = sessions.windows(session_id)
    last = [node for node in nodes if node.window_number == nodes[-1].window_number]
    if fan and last and last[0].pattern is Pattern.FAN_OUT and len(last) < FAN:
        number, pattern = last[0].window_number, Pattern.FAN_OUT
        parents = [node for node in nodes if node.window_id in last[0].parents]
    else:
        number = last[0].window_number + 1 if last else 1
        pattern = Pattern.FAN_IN if len(last) > 1 else Pattern.LINEAR
        if fan and len(last) == 1:
            pattern = Pattern.FAN_OUT
        parents = last
    seal = window_seals.seal_window(
        journal,
        KEY,
        session_id=session_id,
        window_id=id_of(session_id, name),
        window_number=number,
        timestamp=iso(NOON),
        response_hash=sha256(name),
        report_hash=sha256(f"report {name}"),
        outcome="released",
        parents=[node.hmac for node in parents],
    )
    left = round(session.safety_budget - COST, 4)
    sessions.keep(session.changed(safety_budget=left, tool_calls=session.tool_calls + 1))
    made = fact_of(seal.window_id)
    transaction.facts.add([made], rows([made]))
    sessions.add_window(
        WindowNode(
            window_id=seal.window_id,
            session_id=session_id,
            window_number=number,
            parents=tuple(sorted(node.window_id for node in parents)),
            pattern=pattern,
            continuation_id="crp_cont_" + sha256_hex(seal.window_id)[:16],
            safety_budget=left,
            hmac=seal.hmac,
            timestamp=seal.timestamp,
        ),
        prior=prior(number, made.fact_id, answer="said at length " * 300),
        report=report(made.fact_id),
    )
    draft = EventDraft(
        EventType.DISPATCH_COMPLETED,
        closing_data(seal),
        session_id=session_id,
        window_id=seal.window_id,
    )
    append_events(journal, KEY, [draft], iso(NOON))
    return seal.window_id


def close_until_killed(wire: Connection, opener: Opener, run: int) -> None:
    """Tell the id of every window once it is committed."""
    store = opener()
    chance = random.Random(run)
    number = 0
    while True:
        with store.begin(NAMESPACE) as transaction:
            session_id = chance.choice(SESSIONS)
            fan = chance.random() < 0.5
            closed = close_window(transaction, session_id, f"{run}-{number}", fan=fan)
        wire.send(closed)
        number += 1


def close_windows(wire: Connection, opener: Opener, writer: int, count: int) -> None:
    """Close windows of one session beside another process that does the same."""
    store = opener()
    wire.send("ready")
    wire.recv()
    number = 0
    while number < count:
        try:
            with store.begin(NAMESPACE) as transaction:
                close_window(transaction, SESSIONS[0], f"{writer}-{number}", fan=number % 3 > 0)
            number += 1
        except StoreBusy:
            time.sleep(PAUSE_SECONDS)
    store.close()
    wire.send("done")


def keep_stale(wire: Connection, opener: Opener) -> None:
    """Read a session, let the other process charge it, and keep what was read."""
    store = opener()
    with store.begin(NAMESPACE, write=False) as transaction:
        read = sessions_of(transaction).session(SESSIONS[0])
    assert read is not None
    wire.send("read")
    wire.recv()
    try:
        with store.begin(NAMESPACE) as transaction:
            sessions_of(transaction).keep(read.changed(agent_id="stale"))
        wire.send("kept")
    except StoreError as error:
        wire.send(str(error))


def check_windows(store: Store) -> set[str]:
    """Whole windows alone: seal, event, node, content, charge and fact each where the others are.

    Returns:
        Ids of all windows.
    """
    with store.begin(NAMESPACE, write=False) as transaction:
        journal, sessions = transaction.journal, sessions_of(transaction)
        trail = verify_trail(
            journal.events(),
            journal.all_seals(),
            journal_key=KEY,
            session_key=lambda session_id: KEY,
        )
        found: set[str] = set()
        for session_id in sessions.session_ids():
            session, nodes = sessions.session(session_id), sessions.windows(session_id)
            seals = journal.seals(session_id)
            assert session is not None
            assert [(n.window_id, n.window_number, n.hmac) for n in nodes] == [
                (s.window_id, s.window_number, s.hmac) for s in seals
            ]
            settings = WindowGraphSettings(nodes=len(nodes), fan_out=FAN)
            assert not graph_faults.find_faults(nodes, settings)
            assert graph_faults.find_unchained(nodes, seals) == []
            assert session.tool_calls == len(nodes)
            assert session.safety_budget == round(1.0 - COST * len(nodes), 4)
            assert sorted(n.safety_budget for n in nodes) == sorted(
                round(1.0 - COST * place, 4) for place in range(1, len(nodes) + 1)
            )
            ids = [node.window_id for node in nodes]
            kept = sessions.priors(ids)
            for node in nodes:
                (seen,) = kept[node.window_id].facts_seen
                assert seen.fact_id == fact_of(node.window_id).fact_id
                assert sessions.report(node.window_id) == report(seen.fact_id)
                assert sessions.continued(node.continuation_id) == node
            found.update(ids)
        assert trail.windows == len(found)
        stored = {id_ for id_, _ in transaction.facts.retrievable()}
        assert stored == {fact_of(id_).fact_id for id_ in found}
        return found

"""Receipts by default: each window leaves one, signed, in a log, and without what is erased.

What a window keeps of itself is what its records say, though nothing is written down twice.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.dpe.stages.report import report_hash
from crp_integrations.errors import ModelError, RequestError, StoreError
from crp_integrations.fabric.records import Fact, Where
from crp_integrations.guard.decisions import Subject
from crp_integrations.messages import Reply
from crp_integrations.receipt.ledger import check_consistency
from crp_integrations.receipt.records import Receipt, read, write
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.signed_statement import keyid_of
from crp_integrations.receipt.verify import verify
from crp_integrations.relay.records import Answer
from crp_integrations.session.ports import sessions_of
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.sqlite import SqliteStore
from tests.doubles import NOON, HashEmbedder, ScriptedModel
from tests.postgres import postgres_address  # noqa: F401 - a fixture
from tests.relay.conftest import FACTS, Opener

QUESTION = "How many megawatts does the Meridian reactor deliver, and who operates it?"
SESSION = "crp_sess_" + "w4lrus" * 3
SAID = "It delivers 412 megawatts and is operated by Northfield Energy."
HELD = "The Meridian walruszq reactor delivers 4711 megawatts and is operated by walruses."


def opened(open_relay: Opener, **options: Any) -> Relay:
    relay = open_relay(**{"models": ScriptedModel(SAID), **options})
    if not relay.fabric.sources():
        relay.fabric.add(list(FACTS))
    return relay


def receipt_of(relay: Relay, answer: Answer) -> Receipt:
    found = relay.receipt(answer.receipt_id)
    assert found is not None
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "kb"


def test_an_answer_names_its_receipt(open_relay: Opener) -> None:
    relay = opened(open_relay)
    answer = relay.ask(QUESTION)
    found = receipt_of(relay, answer)
    assert found.receipt_id == answer.receipt_id
    assert relay.receipt(answer.window_id) == found
    assert (found.chain.window_id, found.chain.session_id) == (answer.window_id, answer.session_id)
    assert (found.chain.hmac, found.chain.outcome) == (answer.report.hmac, "released")
    assert found.text(found.number("request")) == QUESTION
    assert found.text(found.number("answer")) == SAID
    # Made again from the facts' leaves, and the very text that the model had.
    assert found.text(found.number("context")) == answer.envelope.text
    checked = relay.receipts().verify(answer.receipt_id)
    assert (checked.ok, checked.pinned, checked.facts_left_out) == (True, True, 0)
    assert all(step.ok for step in checked.steps)
    assert relay.receipt("crp_rcpt_none") is None
    assert relay.receipt("crp_win_none") is None
    with pytest.raises(RequestError, match="there is no receipt"):
        relay.receipts().verify("crp_rcpt_none")


def test_what_is_signed_holds_no_text(open_relay: Opener) -> None:
    """So nothing that is left out of a copy stands in another place of it."""
    relay = opened(open_relay)
    first = relay.ask(QUESTION, system_prompt="Answer like a walruszq.")
    second = relay.ask("Does Northfield have revenue?", session_id=first.session_id)
    words = {
        word.lower()
        for text in (*FACTS, QUESTION, SAID, "Answer like a walruszq.")
        for word in re.findall(r"[A-Za-z]{5,}|\$4\.2", text)
    }
    # Words of the format's own, which the facts happen to use.
    other = open_relay(models=ScriptedModel("Snow falls."))
    other.fabric.add(["Snow falls on the hills of the north, again and again, all night long."])
    own = words_of(receipt_of(other, other.ask("Where does snow fall?")))
    assert len(words - own) > 25
    for answer in (first, second):
        assert sorted((words - own) & words_of(receipt_of(relay, answer))) == []


def words_of(receipt: Receipt) -> set[str]:
    """Words in what was signed."""
    return set(re.findall(r"[a-z]{5,}|\$4\.2", receipt.signed.payload.decode().lower()))


@pytest.mark.parametrize("how", ["ask", "aask", "stream", "live", "astream", "batch", "turn"])
def test_every_way_to_ask_leaves_a_receipt(open_relay: Opener, how: str) -> None:
    relay = opened(open_relay)
    match how:
        case "ask":
            answer = relay.ask(QUESTION)
        case "aask":
            answer = asyncio.run(relay.aask(QUESTION))
        case "stream" | "live":
            *_, last = relay.stream(QUESTION, live=how == "live")
            assert isinstance(last, Answer)
            answer = last
        case "astream":

            async def heard() -> Answer:
                parts = [part async for part in relay.astream(QUESTION)]
                assert isinstance(parts[-1], Answer)
                return parts[-1]

            answer = asyncio.run(heard())
        case "batch":
            one, other = relay.batch([QUESTION, QUESTION]).answers
            assert one is not None and other is not None
            assert one.receipt_id != other.receipt_id
            answer = other
        case _:
            turn = relay.turn(QUESTION)
            turn.begin()
            turn.receive(Reply(text=SAID))
            (receipt_id,) = relay.receipts().ids()
            assert relay.receipts().verify(receipt_id).ok
            return
    assert receipt_of(relay, answer).text(receipt_of(relay, answer).number("answer")) == SAID
    assert relay.receipts().verify(answer.receipt_id).ok


def test_one_setting_turns_them_off(open_relay: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = opened(open_relay, receipts=False)
    answer = relay.ask(QUESTION)
    assert (answer.receipt_id, relay.receipts().ids()) == ("", [])
    assert relay.receipts().head().head.size == 0
    with_them = opened(open_relay)
    assert with_them.settings.digest == relay.settings.digest
    monkeypatch.setenv("CRP_RECEIPTS", "false")
    assert opened(open_relay).ask(QUESTION).receipt_id == ""


def test_a_window_that_failed_leaves_one_too(open_relay: Opener) -> None:
    relay = opened(open_relay, models=ScriptedModel(ModelError("down")))
    with pytest.raises(ModelError):
        relay.ask(QUESTION)
    (receipt_id,) = relay.receipts().ids()
    found = relay.receipt(receipt_id)
    assert found is not None
    assert found.chain.outcome == "failed"
    assert found.text(found.number("answer")) == ""
    assert relay.receipts().verify(receipt_id).ok


def test_a_session_is_a_chain_of_receipts(open_relay: Opener) -> None:
    relay = opened(open_relay)
    first = relay.ask(QUESTION)
    second = relay.ask("And who operates it?", session_id=first.session_id)
    ids = relay.receipts().ids(first.session_id)
    assert ids == [first.receipt_id, second.receipt_id]
    assert relay.receipts().ids("another") == []
    before, after = (receipt_of(relay, one) for one in (first, second))
    assert after.chain.parents == (before.chain.hmac,)
    assert verify(write(after), parents=[before], key=relay.receipts().key).ok
    assert not verify(write(after), parents=[after]).ok
    other = relay.ask(QUESTION)
    assert not verify(write(after), parents=[receipt_of(relay, other)]).ok


def test_the_log_is_proved_after_opening_again(open_relay: Opener, place: Path) -> None:
    relay = opened(open_relay, store=SqliteStore(place))
    answers = [relay.ask(f"{QUESTION} Question {n}.") for n in range(3)]
    old = relay.receipts().head()
    relay.close()
    again = opened(open_relay, store=SqliteStore(place))
    receipts = again.receipts()
    answers += [again.ask(f"{QUESTION} Question {n}.") for n in range(3, 6)]
    new = receipts.head()
    assert (old.head.size, new.head.size) == (3, 6)
    check_consistency(receipts.consistency(3), old.head, new.head)
    for answer in answers:
        file = write(receipt_of(again, answer))
        proof = receipts.inclusion(answer.receipt_id)
        found = verify(file, key=receipts.key, inclusion=proof, head=new)
        assert (found.word, found.steps[5].ok) == ("holds", True)
    assert verify(
        write(receipt_of(again, answers[0])),
        inclusion=receipts.inclusion(answers[0].receipt_id, 3),
        head=old,
    ).ok
    for wrong in ({"receipt_id": "x"}, {"receipt_id": answers[4].receipt_id, "size": 3}):
        with pytest.raises(RequestError, match="log entries"):
            receipts.inclusion(**wrong)
    with pytest.raises(RequestError, match="entries"):
        receipts.consistency(2, 7)
    again.close()


def test_a_call_writes_as_many_rows_over_any_number_of_facts(
    open_relay: Opener, place: Path
) -> None:
    relay = opened(open_relay, store=SqliteStore(place))
    relay.ask(QUESTION)
    more = [f"The Meridian reactor in block {n} delivers {n} megawatts." for n in range(60)]
    relay.fabric.add(more)
    (database,) = place.rglob("*.sqlite")
    tables = [
        *("receipts", "receipt_contents", "receipt_facts"),
        *("windows", "window_contents", "window_facts"),
    ]
    connection = sqlite3.connect(database)
    rows = []
    for _ in range(2):
        counts = (connection.execute(f"SELECT count(*) FROM {name}") for name in tables)
        rows.append([cursor.fetchone()[0] for cursor in counts])
        relay.ask(QUESTION)
    connection.close()
    added = {after - before for before, after in zip(*rows, strict=True)}
    assert len(added) == 1 and added != {0}


def test_an_erased_source_is_a_tombstone(open_relay: Opener, place: Path, tmp_path: Path) -> None:
    """Its texts are off the disk, receipt and log verify, and what is left is shown."""
    relay = opened(open_relay, store=SqliteStore(place))
    secret = "The walruszq of Quimperley weighs 4711 kilograms and operates the reactor."
    (tmp_path / "secret.md").write_text(secret)
    relay.ingest(tmp_path / "secret.md", prefix="kb/")
    answer = relay.ask(QUESTION)
    elsewhere = relay.ask("Which revenue did Northfield Energy report?")
    (source,) = [one for one in relay.fabric.sources() if one.uri.endswith("secret.md")]
    head = relay.receipts().head()
    before = receipt_of(relay, answer)
    assert any(
        one is not None and "walruszq" in one for one in map(before.text, range(len(before.leaves)))
    )
    relay.fabric.erase(source.source_id)
    after = receipt_of(relay, answer)
    assert after.signed == before.signed
    found = relay.receipts().verify(answer.receipt_id)
    assert found.ok and found.facts_left_out == 1 and found.erased >= 3
    assert "walruszq" not in write(after).decode()
    assert all(FACTS[n] in write(after).decode() for n in (0, 1))
    # Shared on, with another fact left out.
    known = next(leaf.fact_id for n, leaf in enumerate(after.leaves) if after.text(n) == FACTS[0])
    copy = redact(after, facts=[known])
    checked = verify(write(copy), key=relay.receipts().key)
    assert (checked.ok, checked.facts_left_out) == (True, 2)
    assert relay.receipts().verify(elsewhere.receipt_id).ok
    now = relay.receipts().head()
    check_consistency(relay.receipts().consistency(2, 2), head.head, now.head)
    relay.fabric.maintain()
    relay.close()
    whole = b"".join(one.read_bytes() for one in sorted(place.rglob("*")) if one.is_file())
    assert b"walruszq" not in whole.lower()


@pytest.mark.parametrize("way", ["erased at once", "repaired first", "fact gone", "damaged"])
@pytest.mark.parametrize("database", [False, True])
def test_a_receipt_whose_facts_are_not_named_is_found_and_erased(
    open_relay: Opener, request: pytest.FixtureRequest, tmp_path: Path, database: bool, way: str
) -> None:
    address = request.getfixturevalue("postgres_address") if database else ""
    relay = opened(open_relay, store=PostgresStore(address) if database else SqliteStore(tmp_path))
    secret = "The walruszq of Quimperley weighs 4711 kilograms and operates the reactor."
    relay.fabric.add([Fact(content=secret, source_id="secret")])
    answer = relay.ask(QUESTION)
    assert "walruszq" in write(receipt_of(relay, answer)).decode()
    assert not relay.fabric.doctor().findings
    texts = ["DELETE FROM receipt_facts"]
    if way == "damaged":
        texts.append("UPDATE receipt_contents SET texts = '[\"walruszq\"]'")
    (fact_id,) = relay.fabric.find(Where(sources=("secret",)))
    if way == "fact gone":
        texts.append("UPDATE facts SET fact_id = 'other' WHERE source_id = 'secret'")
    with relay.fabric.begin(write=True) as transaction:
        for statement in texts:
            transaction.facts._connection.execute(statement)  # type: ignore[attr-defined]
    problems = [finding.problem for finding in relay.fabric.doctor().findings]
    missing = "name the facts of 1 receipts are missing"
    assert any(missing in problem for problem in problems) is (way != "damaged")
    if way == "damaged":
        # Another finding, since maintenance cannot name what it cannot read; it is not due for it.
        steps: list[str] = []
        relay.fabric.maintain(progress=lambda name, number, count: steps.append(name))
        assert "names" not in steps
        assert "does not read back" in " ".join(problems)
    if way == "repaired first":
        relay.fabric.maintain()
        assert not relay.fabric.doctor().findings
    relay.fabric.erase("secret")
    left = receipt_of(relay, answer)
    assert fact_id in {leaf.fact_id for leaf in left.leaves}
    assert "walruszq" not in write(left).decode()
    assert (FACTS[0] in write(left).decode()) == (way != "damaged")


@pytest.mark.parametrize("how", ["no-store", "held"])
def test_what_may_not_be_on_disk_is_in_memory_alone(
    open_relay: Opener, place: Path, how: str
) -> None:
    relay = opened(open_relay, store=SqliteStore(place))
    session = SESSION
    if how == "held":
        relay.add([HELD], session_id=session, cache="no-store")
        answer = relay.ask(QUESTION, session_id=session)
    else:
        answer = relay.ask("How heavy is a walruszq?", session_id=session, cache="no-store")
    found = receipt_of(relay, answer)
    assert "walruszq" in write(found).decode()
    assert relay.receipt(answer.window_id) == found
    assert relay.receipts().ids(session) == [answer.receipt_id]
    assert relay.receipts().head().head.size == 0
    checked = relay.receipts().verify(answer.receipt_id)
    assert checked.ok
    assert "no proof that it is in a log" in checked.steps[5].reason
    relay.end_session(session)
    assert relay.receipt(answer.receipt_id) is None
    relay.close()
    whole = b"".join(one.read_bytes() for one in sorted(place.rglob("*")) if one.is_file())
    assert b"walruszq" not in whole.lower()
    assert answer.receipt_id.encode() not in whole


def test_a_candidate_that_is_held_keeps_the_receipt_off_the_disk(
    open_relay: Opener, place: Path
) -> None:
    """Though it was not shown: the receipt names every candidate."""
    alone = {"continue_incomplete": False}
    relay = opened(open_relay, store=SqliteStore(place), dispatch=alone)
    session = SESSION
    relay.add(
        ["A walruszq sleeps in the shade of tulips and roses every spring."],
        session_id=session,
        cache="no-store",
    )
    answer = relay.ask(QUESTION, session_id=session, k=1)
    assert len(answer.envelope.facts) == 1
    assert "walruszq" not in answer.envelope.text
    assert "walruszq" in write(receipt_of(relay, answer)).decode()
    relay.close()
    whole = b"".join(one.read_bytes() for one in sorted(place.rglob("*")) if one.is_file())
    assert b"walruszq" not in whole.lower()


def test_texts_of_a_held_fact_that_was_forgotten_are_not_shown(open_relay: Opener) -> None:
    relay = opened(open_relay)
    session = SESSION
    relay.add([HELD], session_id=session, cache="no-store")
    answer = relay.ask(QUESTION, session_id=session)
    # The session's facts alone go, as when they were held for too long.
    relay.fabric.end_session(session)
    found = receipt_of(relay, answer)
    assert "walruszq" not in write(found).decode()
    assert verify(write(found)).facts_left_out == 1


def test_a_tenant_reads_its_own_receipts_alone(open_relay: Opener, place: Path) -> None:
    store = SqliteStore(place)
    one = opened(open_relay, store=store, subject=Subject(tenant="a", name="u"))
    other = opened(open_relay, store=store, subject=Subject(tenant="b", name="u"))
    mine = one.ask(QUESTION, session_id=SESSION)
    theirs = other.ask(QUESTION, session_id=SESSION)
    assert mine.receipt_id != theirs.receipt_id
    assert other.receipt(mine.receipt_id) is None
    assert one.receipts().ids(SESSION) == [mine.receipt_id]
    assert one.receipts().key != other.receipts().key
    heads = one.receipts().head().head, other.receipts().head().head
    assert heads[0].log != heads[1].log
    assert not verify(write(receipt_of(one, mine)), key=other.receipts().key).ok
    store.close()


def test_a_rotated_key_verifies_what_it_signed(open_relay: Opener, place: Path) -> None:
    keys = [bytes([n]) * 32 for n in (1, 2)]
    ring = FixedKeyRing(keys[0])
    relay = opened(open_relay, store=SqliteStore(place), keyring=ring, key=None)
    old = relay.ask(QUESTION)
    relay.close()
    later = FixedKeyRing(keys[1], retired=keys[:1])
    relay = opened(open_relay, store=SqliteStore(place), keyring=later, key=None)
    new = relay.ask(QUESTION)
    keyids = [keyid_of(one) for one in relay.receipts().keys]
    assert [receipt_of(relay, one).keyid for one in (old, new)] == keyids
    assert all(relay.receipts().verify(one.receipt_id).ok for one in (old, new))
    relay.close()


def test_an_answer_in_windows_has_a_receipt_for_each(open_relay: Opener) -> None:
    relay = opened(open_relay)
    needs = ["the reactor's power", "the revenue in 2023"]
    answer = relay.ask(QUESTION, sub_queries=needs, strategy="fan-out")
    ids = relay.receipts().ids(answer.session_id)
    assert len(ids) >= 3
    assert answer.receipt_id in ids
    assert all(relay.receipts().verify(one).ok for one in ids)


def test_a_damaged_receipt_is_found(open_relay: Opener, place: Path) -> None:
    relay = opened(open_relay, store=SqliteStore(place))
    answer = relay.ask(QUESTION)
    file = write(receipt_of(relay, answer))
    assert read(file).receipt_id == answer.receipt_id
    relay.close()
    (database,) = place.rglob("*.sqlite")
    with sqlite3.connect(database) as connection:
        for table, verb in (
            ("receipts", "UPDATE receipts SET key = x'00'"),
            ("receipt_log", "DELETE FROM receipt_log"),
        ):
            with pytest.raises(sqlite3.IntegrityError, match=f"{table} are never changed"):
                connection.execute(verb)
        connection.execute("UPDATE receipt_contents SET texts = replace(texts, '412', '413')")
    connection.close()
    store = SqliteStore(place)
    relay = opened(open_relay, store=store)
    found = relay.receipts().verify(answer.receipt_id)
    assert not found.ok
    assert found.place.startswith("texts[")
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE receipt_contents SET texts = '[]'")
    connection.close()
    with pytest.raises(StoreError, match="does not read back"):
        relay.receipt(answer.receipt_id)
    (tenant,) = store.namespaces()
    assert "receipt 0 of the log does not read back: ValueError" in store.check(tenant)
    # An erasure is not held up by it.
    for source in list(relay.fabric.sources()):
        relay.fabric.erase(source.source_id)
    relay.close()


WRITTEN_FACTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "Ada Quill (ada.quill@example.org) signs for every change of its fuel.",
    "Its cooling tower is 162 metres high — the Größte of the valley.",
]
WRITTEN_ANSWER = "It was commissioned on 4 March 2019 and delivers 999 megawatts."


@pytest.fixture(params=["memory", "sqlite"])
def relay(request: pytest.FixtureRequest, tmp_path: Path) -> Relay:
    relay = Relay.open(
        None if request.param == "memory" else tmp_path,
        embedder=HashEmbedder(),
        clock=NOON,
        models=ScriptedModel(WRITTEN_ANSWER),
    )
    relay.fabric.add(WRITTEN_FACTS)
    return relay


def test_the_report_that_is_kept_is_the_one_that_was_hashed(relay: Relay) -> None:
    answer = relay.ask("What does the Meridian reactor deliver?")
    with relay.fabric.begin(write=False) as transaction:
        kept = sessions_of(transaction).report(answer.window_id)
    assert kept == answer.report.model_dump_json()
    assert report_hash(answer.report) == answer.report.report_hash

"""Cache directives of a question: what is read, what is written, and what is refused.

An envelope carries its ETag and the state hash that says whether it is still fresh.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.errors import RequestError
from crp_integrations.headers.codec import parse_request
from crp_integrations.headers.records import CacheDirectives
from crp_integrations.messages import ModelCall
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import EventType
from tests.doubles import NOON, FixedClock, HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS, Opener

MINE, YOURS = "crp_sess_7f3a9bc2d4e1f083", "crp_sess_00000000000000ff"
QUESTION = "When was the Meridian reactor commissioned?"
SECRET = "The Meridian reactor was visited by inspector Ada Quill on 9 May 2021."
# What may grow under no-store: the proof that a window was, without any text.
PROOF = ("events", "seals")


class CountingEmbedder(HashEmbedder):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        self.seen += texts
        return super().embed_passages(texts)


def dump(root: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table of every namespace, but for the proof."""
    found = {}
    files = sorted(root.rglob("*.db")) + sorted(root.rglob("*.sqlite*"))
    for path in [path for path in files if not path.name.endswith(("-wal", "-shm"))]:
        connection = sqlite3.connect(path)
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in names:
            if name in PROOF:
                continue
            rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
            found[f"{path.relative_to(root)}:{name}"] = sorted(rows, key=repr)
        connection.close()
    return found


def shown(relay: Relay, question: str, session: str) -> list[str]:
    envelope = relay.turn(question, session_id=session, budget_tokens=400).preview()
    return [fact.content for fact in envelope.facts]


@pytest.mark.requirement("009-7.1-2", "009-7.2-1", "009-7.2-3")
def test_no_store_reads_and_writes_no_fact(open_relay: Opener, tmp_path: Path) -> None:
    root = tmp_path / "kb"
    relay = open_relay(root)
    relay.fabric.add(list(FACTS))
    before = dump(root), relay.fabric.state_hash(), relay.fabric.generation()
    assert any(rows for name, rows in before[0].items() if name.endswith(":facts"))
    relay.add([SECRET], session_id=MINE, cache="no-store")
    answer = relay.ask(QUESTION, session_id=MINE, cache="no-store", budget_tokens=400)
    assert SECRET in answer.envelope.text
    assert FACTS[0] in answer.envelope.text
    relay.preview(QUESTION, session_id=MINE, cache="no-store")
    assert relay.end_session(MINE) == 1
    assert (dump(root), relay.fabric.state_hash(), relay.fabric.generation()) == before
    assert answer.envelope.state_hash == before[1]
    # The same question without the directive does write: counts of tokens, and of use.
    relay.ask(QUESTION, session_id=MINE, budget_tokens=400)
    assert dump(root) != before[0]
    assert relay.verify().windows == 2


@pytest.mark.requirement("009-7.2-1")
def test_no_byte_of_what_a_session_holds_reaches_a_file(open_relay: Opener, tmp_path: Path) -> None:
    relay = open_relay(tmp_path / "kb")
    relay.fabric.add(list(FACTS))
    relay.add([SECRET], session_id=MINE, cache=CacheDirectives(no_store=True))
    relay.ask(QUESTION, session_id=MINE, cache="no-store", budget_tokens=400)
    relay.close()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"Ada Quill" not in path.read_bytes(), path.name


@pytest.mark.requirement("009-7.2-1", "009-7.2-2")
def test_a_held_fact_is_a_candidate_of_its_session_until_that_ends(open_relay: Opener) -> None:
    relay = open_relay()
    relay.fabric.add(list(FACTS))
    report = relay.add([SECRET], session_id=MINE, cache="no-store")
    assert len(report.facts) == 1
    question = "Who visited the Meridian reactor?"
    assert SECRET in shown(relay, question, MINE)
    assert SECRET not in shown(relay, question, YOURS)
    assert SECRET not in shown(relay, question, "")
    relay.end_session(MINE)
    assert SECRET not in shown(relay, question, MINE)


def test_a_session_alone_fills_an_empty_fabric(open_relay: Opener) -> None:
    relay = open_relay()
    relay.add([SECRET], session_id=MINE, cache="no-store")
    answer = relay.ask("Who visited the reactor?", session_id=MINE, cache="no-store")
    assert [fact.content for fact in answer.envelope.facts] == [SECRET]
    assert answer.envelope.memory_tier_hit == 1
    assert answer.headers["CRP-Memory-Tier-Hit"] == "1"
    assert relay.preview("Who visited the reactor?", session_id=YOURS).memory_tier_hit == 3


def test_a_held_fact_is_examined_with_the_vector_it_was_held_with(open_relay: Opener) -> None:
    embedder = CountingEmbedder()
    # During the call the session ends: what the model saw is still what is examined.
    ended: list[int] = []

    def answering(call: ModelCall) -> str:
        ended.append(relay.end_session(MINE))
        return "The reactor was visited by inspector Ada Quill on 9 May 2021."

    relay = open_relay(embedder=embedder, models=ScriptedModel(answering))
    relay.add([SECRET], session_id=MINE, cache="no-store")
    question = "Who visited the reactor, and when?"
    embedder.seen.clear()
    answer = relay.ask(question, session_id=MINE, cache="no-store")
    assert ended == [1]
    (held,) = answer.envelope.facts
    assert {evidence.fact_id for claim in answer.report.claims for evidence in claim.evidence} == {
        held.fact_id
    }
    # Question and claim are embedded; the fact is not, a second time.
    assert embedder.seen
    assert SECRET not in embedder.seen


@pytest.mark.requirement("009-7.1-5")
def test_max_age_makes_older_facts_stale_for_this_question(open_relay: Opener) -> None:
    clock = FixedClock()
    relay = open_relay(clock=clock)
    relay.fabric.add(list(FACTS[:2]))
    clock.moment = NOON + timedelta(seconds=3600)
    relay.fabric.add(list(FACTS[2:]))

    def freshness(cache: str | None) -> set[float]:
        envelope = relay.turn(QUESTION, cache=cache, budget_tokens=400).preview()
        return {fact.freshness_score for fact in envelope.facts if fact.content in FACTS[:2]}

    assert 0.0 not in freshness(None)
    assert 0.0 not in freshness("max-age=3600")
    assert freshness("max-age=3599") == {0.0}
    # A word of the request, not of the fact: nothing is stored.
    assert {fact.status.value for fact in relay.fabric.facts(ids(relay))} == {"ACTIVE"}
    fresh = relay.turn(QUESTION, cache="max-age=3599", budget_tokens=400).preview()
    assert {f.freshness_score for f in fresh.facts if f.content in FACTS[2:]} == {1.0}


def ids(relay: Relay) -> list[str]:
    vector = relay.fabric.embedder.embed_query("reactor")
    return [hit.fact_id for hit in relay.fabric.nearest(vector, 99)]


@pytest.mark.requirement("009-7.1-2")
def test_what_was_asked_for_stands_in_the_report(open_relay: Opener) -> None:
    relay = open_relay()
    relay.fabric.add(list(FACTS))
    asked = parse_request({"CRP-Context-Cache": "max-age=60, no-store"})
    answer = relay.ask(QUESTION, cache=asked.cache)
    assert "cache=no-store, max-age=60" in answer.report.flags
    plain = relay.ask(QUESTION)
    assert not any(flag.startswith(("cache", "residency")) for flag in plain.report.flags)


@pytest.mark.parametrize(
    ("cache", "words"), [("stale-ok", "'stale-ok' is not one of"), (7, "cache is not usable")]
)
def test_a_directive_that_does_nothing_is_refused(
    open_relay: Opener, cache: str, words: str
) -> None:
    relay = open_relay()
    with pytest.raises(RequestError, match=words):
        relay.ask(QUESTION, cache=cache)


@pytest.mark.requirement("009-7.2-1")
@pytest.mark.parametrize("cache", ["no-store", None])
def test_the_journal_counts_what_a_session_holds_and_names_it_not(
    open_relay: Opener, tmp_path: Path, cache: str | None
) -> None:
    relay = open_relay(tmp_path / "kb")
    relay.fabric.add(list(FACTS))
    (held,) = relay.add([SECRET], session_id=MINE, cache="no-store").facts
    answer = relay.ask(QUESTION, session_id=MINE, cache=cache, budget_tokens=400)
    named = [fact.fact_id for fact in answer.envelope.facts]
    assert held in named
    with relay.fabric.begin(write=False) as transaction:
        (told,) = (
            event.data
            for event in transaction.journal.events()
            if event.event_type is EventType.FACT_RETRIEVED
        )
    assert told["facts"] == [id_ for id_ in named if id_ != held]
    assert told["held"] == 1
    relay.close()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            # An id follows from the text, so it would confirm a guess at it.
            assert held.encode() not in path.read_bytes(), path.name


@pytest.mark.requirement("009-6.3-1")
def test_the_state_hash_tells_what_the_etag_cannot(open_relay: Any) -> None:
    relay = open_relay(models=ScriptedModel("It was commissioned on 4 March 2019."))
    relay.fabric.add(list(FACTS))

    def envelope() -> Any:
        return relay.ask(QUESTION).envelope

    first = envelope()
    ids = sorted(fact.fact_id for fact in first.facts)
    wanted = "|".join(ids) + "|" + str(len(ids))
    assert first.etag == "sha256:" + hashlib.sha256(wanted.encode()).hexdigest()
    assert first.state_hash == relay.fabric.state_hash()
    # Asking uses facts and changes neither.
    again = envelope()
    assert (again.etag, again.state_hash) == (first.etag, first.state_hash)
    # The same ids with another content: the ETag of §7.5 stays, its validator does not.
    content = FACTS[0].replace("412", "415")
    relay.fabric.update(first.facts[0].fact_id, content=content)
    later = envelope()
    assert later.etag == first.etag
    assert later.state_hash == relay.fabric.state_hash() != first.state_hash

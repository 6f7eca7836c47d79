"""

What is asked in an odd way: misspelt words, one text for many, an answer for its receipt.
"""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations import Answer, Relay
from crp_integrations.errors import (
    AccessDenied,
    ConfigError,
    IngestError,
    ModelRateLimited,
    RequestError,
)
from crp_integrations.guard.decisions import Subject
from crp_integrations.messages import Message, Reply, ToolCall, Usage
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.sqlite import SqliteStore
from tests.doubles import NOON, CountingIds, FixedClock, HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS

SESSION = "crp_sess_7f3a9bc2d4e1f083"
QUESTION = "When was the Meridian reactor commissioned?"


def test_fewer_candidates_than_the_setting_are_read_where_a_question_asks_for_fewer(open_relay):
    relay = open_relay(preset="literal")
    relay.fabric.add([f"The Meridian reactor has valve {n} of type {7 * n}." for n in range(40)])
    found = [
        relay.preview(QUESTION, **asked).facts_available
        for asked in ({}, {"k_nearest": 5}, {"k_nearest": 20})
    ]
    # Facts as near as the last one may come along from its community, so few more are read.
    assert found[0] == 40
    assert 5 <= found[1] <= 15
    assert 20 <= found[2] <= 30


@pytest.mark.requirement("003-12.1-1", "003-12.1-3")
def test_a_preview_calls_no_model_and_equals_the_dispatch(open_relay):
    model = ScriptedModel(FACTS[0])
    relay = open_relay(models=model)
    relay.fabric.add(list(FACTS))
    seen = relay.preview(QUESTION, budget_tokens=40)
    assert model.calls == []
    answer = relay.ask(QUESTION, budget_tokens=40)
    assert (seen.quality_tier, seen.saturation, seen.etag) == (
        answer.envelope.quality_tier,
        answer.envelope.saturation,
        answer.envelope.etag,
    )
    assert seen.facts_included == answer.envelope.total_facts_included < len(FACTS)


def test_what_the_model_gets_is_the_envelope_and_no_metadata(open_relay):
    model = ScriptedModel("An answer.")
    relay = open_relay(models=model)
    relay.fabric.add(list(FACTS))
    answer = relay.ask(QUESTION, model="any/model", system_prompt="Be brief.", seed=7)
    (call,) = model.calls
    assert [message.role for message in call.messages] == ["system", "user"]
    assert call.messages[0].content.startswith("Be brief.\n\nPrefer the provided context")
    assert f"<context>\n{answer.envelope.text}\n</context>" in call.messages[0].content
    assert call.messages[1].content == QUESTION
    assert call.seed == 7
    sent = call.model_dump_json()
    for secret in (
        answer.envelope.etag,
        answer.session_id,
        answer.envelope.facts[0].fact_id,
        "CRP-",
    ):
        assert secret not in sent


def test_the_reply_comes_back_whole(open_relay):
    reply = Reply(
        text=FACTS[0],
        model="provider/real-name",
        tool_calls=(ToolCall(id="t1", name="look", arguments='{"a":1}'),),
        usage=Usage(prompt_tokens=10, completion_tokens=4),
        finish_reason="tool_calls",
    )
    relay = open_relay(models=ScriptedModel(reply))
    relay.fabric.add(list(FACTS))
    answer = relay.ask(QUESTION, model="provider/alias")
    assert answer.reply == reply
    assert answer.reply.usage.total_tokens == 14


async def test_all_four_ways_to_ask_agree(open_relay):
    def fresh() -> Relay:
        relay = open_relay(models=ScriptedModel(FACTS[0]))
        relay.fabric.add(list(FACTS))
        return relay

    asked = fresh().ask(QUESTION, session_id=SESSION)
    awaited = await fresh().aask(QUESTION, session_id=SESSION)
    streamed = list(fresh().stream(QUESTION, session_id=SESSION))
    astreamed = [part async for part in fresh().astream(QUESTION, session_id=SESSION)]
    # Nobody can guess a continuation id, so each has its own, and a token that names it.
    ends = [asked, awaited, streamed[-1], astreamed[-1]]
    assert len({one.continuation_id for one in ends}) == len(ends)
    for one in ends:
        assert one.headers.pop("CRP-Set-Session")
    assert len({one.changed(continuation_id="").model_dump_json() for one in ends}) == 1
    for parts in (streamed, astreamed):
        pieces = [part for part in parts if isinstance(part, str)]
        assert len(pieces) > 3
        assert "".join(pieces) == asked.text
        assert sum(isinstance(part, Answer) for part in parts) == 1


async def ask_by(relay: Relay, way: str) -> None:
    match way:
        case "ask":
            relay.ask(QUESTION, session_id=SESSION)
        case "aask":
            await relay.aask(QUESTION, session_id=SESSION)
        case "stream":
            list(relay.stream(QUESTION, session_id=SESSION))
        case "astream":
            [part async for part in relay.astream(QUESTION, session_id=SESSION)]


@pytest.mark.parametrize("way", ["ask", "aask", "stream", "astream"])
async def test_errors_of_the_model_are_raised_and_sealed(open_relay, way):
    relay = open_relay(models=ScriptedModel(ModelRateLimited("slow down")))
    relay.fabric.add(list(FACTS))
    with pytest.raises(ModelRateLimited, match="slow down"):
        await ask_by(relay, way)
    with relay.fabric.begin(write=False) as transaction:
        assert transaction.journal.last_seal(SESSION).outcome == "failed"


@pytest.mark.parametrize(
    ("asking", "names"),
    [
        ({"session_id": 1.5}, "session_id"),
        ({"grounding": "loose"}, "grounding"),
        ({"k": 0}, "k"),
        ({"temperature": -1.0}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_a_malformed_request_is_refused_by_name(relay, asking, names):
    with pytest.raises(RequestError, match=names):
        relay.ask(QUESTION, **asking)


@pytest.mark.parametrize("budget", [0, -5])
def test_a_budget_of_nothing_is_an_empty_envelope_of_tier_d(relay, budget):
    answer = relay.ask(QUESTION, budget_tokens=budget)
    assert answer.envelope.facts == ()
    assert answer.envelope.quality_tier == "D"
    assert len(answer.envelope.dropped) == len(FACTS)


def test_a_bad_path_leaves_the_store_as_it_was(relay, tmp_path):
    before = relay.fabric.state_hash()
    good = tmp_path / "good.md"
    good.write_text(
        "# Title\n\nA paragraph with enough words to be kept as a fact of its own here.\n"
    )
    with pytest.raises(IngestError, match="nowhere"):
        relay.ingest([good, tmp_path / "nowhere.md"])
    assert relay.fabric.state_hash() == before


def test_a_subject_without_a_tenant_is_denied(open_relay):
    with pytest.raises(AccessDenied, match="tenant"):
        open_relay(subject=Subject(tenant=""))


def test_tenants_of_one_store_do_not_see_each_other(open_relay):
    from crp_integrations.stores.memory import MemoryStore

    store = MemoryStore()
    ours = open_relay(store, subject=Subject(tenant="ours"))
    theirs = open_relay(store, subject=Subject(tenant="theirs"))
    ours.fabric.add(list(FACTS))
    assert theirs.preview(QUESTION).facts_available == 0
    assert theirs.fabric.facts([f.fact_id for f in ours.turn(QUESTION).preview().facts]) == []


def test_a_database_is_opened_with_a_key_that_its_processes_share():
    with pytest.raises(ConfigError, match="CRP_KEY"):
        Relay.open("postgresql://somewhere/db")


def test_a_store_object_over_a_folder_uses_the_folders_key_and_settings(tmp_path):
    (tmp_path / "crp.toml").write_text("max_windows = 3\n")
    options = {"embedder": HashEmbedder()}
    with Relay.open(SqliteStore(tmp_path), **options) as relay:
        relay.fabric.add(list(FACTS))
        assert relay.ask(QUESTION, session_id=SESSION).headers["CRP-Context-Window"] == "1/3"
    with Relay.open(tmp_path, **options) as relay:
        answer = relay.ask(QUESTION, session_id=SESSION)
    assert answer.headers["CRP-Context-Window"] == "2/3"
    assert answer.headers["CRP-Provenance-Chain-Integrity"] == "VALID"


def test_clock_ids_and_keyring_can_be_handed_in(tmp_path):
    def answer(name: str) -> Answer:
        with Relay.open(
            tmp_path / name,
            embedder=HashEmbedder(),
            clock=FixedClock(),
            ids=CountingIds(),
            keyring=FixedKeyRing(b"k" * 32),
        ) as relay:
            relay.fabric.add(list(FACTS))
            return relay.ask(QUESTION)

    first, second = answer("one"), answer("two")
    assert first == second
    assert first.session_id == "crp_sess_0000000000000001"
    assert first.envelope.created_at == NOON
    assert not (tmp_path / "one" / "keys").exists()


@pytest.mark.parametrize("clock", [NOON, "2026-05-25T12:00:00Z"])
def test_a_moment_is_a_clock_that_stands_still(clock):
    relay = Relay.open(embedder=HashEmbedder(), clock=clock)
    assert relay.turn(QUESTION).preview().created_at == NOON


def test_a_history_may_be_in_the_openai_shape(open_relay):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look it up."}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "content": "Found.", "tool_call_id": "c1"},
    ]
    ours = [
        Message(role="system", content="Be brief."),
        Message(role="user", content="Look it up."),
        Message(role="assistant", tool_calls=(ToolCall(id="c1", name="look", arguments="{}"),)),
        Message(role="tool", content="Found.", tool_call_id="c1"),
    ]
    model = ScriptedModel(FACTS[0])
    relay = open_relay(models=model)
    relay.fabric.add(list(FACTS))
    for one in (history, ours):
        relay.ask(QUESTION, model="any/model", history=one)
    assert model.calls[0].messages == model.calls[1].messages
    assert model.calls[0].messages[1:5] == tuple(ours)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "oracle", "content": "a secret"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a secret"}}]},
        {"role": "user", "content": "a secret", "name": ["a secret"]},
        "a secret",
    ],
)
def test_a_history_of_something_else_is_refused_without_its_text(open_relay, message):
    relay = open_relay(models=ScriptedModel(FACTS[0]))
    with pytest.raises(RequestError, match="history is not usable") as refused:
        relay.ask(QUESTION, history=[message])
    assert "a secret" not in str(refused.value)


MALFORMED_QUESTION = "How high is the fee?"


@pytest.fixture(scope="module")
def harbour() -> Relay:
    harbour = Relay.open(model="extractive")
    harbour.add(["The fee is 90 EUR a month for each of the cranes that stand in the harbour."])
    return harbour


@pytest.mark.parametrize(
    ("asking", "said"),
    [
        (
            {"stategy": "push"},
            "'stategy' is not an argument of a question; did you mean 'strategy'?",
        ),
        ({"colour": "red"}, "'colour' is not an argument of a question"),
        ({"strategy": "pusch"}, "strategy 'pusch' is not usable: wanted 'push', "),
        ({"accept_quality": ["X"]}, "accept_quality.0 'X' is not usable: wanted 'S', "),
        ({"model": ""}, "model is not usable: it is empty"),
        ({"policy": 5}, "policy is not usable: wanted a text"),
        ({"k": "x"}, "k is not usable: wanted a whole number"),
        ({"prior": ["x"]}, "prior.0 is not usable: wanted EarlierWindow"),
    ],
)
def test_a_refusal_names_the_argument_and_what_is_wanted(
    harbour: Relay, asking: dict[str, Any], said: str
) -> None:
    for door in (harbour.ask, harbour.preview, harbour.turn):
        with pytest.raises(RequestError) as caught:
            door(MALFORMED_QUESTION, **asking)
        assert str(caught.value).startswith(said)

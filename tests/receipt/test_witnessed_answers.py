"""Receipts on answers that somebody else asked for."""

from __future__ import annotations

import pytest

from crp_integrations.adapters.observed_answers import ObservedAnswer, observe_answer
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import Message
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.policy.verdict import judge_answer
from crp_integrations.receipt.records import Receipt, read, write
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import EQUAL, NOT_RUN
from crp_integrations.receipt.verify import verify
from crp_integrations.relay.storeless_functions import examine
from tests.doubles import HashEmbedder
from tests.receipt.relayed import ANSWER, QUESTION, SESSION, opened
from tests.relay.conftest import FACTS

SENT = (
    Message(role="system", content="Use this:\n[1] " + FACTS[0] + "\n\n[2] " + FACTS[2]),
    Message(role="user", content=QUESTION),
)


def out_of(found: ObservedAnswer) -> Receipt:
    """The receipt as a stranger has it."""
    assert found.receipt is not None
    return read(write(found.receipt))


def test_an_answer_from_elsewhere_is_sealed_with_what_was_seen() -> None:
    relay, _ = opened()
    found = observe_answer(
        relay, ANSWER, [FACTS[0], FACTS[2]], QUESTION, messages=SENT, model="their/model"
    )
    receipt = out_of(found)
    assert verify(write(receipt)).ok
    replayed = replay(receipt)
    # The messages are somebody else's, so that nobody can write them again; that is said.
    assert (replayed.same, replayed.whole) == (True, True)
    assert replayed.part("prompt").why == "the messages are the caller's own"
    for name in ("context", "examination"):
        assert replayed.part(name).state == EQUAL
    # Nobody knows how the context came about, and nothing of it is made up.
    for name in ("selection", "prompt"):
        assert replayed.part(name).state == NOT_RUN
    assert receipt.content["envelope"] is None
    # A context in the way of this package stands once, in the leaves of its facts.
    message = receipt.content["calls"][0]["messages"][0]
    assert receipt.text(message["leaf"]) == SENT[0].content
    texts = [one.text or "" for one in receipt.texts if not isinstance(one, str)]
    assert sum(FACTS[0] in text for text in texts) == 1
    relay.verify()


def test_it_says_what_the_front_door_says() -> None:
    relay, _ = opened()
    found = observe_answer(relay, ANSWER, [FACTS[0]], QUESTION)
    plain = examine(ANSWER, [FACTS[0]], QUESTION, embedder=HashEmbedder(), settings=relay.settings)
    assert found.report.claims == plain.claims
    assert found.report.composite_score == plain.composite_score
    assert found.report.flags == (*plain.flags, "context-packed-elsewhere")


def test_answers_of_one_session_are_chained() -> None:
    relay, _ = opened()
    first = observe_answer(relay, FACTS[0], [FACTS[0]], QUESTION, session_id=SESSION)
    second = observe_answer(
        relay, FACTS[2], [FACTS[2]], QUESTION, session_id=SESSION, prior=[FACTS[0]]
    )
    one, two = out_of(first), out_of(second)
    assert two.chain.parents == (one.chain.hmac,)
    assert two.content["examined"]["prior"][0]["number"] == 1
    assert replay(two).whole


def test_a_verdict_of_the_caller_is_recorded_and_judged_again() -> None:
    relay, _ = opened()
    policy = parse_policy("block-fabrication")
    report = examine(ANSWER, [FACTS[0]], QUESTION, embedder=HashEmbedder())
    found = observe_answer(
        relay, ANSWER, [FACTS[0]], QUESTION, policy=policy, judgement=judge_answer(policy, report)
    )
    receipt = out_of(found)
    assert receipt.chain.outcome == "halted"
    assert replay(receipt).part("policy").state == EQUAL
    assert receipt.content["policy"]["text"].endswith("block-fabrication")


def test_facts_keep_their_ids_and_sources() -> None:
    relay, _ = opened()
    fact = Fact(content=FACTS[0], source_id="manual-7", importance_weight=0.95)
    found = observe_answer(relay, "Nothing is said.", [fact], QUESTION)
    receipt = out_of(found)
    assert [one["id"] for one in receipt.content["examined"]["passages"]] == [fact.fact_id]
    assert receipt.content["report"]["omissions"][0]["fact_id"] == fact.fact_id
    assert replay(receipt).whole


@pytest.mark.parametrize("options", [{"receipts": False}])
def test_without_receipts_the_window_is_sealed_all_the_same(options: dict[str, bool]) -> None:
    relay, _ = opened(**options)
    found = observe_answer(relay, ANSWER, [FACTS[0]], QUESTION)
    assert found.receipt is None
    assert found.report.report_hash
    assert relay.verify().windows == 1


def test_what_is_in_no_fabric_is_on_no_disk() -> None:
    relay, _ = opened()
    found = observe_answer(relay, ANSWER, ["A text of theirs."], QUESTION, session_id=SESSION)
    receipt = out_of(found)
    relay.end_session(SESSION)
    assert relay.receipt(receipt.receipt_id) is None
    shown = relay.ask(QUESTION, model="any/model").envelope.facts
    stored = relay.fabric.facts([fact.fact_id for fact in shown])
    kept = observe_answer(relay, ANSWER, stored, QUESTION)
    relay.end_session(kept.session_id)
    assert relay.receipt(out_of(kept).receipt_id) is not None


@pytest.mark.parametrize("around", ["", "[1] "])
@pytest.mark.parametrize("quoting", [True, False])
def test_a_fact_goes_with_the_system_prompt_that_has_it(around: str, quoting: bool) -> None:
    relay, _ = opened()
    shown = relay.ask(QUESTION, model="any/model").envelope.facts
    stored = relay.fabric.facts([one.fact_id for one in shown])
    (fact,) = [one for one in stored if one and one.content == FACTS[0]]
    system = Message(role="system", content=f"Be kind. {around}{FACTS[0]} Thanks.")
    asked = Message(role="user", content=QUESTION)
    found = observe_answer(relay, "It is.", [fact], QUESTION, messages=[system, asked])
    relay.end_session(found.session_id)
    # The prompt is no fact, so that no fabric has to have it.
    receipt = relay.receipt(out_of(found).receipt_id)
    assert receipt is not None
    assert replay(receipt).same
    texts = [one.text or "" for one in receipt.texts if not isinstance(one, str)]
    assert sum(FACTS[0] in text for text in texts) == (1 if around else 3)
    if around or quoting:
        copy = redact(receipt, facts=[fact.fact_id], quoting=quoting)
        assert verify(write(copy)).ok
        assert FACTS[0].encode() not in write(copy)
    (source,) = relay.fabric.sources()
    relay.fabric.erase(source.source_id)
    left = relay.receipt(receipt.receipt_id)
    assert left is not None
    assert FACTS[0].encode() not in write(left)

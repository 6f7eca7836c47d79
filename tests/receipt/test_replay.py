"""A receipt is done again: what was sent, what was found, what was decided."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.engines.rego import RegoEngine
from crp_integrations.errors import ReceiptBroken, SafetyHalt
from crp_integrations.messages import Message
from crp_integrations.receipt.predicate import Content
from crp_integrations.receipt.reconstruction import Texts, message_of
from crp_integrations.receipt.records import Receipt, write
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import DIFFERS, EQUAL, NOT_RUN, ReplayTools
from crp_integrations.receipt.verify import verify
from crp_integrations.relay.defaults import default_verifier
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import HashEmbedder, ScriptedModel
from tests.receipt.relayed import (
    ANSWER,
    MODEL,
    QUESTION,
    SESSION,
    asked,
    changed,
    opened,
    renamed,
)
from tests.receipt.relayed import receipt_of as out_of
from tests.relay.conftest import FACTS
from tests.relay.conftest import KEY as MASTER
from tests.relay.judges import MEASURED
from tests.relay.need_questions import looks_up

Change = Callable[[dict[str, Any]], None]


def sent(receipt: Receipt, call: int = 0) -> list[Message]:
    """The messages of a call, as a receipt has them."""
    content, texts = Content.model_validate(receipt.content), Texts(receipt)
    own = [message_of(one, texts) for one in content.calls[call].messages]
    return sent(receipt, 0) + own if content.calls[call].follows else own


@pytest.mark.requirement("005-15.4-3")
def test_a_receipt_replays_to_the_sealed_report_offline() -> None:
    receipt = asked()
    found = replay(receipt)
    assert (found.same, found.whole) == (True, True)
    states = {one.name: one.state for one in found.parts}
    assert [name for name, state in states.items() if state == EQUAL] == [
        "digest", "leaves", "budget", "selection", "context", "prompt", "answer", "examination",
        "policy",
    ]  # fmt: skip
    # Nothing was at hand, and that is said and not taken for equal.
    assert {states[name] for name in ("counts", "catalogue", "signals")} == {NOT_RUN}
    assert any("no model is called" in limit for limit in found.limits)


@pytest.mark.requirement("005-15.4-3")
def test_a_receipt_with_another_report_hash_is_refused() -> None:
    receipt = asked()
    seal = json.loads(receipt.text(receipt.number("seal")) or "")
    other = json.dumps({**seal, "report_hash": "sha256:" + "0" * 64})
    forged = changed(receipt, texts={"seal": other})
    # Signature and tree are in order: whoever has a key can sign anything.
    assert verify(write(forged)).word == DIFFERS
    found = replay(forged).part("examination")
    assert (found.state, found.place) == (DIFFERS, "seal.report_hash")
    with pytest.raises(ReceiptBroken, match=r"seal\.report_hash"):
        replay(forged).require()


def test_what_was_sent_is_in_the_receipt_byte_for_byte() -> None:
    relay, model = opened("Short.")
    history = [
        Message(role="user", content="Hello."),
        Message(role="assistant", content="Yes?\n"),
    ]
    answer = relay.ask(
        QUESTION,
        model=MODEL,
        session_id=SESSION,
        history=history,
        system_prompt="Be short.\n\n<context>\nnot this</context>",
    )
    receipt = out_of(relay, answer.receipt_id)
    assert sent(receipt) == list(model.calls[0].messages)
    assert replay(receipt).part("prompt").state == EQUAL
    # Facts stand in it once: what was shown of them is put together from their leaves.
    texts = [one.text or "" for one in receipt.texts if not isinstance(one, str)]
    assert sum(FACTS[0] in text for text in texts) == 1


@pytest.mark.parametrize(
    ("script", "asking"),
    [
        ((ANSWER,), {"strategy": "pull"}),
        ((ANSWER, "It says 412 megawatts.", FACTS[0]), {"strategy": "reflexive"}),
        ((ANSWER, "NONE"), {"strategy": "reflexive"}),
        ((looks_up("tulips in the valley"), ANSWER), {"strategy": "agentic"}),
        ((ANSWER,), {"grounding": "context-strict", "k": 2}),
        ((ANSWER,), {"budget_tokens": 40}),
        ((ANSWER,), {"budget_tokens": 0}),
        ((ANSWER,), {"cache": "max-age=60"}),
        ((ANSWER,), {"options": {"preset": "literal"}}),
        ((ANSWER,), {"options": {"envelope": {"layout": "cache-stable"}}}),
        (
            (ANSWER, FACTS[0]),
            {"policy": "halt-on HIGH; upgrade-on-risk reflexive", "options": {"dpe": MEASURED}},
        ),
    ],
)
def test_windows_of_every_kind_replay(script: tuple[Any, ...], asking: dict[str, Any]) -> None:
    asking = {**asking}
    options = asking.pop("options", {})
    relay, model = opened(*script, **options)
    try:
        answer = relay.ask(QUESTION, model=MODEL, session_id=SESSION, **asking)
    except SafetyHalt:
        receipt_id = relay.receipts().ids()[-1]
    else:
        receipt_id = answer.receipt_id
    receipt = out_of(relay, receipt_id)
    found = replay(receipt)
    assert (found.same, found.whole) == (True, True), found.parts
    calls = receipt.content["calls"]
    last = [list(call.messages) for call in model.calls[-len(calls) :]]
    assert [sent(receipt, number) for number in range(len(calls))] == last


def test_a_halted_window_replays_with_the_answer_that_was_withheld() -> None:
    relay, _ = opened(ANSWER, dpe=MEASURED)
    with pytest.raises(SafetyHalt):
        relay.ask(QUESTION, model=MODEL, session_id=SESSION, policy="block-fabrication")
    receipt = out_of(relay, relay.receipts().ids()[-1])
    found = replay(receipt)
    assert (found.same, found.whole) == (True, True)
    assert receipt.chain.outcome == "halted"
    assert receipt.content["policy"]["decision"] == "withhold"


def test_a_continued_window_replays_with_what_was_said_before() -> None:
    relay, _ = opened(FACTS[0], f"{FACTS[0]} {FACTS[2]}")
    first = relay.ask("When was the reactor commissioned?", model=MODEL, session_id=SESSION)
    answer = relay.ask(
        "What revenue was reported?", model=MODEL, session_id=SESSION, prior=[first.as_prior()]
    )
    receipt = out_of(relay, answer.receipt_id)
    assert receipt.content["examined"]["prior"]
    assert replay(receipt).whole
    signals = [one["at"] for one in receipt.content["examined"]["signals"]]
    assert {"repetition.pairs", "flow.opening"} & set(signals)


def first_score(content: dict[str, Any]) -> None:
    one = content["candidates"][0]
    one["score"] = 1_000_000 if one["score"] < 900_000 else 0


def first_tokens(content: dict[str, Any]) -> None:
    content["fit"]["counts"][-1] += 1


def packing(content: dict[str, Any]) -> None:
    content["settings"]["envelope"]["ordering"] = "reversed"


def budget(content: dict[str, Any]) -> None:
    content["fit"]["room"]["limit"] = 4_000


def automatic(content: dict[str, Any]) -> None:
    content["fit"]["room"]["automatic"] = False


def signal(content: dict[str, Any]) -> None:
    content["examined"]["signals"][1]["value"][0][0] //= 2


def claim(content: dict[str, Any]) -> None:
    content["report"]["claims"][1]["attribution"] = "PARAMETRIC"


def judgement(content: dict[str, Any]) -> None:
    content["policy"]["judgement"]["halt"] = "POLICY_VIOLATION"


def policy(content: dict[str, Any]) -> None:
    content["policy"]["text"] = "default-src context; block-fabrication"


@pytest.mark.parametrize(
    ("change", "part", "place"),
    [
        (first_score, "selection", "envelope.facts["),
        (first_tokens, "selection", "envelope."),
        (packing, "selection", "envelope."),
        (budget, "budget", "fit.budget_tokens"),
        (automatic, "budget", "fit.budget_tokens"),
        (signal, "examination", "report."),
        (claim, "examination", "report.claims[1].attribution"),
        (judgement, "policy", "policy.judgement.halt"),
        (policy, "policy", "policy.hash"),
    ],
)
def test_a_change_is_found_at_its_place(change: Change, part: str, place: str) -> None:
    found = replay(changed(asked(), change))
    assert not found.same
    one = found.part(part)
    assert (one.state, one.place.startswith(place)) == (DIFFERS, True), one


def told(part: str, **fields: Any) -> Change:
    """Other words in a part of the content."""
    return lambda content: content[part].update(fields)


def called(**fields: Any) -> Change:
    """Other words of the call."""
    return lambda content: content["calls"][0].update(fields)


def other_terms(**fields: Any) -> Change:
    """Other demands of the caller."""
    return lambda content: content["policy"]["terms"].update(fields)


OVERSEEN: dict[str, Any] = {"policy": "require-oversight human-review"}
RISKY: dict[str, Any] = {"accept_risk": "LOW"}


@pytest.mark.parametrize(
    ("asking", "change", "part", "place"),
    [
        ({}, told("policy", decision="withhold"), "policy", "policy.decision"),
        ({}, told("policy", decision="unreachable"), "policy", "policy.decision"),
        ({}, told("policy", decision=""), "policy", "policy.decision"),
        ({}, told("policy", reason="POLICY_VIOLATION"), "policy", "policy.reason"),
        ({}, told("policy", approved=True), "policy", "policy.approved"),
        ({}, told("policy", reviewed=True), "policy", "policy.reviewed"),
        ({}, told("policy", safety_budget=100_000), "policy", "policy.decision"),
        ({}, told("policy", tier="S"), "policy", "policy.tier"),
        ({}, told("policy", catalogue="their rules"), "policy", "policy.catalogue"),
        ({}, told("policy", reported={}), "policy", "policy.reported"),
        ({}, other_terms(accept_risk="LOW"), "policy", "policy.decision"),
        ({}, other_terms(accept_quality=["S"]), "policy", "policy.decision"),
        (OVERSEEN, told("policy", approved=True), "policy", "policy.decision"),
        (OVERSEEN, told("policy", decision="deliver", reason=""), "policy", "policy.decision"),
        (OVERSEEN, told("policy", reason="POLICY_VIOLATION"), "policy", "policy.reason"),
        (OVERSEEN, told("policy", reviewed=False), "policy", "policy.reviewed"),
        (RISKY, told("policy", decision="deliver", reason=""), "policy", "policy.decision"),
        (RISKY, other_terms(accept_risk=None), "policy", "policy.decision"),
        ({}, told("model", asked="their/model"), "prompt", "calls[0].model"),
        ({}, called(model="their/model"), "prompt", "calls[0].model"),
        ({}, called(purpose="judge"), "prompt", "calls[0].purpose"),
        ({}, told("request", shaped=False), "prompt", "request.shaped"),
    ],
)
def test_what_a_signer_tells_otherwise_is_found(
    asking: dict[str, Any], change: Change, part: str, place: str
) -> None:
    """Whoever has the key can sign it; the replay finds it all the same."""
    relay, _ = opened(dpe=MEASURED)
    with suppress(SafetyHalt):
        relay.ask(QUESTION, model=MODEL, session_id=SESSION, **asking)
    receipt = out_of(relay, relay.receipts().ids()[-1])
    assert replay(receipt).whole
    forged = changed(receipt, change)
    assert verify(write(forged)).word == DIFFERS
    found = replay(forged)
    one = found.part(part)
    assert (found.same, one.state, one.place) == (False, DIFFERS, place), one


def test_an_outcome_that_does_not_follow_is_found() -> None:
    forged = renamed(asked(), outcome="halted")
    one = replay(forged).part("policy")
    assert (one.state, one.place, one.replayed) == (DIFFERS, "chain.outcome", "'released'")


def test_a_decision_without_its_terms_is_not_taken_for_decided_again() -> None:
    found = replay(changed(asked(), told("policy", terms=None)))
    assert (found.same, found.whole, found.part("policy").state) == (True, False, NOT_RUN)
    assert "not recorded" in found.part("policy").why


def test_what_is_told_and_not_found_is_said() -> None:
    """A change that no replay can notice; what the signer states, and the limits, name each."""

    def otherwise(content: dict[str, Any]) -> None:
        content["candidates"][0].update(source="elsewhere", lexical=1, hop=1)
        content["model"].update(answered="their/model")
        content["package"].update(version="99")

    found = replay(changed(asked(), otherwise))
    assert found.whole
    stated = dict(found.stated)
    assert stated["model that answered"] == "their/model"
    assert stated["package"].endswith(" 99")
    assert "elsewhere" in stated["sources of the candidates"]
    for words in ("Parts of scores", "approval"):
        assert words in " ".join(found.limits)


def test_the_first_byte_of_another_context_is_named() -> None:
    receipt = asked()
    text = receipt.text(receipt.number("context")) or ""
    at = text.index("412")
    forged = changed(receipt, texts={"context": text.replace("412", "413")})
    one = replay(forged).part("context")
    line = text.count("\n", 0, at) + 1
    assert one.place == f"context, byte {at + 2} (line {line})"
    # A place is told, and nothing of what stands there.
    assert (one.recorded, one.replayed) == ("", "")


def test_another_message_is_named_with_its_number() -> None:
    forged = changed(asked(), texts={"call/1/1": "Something else.\n<context>\n</context>"})
    one = replay(forged).part("prompt")
    assert (one.state, one.place) == (DIFFERS, "calls[0].messages[0], byte 0 (line 1)")


def test_another_answer_is_refused() -> None:
    found = replay(changed(asked(), texts={"answer": f"{ANSWER} Indeed."}))
    assert found.part("answer").place == "seal.response_hash"
    assert found.part("examination").state == DIFFERS


def test_engines_at_hand_are_asked_again() -> None:
    receipt = asked()
    tools = ReplayTools(
        embedder=HashEmbedder(), verifier=default_verifier("alignment"), policy=RegoEngine()
    )
    found = replay(receipt, tools)
    assert found.part("catalogue").state == EQUAL
    signals = found.part("signals")
    assert (signals.state, signals.why.partition(" asked")[0]) == (EQUAL, "5")
    assert "largest difference 0.000000" in signals.why


def test_an_engine_that_says_something_else_is_told() -> None:
    def doubt(content: dict[str, Any]) -> None:
        content["examined"]["signals"][1]["value"][0][0] -= 40_000

    found = replay(changed(asked(), doubt), ReplayTools(verifier=default_verifier("alignment")))
    one = found.part("signals")
    assert one.state == DIFFERS
    assert one.place == "examined.signals[1] (entailment.judgement)"
    assert (one.recorded, one.replayed) == ("within 0.005000", "0.040000 away")


def test_a_redacted_copy_replays_what_it_can() -> None:
    receipt = asked()
    shown = receipt.content["candidates"][receipt.content["envelope"]["facts"][0]["at"]]["id"]
    copy = redact(receipt, facts=[shown])
    found = replay(copy)
    assert (found.same, found.whole) == (True, False)
    # The order and every reason follow from numbers alone.
    assert found.part("selection").state == EQUAL
    assert found.part("context").state == NOT_RUN
    assert shown in found.part("context").why
    assert found.part("examination").state == NOT_RUN


def test_nothing_of_a_fact_is_outside_of_its_leaf() -> None:
    receipt = asked(grounding="context-strict", policy="require-grounding 0.10")
    payload = receipt.signed.payload.decode()
    for fact in FACTS:
        for words in (fact, *fact.rstrip(".").split(" and ")):
            assert words not in payload
    for word in ("Larkspur", "Brightwater", "412 mega", "Northfield", "Meridian"):
        assert word not in payload


WEIGHTS = {"envelope": {"relevance_weight": 0.61}}


def test_own_weights_are_told_by_permission_only() -> None:
    hidden = asked(options=WEIGHTS)
    assert hidden.content["settings"]["withheld"] == ["envelope.relevance_weight"]
    assert "0.61" not in json.dumps(hidden.content["settings"])
    found = replay(hidden)
    assert (found.same, found.whole) == (True, False)
    assert "envelope.relevance_weight were not disclosed" in found.part("selection").why
    told = asked(options={**WEIGHTS, "receipt_weights": True})
    assert told.content["settings"]["envelope"]["relevance_weight"] == "0.61"
    assert replay(told).whole


def test_who_has_the_weights_replays_without_their_being_told() -> None:
    relay, _ = opened(**WEIGHTS)
    answer = relay.ask(QUESTION, model=MODEL, session_id=SESSION)
    receipt = out_of(relay, answer.receipt_id)
    assert replay(receipt, ReplayTools(envelope=relay.settings.envelope)).whole


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("candidates"),
        lambda content: content["fit"].update(now="yesterday"),
        lambda content: content["candidates"][0].update(leaf=999),
        lambda content: content["candidates"][0].update(stretches=[1, 2]),
        lambda content: content["selected"].update(duplicates=[[0, 99]]),
        lambda content: content["settings"]["envelope"].update(packing="whatever"),
        lambda content: content["settings"]["dpe"].update(grounded="7.5"),
        lambda content: content["examined"]["system"].update(domain="circus"),
        lambda content: content["policy"].update(text="halt-on everything"),
        lambda content: content["calls"][0]["messages"][0].update(role="emperor"),
        lambda content: content.update(schema="receipt-content/99"),
        lambda content: content["examined"].update(signals=[{"at": "x", "value": None, "y": 1}]),
    ],
)
def test_malformed_content_is_refused_with_its_place(change: Change) -> None:
    with pytest.raises(ReceiptBroken) as caught:
        replay(changed(asked(), change))
    assert caught.value.place


def test_signals_of_another_form_are_a_difference_and_no_crash() -> None:
    def other(content: dict[str, Any]) -> None:
        content["examined"]["signals"][0]["value"] = ["nothing", {"of": "this"}]

    one = replay(changed(asked(), other)).part("examination")
    assert (one.state, one.place) == (DIFFERS, "examined")


def test_a_plan_and_its_parts_have_receipts() -> None:
    model = ScriptedModel(lambda call: FACTS[0])
    relay, _ = opened(model.script[0])
    answer = relay.ask(
        f"{QUESTION} Does the cooling system draw water from the river?",
        model=MODEL,
        session_id=SESSION,
        strategy="hierarchical",
    )
    for receipt_id in relay.receipts().ids():
        found = replay(out_of(relay, receipt_id))
        assert (found.same, found.whole) == (True, True)
    assert len(relay.receipts().ids()) >= 2
    assert answer.receipt_id in relay.receipts().ids()


def test_a_receipt_of_fifty_facts_is_small_apart_from_texts() -> None:
    chance = random.Random(1)
    words = " ".join(FACTS).replace(".", "").split()
    model = ScriptedModel(" ".join(f"Unit {n} makes {n + 100} MW." for n in range(20)))
    relay = Relay.open(MemoryStore(), embedder=HashEmbedder(), key=MASTER, models=model)
    relay.fabric.add(
        [
            f"Unit {n} of the station {' '.join(chance.choices(words, k=40))}. It makes {n} MW."
            for n in range(50)
        ]
    )
    answer = relay.ask("How much does each unit of the station make?", model="gpt-4o")
    receipt = out_of(relay, answer.receipt_id)
    assert len(receipt.content["candidates"]) == 50
    file = json.loads(write(receipt))
    for one in file["texts"]:
        one.pop("text", None)
    file["envelope"]["payload"] = receipt.signed.payload.decode()
    assert len(zlib.compress(json.dumps(file).encode(), 9)) <= 40_000

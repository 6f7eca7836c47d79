"""What a window would have been with another budget, without a fact, or under another policy."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from crp_integrations.adapters.observed_answers import observe_answer
from crp_integrations.errors import CRPError, PolicySyntaxError, RequestError
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.replay_records import ReplayTools
from crp_integrations.receipt.whatif import Supposition, whatif
from tests.receipt.relayed import ANSWER, MODEL, QUESTION, SESSION, asked, opened, receipt_of
from tests.relay.conftest import FACTS
from tests.relay.judges import MEASURED

SMALL = 45


@cache
def tools() -> ReplayTools:
    """The counter of the receipts' model."""
    return ReplayTools(counter=opened()[0]._world.engines.counter_for(MODEL))


def ids(receipt: Receipt) -> list[str]:
    """Ids of what was shown, in order."""
    facts = receipt.content["candidates"]
    return [facts[fact["at"]]["id"] for fact in receipt.content["envelope"]["facts"]]


def test_a_smaller_budget_leaves_facts_out() -> None:
    receipt = asked()
    supposed = whatif(receipt, Supposition(budget_tokens=SMALL), tools())
    assert supposed.context is not None
    assert set() < set(supposed.context.facts_out) < set(ids(receipt))
    assert supposed.context.tokens_after <= SMALL < supposed.context.tokens_before
    assert supposed.verdict is None


def test_a_larger_budget_packs_what_the_relay_would_have_packed() -> None:
    relay, _ = opened()
    answer = relay.ask(QUESTION, model=MODEL, session_id=SESSION, budget_tokens=SMALL)
    wide = relay.ask(QUESTION, model=MODEL, budget_tokens=200).envelope
    receipt = receipt_of(relay, answer.receipt_id)
    supposed = whatif(receipt, Supposition(budget_tokens=200), tools())
    assert supposed.context is not None
    assert supposed.context.after == wide.text
    same = whatif(receipt, Supposition(budget_tokens=SMALL), tools()).context
    assert same is not None and same.before == same.after


def test_a_fact_is_left_out_of_the_context() -> None:
    receipt = asked()
    shown = {one["id"]: receipt.text(one["leaf"]) for one in receipt.content["candidates"]}
    gone = next(id_ for id_, text in shown.items() if text == FACTS[0])
    supposed = whatif(receipt, Supposition(without=(gone,)), tools())
    assert supposed.context is not None
    assert gone in supposed.context.facts_out
    assert FACTS[0] in supposed.context.before
    assert FACTS[0] not in supposed.context.after


def test_another_context_is_not_packed_without_the_tokenizer() -> None:
    supposed = whatif(asked(), Supposition(budget_tokens=SMALL))
    assert supposed.context is None
    assert "is not at hand" in supposed.notes[0]


def test_a_stricter_policy_withholds() -> None:
    supposed = whatif(asked(), Supposition(policy="block-fabrication; require-grounding 0.99"))
    verdict = supposed.verdict
    assert verdict is not None and supposed.context is None
    assert (verdict.decision_before, verdict.decision_after) == ("deliver", "withhold")
    assert verdict.violations_before == ()
    assert {violation.partition(" ")[0] for violation in verdict.violations_after} == {
        "block-fabrication",
        "require-grounding",
    }


def test_another_policy_is_told_the_tier_that_the_answer_allows() -> None:
    question = "What revenue did Northfield Energy report?"
    receipt = asked(question, "I like trains. " * 4, budget_tokens=80)
    # The envelope is better than what was said beside it.
    assert receipt.content["envelope"]["quality_tier"] == "S"
    assert receipt.content["policy"]["tier"] == "C"
    verdict = whatif(receipt, Supposition(policy="require-quality S A B")).verdict
    assert verdict is not None
    assert (verdict.decision_before, verdict.decision_after) == ("deliver", "unreachable")


WORSE = f"{ANSWER} The Halden Trust bought it back for $12 million on 5 May 1999."


@pytest.mark.parametrize(
    ("asking", "decision"),
    [
        ({"accept_risk": "LOW"}, "withhold"),
        ({"accept_quality": ("S",)}, "unreachable"),
        ({"policy": "require-oversight human-review"}, "review"),
        ({"policy": "block-fabrication"}, "withhold"),
    ],
)
def test_what_it_was_is_what_was_decided(asking: dict[str, Any], decision: str) -> None:
    relay, _ = opened(*[WORSE] * 6, dpe=MEASURED)
    with pytest.raises(CRPError):
        relay.ask(QUESTION, model=MODEL, session_id=SESSION, **asking)
    receipt = receipt_of(relay, relay.receipts().ids()[-1])
    recorded = "withhold" if decision == "review" else decision
    assert receipt.content["policy"]["decision"] == recorded
    policy = receipt.content["policy"]["text"]
    verdict = whatif(receipt, Supposition(policy=policy)).verdict
    assert verdict is not None
    assert (verdict.decision_before, verdict.decision_after) == (decision, decision)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (Supposition(without=("nobody",)), RequestError, "'nobody' is not among the 5 candidates"),
        (Supposition(budget_tokens=-1), RequestError, "the budget is -1"),
        (Supposition(policy="halt-on everything"), PolicySyntaxError, "halt-on"),
    ],
)
def test_a_change_that_is_none_is_refused(change: Supposition, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        whatif(asked(), change)


def test_a_context_that_was_made_elsewhere_is_not_packed_again() -> None:
    relay, _ = opened()
    receipt = observe_answer(relay, ANSWER, list(FACTS), QUESTION).receipt
    assert receipt is not None
    shown = next(leaf.fact_id for leaf in receipt.leaves if leaf.fact_id)
    with pytest.raises(RequestError, match=f"'{shown}' cannot be left out: the receipt names no"):
        whatif(receipt, Supposition(without=(shown,)))
    supposed = whatif(receipt, Supposition(budget_tokens=SMALL), tools())
    assert supposed.context is None and supposed.notes


@pytest.mark.parametrize("quoting", [True, False])
def test_a_copy_without_texts_has_no_figures_of_a_context(quoting: bool) -> None:
    receipt = asked()
    copy = redact(receipt, facts=ids(receipt)[:2], quoting=quoting)
    supposed = whatif(copy, Supposition(budget_tokens=60), tools())
    assert supposed.context is None
    assert supposed.notes == ("context not run: 2 texts are not in this copy",)


def test_a_copy_without_a_text_that_was_not_shown_has_none_either() -> None:
    relay, _ = opened()
    answer = relay.ask(QUESTION, model=MODEL, session_id=SESSION, budget_tokens=SMALL)
    receipt = receipt_of(relay, answer.receipt_id)
    gone = next(one["id"] for one in receipt.content["candidates"] if one["id"] not in ids(receipt))
    copy = redact(receipt, facts=[gone], quoting=False)
    supposed = whatif(copy, Supposition(budget_tokens=200), tools())
    assert supposed.notes == ("context not run: 1 text is not in this copy",)
    # A policy is asked about the answer alone.
    assert whatif(copy, Supposition(policy="halt-on CRITICAL")).verdict is not None

"""What a window would have been with something changed, and two windows beside each other."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations.adapters.observed_answers import observe_answer
from crp_integrations.errors import CRPError, PolicySyntaxError, RequestError
from crp_integrations.receipt.comparison import diff
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.replay_records import ReplayTools
from crp_integrations.receipt.whatif import Supposition, whatif
from crp_integrations.relay.defaults import default_verifier
from tests.doubles import HashEmbedder
from tests.receipt.relayed import ANSWER, MODEL, QUESTION, SESSION, asked, opened, receipt_of
from tests.relay.conftest import FACTS
from tests.relay.judges import MEASURED

ENGINES = ReplayTools(embedder=HashEmbedder(), verifier=default_verifier("alignment"))


def ids(receipt: Receipt) -> list[str]:
    """Ids of what was shown, in order."""
    facts = receipt.content["candidates"]
    return [facts[fact["at"]]["id"] for fact in receipt.content["envelope"]["facts"]]


def test_without_a_change_nothing_changes() -> None:
    found = whatif(asked(), Supposition())
    assert found.context is not None
    assert found.verdict is not None
    assert found.context.same
    assert found.verdict.same
    assert found.context.before == found.context.after


def test_a_smaller_budget_leaves_facts_out() -> None:
    receipt = asked()
    found = whatif(receipt, Supposition(budget_tokens=45))
    assert found.context is not None
    assert found.context.facts_out
    assert found.context.budget.after == 45
    assert found.context.tokens.after <= 45
    assert set(found.context.facts_out) < set(ids(receipt))
    assert any("in proportion to the recorded counts" in note for note in found.notes)


def test_the_same_budget_given_again_packs_the_same() -> None:
    relay, _ = opened()
    answer = relay.ask(QUESTION, model=MODEL, session_id=SESSION, budget_tokens=45)
    receipt = receipt_of(relay, answer.receipt_id)
    # With the tokenizer at hand a larger budget shows what the relay would have shown.
    wide = relay.ask(QUESTION, model=MODEL, budget_tokens=200).envelope
    counter = relay._world.engines.counter_for(MODEL)
    found = whatif(receipt, Supposition(budget_tokens=200), ReplayTools(counter=counter))
    assert found.context is not None
    assert found.context.after == wide.text
    assert not any("proportion" in note for note in found.notes)


def test_without_a_fact_the_verdict_on_the_answer_changes() -> None:
    receipt = asked(QUESTION, f"{FACTS[0]} {FACTS[2]}")
    shown = {one["id"]: receipt.text(one["leaf"]) for one in receipt.content["candidates"]}
    gone = next(id_ for id_, text in shown.items() if text == FACTS[0])
    found = whatif(receipt, Supposition(without=(gone,)), ENGINES)
    assert found.context is not None
    assert found.verdict is not None
    assert gone in found.context.facts_out
    assert FACTS[0] not in found.context.after
    assert found.verdict.grounding.after < found.verdict.grounding.before
    assert found.verdict.risk.after > found.verdict.risk.before
    assert "c1" in {claim.claim_id for claim in found.verdict.claims}


def test_another_context_is_not_judged_without_engines() -> None:
    receipt = asked()
    found = whatif(receipt, Supposition(without=(ids(receipt)[0],)))
    assert found.context is not None
    assert found.verdict is None
    assert any("verifier and embedder at hand" in note for note in found.notes)


def test_a_stricter_policy_withholds() -> None:
    found = whatif(asked(), Supposition(policy="block-fabrication; require-grounding 0.99"))
    assert found.context is not None
    assert found.verdict is not None
    assert found.context.same
    assert (found.verdict.decision_before, found.verdict.decision_after) == ("deliver", "withhold")
    assert found.verdict.violations_before == ()
    assert {one.partition(" ")[0] for one in found.verdict.violations_after} == {
        "block-fabrication",
        "require-grounding",
    }
    assert found.verdict.risk.before == found.verdict.risk.after


NORTHFIELD = "What revenue did Northfield Energy report?"


def test_another_context_is_judged_by_the_tier_that_its_answer_allows() -> None:
    receipt = asked(NORTHFIELD, "I like trains. " * 4, budget_tokens=80)
    envelope, policy = receipt.content["envelope"], receipt.content["policy"]
    # The envelope is better than what was said beside it.
    assert (envelope["quality_tier"], policy["tier"]) == ("S", "C")
    wanted = "require-quality S A B"
    counter = opened()[0]._world.engines.counter_for(MODEL)
    tools = ReplayTools(embedder=ENGINES.embedder, verifier=ENGINES.verifier, counter=counter)
    for change in (Supposition(policy=wanted), Supposition(policy=wanted, budget_tokens=80)):
        found = whatif(receipt, change, tools)
        assert found.verdict is not None
        assert found.context is not None
        assert found.context.tier_after.value == "S"
        assert found.verdict.decision_before == "deliver"
        assert found.verdict.decision_after == "unreachable"


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
    verdict = whatif(receipt, Supposition()).verdict
    assert verdict is not None
    assert verdict.same
    assert (verdict.decision_before, verdict.decision_after) == (decision, decision)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (Supposition(without=("nobody",)), RequestError, "'nobody' is not among the 5 candidates"),
        (Supposition(budget_tokens=-1), RequestError, "the budget is -1"),
        (Supposition(policy="halt-on everything"), PolicySyntaxError, "halt-on"),
    ],
)
def test_a_change_that_is_none_is_refused(change: Supposition, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        whatif(asked(), change)


def test_a_fact_of_a_context_that_was_made_elsewhere_cannot_be_left_out() -> None:
    relay, _ = opened()
    receipt = observe_answer(relay, ANSWER, list(FACTS), QUESTION).receipt
    assert receipt is not None
    shown = next(leaf.fact_id for leaf in receipt.leaves if leaf.fact_id)
    with pytest.raises(RequestError, match=f"'{shown}' cannot be left out: the receipt names no"):
        whatif(receipt, Supposition(without=(shown,)))


@pytest.mark.parametrize("change", [Supposition(budget_tokens=60), Supposition()])
@pytest.mark.parametrize("quoting", [True, False])
def test_a_copy_without_texts_has_no_figures_of_a_context(
    change: Supposition, quoting: bool
) -> None:
    receipt = asked()
    gone = ids(receipt)[:2]
    found = whatif(redact(receipt, facts=gone, quoting=quoting), change, ENGINES)
    assert found.context is None
    assert "context not run: 2 texts are not in this copy" in found.notes
    # The verdict beside the context as it was is none on the change.
    assert found.verdict is None


def test_a_copy_without_a_text_that_was_not_shown_has_none_either() -> None:
    relay, _ = opened()
    answer = relay.ask(QUESTION, model=MODEL, session_id=SESSION, budget_tokens=45)
    receipt = receipt_of(relay, answer.receipt_id)
    gone = next(one["id"] for one in receipt.content["candidates"] if one["id"] not in ids(receipt))
    copy = redact(receipt, facts=[gone], quoting=False)
    found = whatif(copy, Supposition(budget_tokens=200), ENGINES)
    assert "context not run: 1 text is not in this copy" in found.notes
    assert (found.context, found.verdict) == (None, None)
    # A policy is asked about the answer alone.
    assert whatif(copy, Supposition(policy="halt-on CRITICAL")).verdict is not None


def test_two_receipts_of_one_question_are_the_same() -> None:
    found = diff(asked(), asked())
    assert found.same
    assert found.differences == ()


def test_what_two_receipts_differ_in_is_told_by_part() -> None:
    relay, _ = opened(ANSWER, FACTS[0])
    first = relay.ask(QUESTION, model=MODEL, session_id=SESSION)
    second = relay.ask(QUESTION, model=MODEL, session_id="crp_sess_" + "t" * 16, budget_tokens=45)
    left, right = receipt_of(relay, first.receipt_id), receipt_of(relay, second.receipt_id)
    found = diff(left, right)
    assert not found.same
    assert found.facts_out
    assert not found.candidates_out
    parts = {one.part for one in found.differences}
    assert {"fit", "envelope", "report", "text"} <= parts
    places = [one.place for one in found.differences]
    assert "fit.budget_tokens" in places
    assert any(place.startswith("answer, byte ") for place in places)
    assert found.left_context.startswith("[1] ")

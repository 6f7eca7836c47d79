"""An answer that repeats what a sub-agent's report rejected is flagged with that report's reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import Fact, examine, rejected_claims
from crp_integrations.dpe.ports import Judgement
from crp_integrations.dpe.records import LONGEST, RejectedClaim
from crp_integrations.dpe.rejections import LEAST_WORDS, MOST, unique_claims, without_rejected
from crp_integrations.vocabulary import ClaimStatus, RiskLevel
from tests.adapters.langchain_doubles import Chat
from tests.judges import reply_to

CONTEXT = ["The fare from Aldbury to Rose Hill is 12 euros.", "Lunch is served from noon to two."]
QUESTION = "What does it cost to go to Rose Hill?"
SAID = "The fare from Aldbury to Rose Hill is 14 euros."


def conversation(result: str) -> list[dict[str, Any]]:
    call = {"id": "1", "type": "function", "function": {"name": "agent", "arguments": "{}"}}
    return [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "agent", "tool_call_id": "1", "content": result},
    ]


def rejected() -> tuple[RejectedClaim, ...]:
    return rejected_claims(examine(SAID, CONTEXT, QUESTION))


def above(answer: str, *context: str, result: str = SAID, **how: Any) -> Any:
    return examine(
        answer, list(context), QUESTION,
        conversation=conversation(result), rejected=rejected(), **how,
    )  # fmt: skip


def test_the_rejected_claim_names_the_wrong_words_and_why() -> None:
    (one,) = rejected()
    assert (one.text, one.wrong) == (SAID, "14 euros")
    assert "12 euros" in one.reason


@pytest.mark.parametrize(
    "answer",
    [
        SAID,
        "It costs 14 euros to go from Aldbury to Rose Hill.",
        "According to the agent, the fare from Aldbury to Rose Hill is 14 euros.",
        "The fare from Aldbury to Rose Hill is 14 euros. Lunch is served from noon to two.",
    ],
)
@pytest.mark.parametrize("wrapped", [str, lambda text: json.dumps({"answer": text})])
def test_a_repeat_is_flagged_with_the_reason(answer: str, wrapped: Any) -> None:
    plain = examine(answer, [], QUESTION, conversation=conversation(SAID))
    report = above(answer, result=wrapped(SAID + " Lunch is served from noon to two."))
    assert plain.risk_level is not RiskLevel.HIGH
    assert report.risk_level in (RiskLevel.HIGH, RiskLevel.CRITICAL)
    first = next(claim for claim in report.claims if claim.flagged)
    assert first.reason == rejected()[0].reason
    assert report.reasons[0].startswith("A sub-agent's report rejected")


@pytest.mark.parametrize(
    "answer",
    [
        "Lunch is served from noon to two.",
        "The fare from Aldbury to Rose Hill is not 14 euros.",
        "I could not find the fare from Aldbury to Rose Hill.",
    ],
)
def test_what_repeats_nothing_is_not_flagged(answer: str) -> None:
    report = above(answer, *CONTEXT)
    assert not any(claim.reason for claim in report.claims)


def test_a_correction_is_no_repeat() -> None:
    said = "The agent says the fare from Aldbury to Rose Hill is 14 euros, but it is 12 euros."
    assert not any(claim.reason for claim in above(said, *CONTEXT).claims)


def test_what_a_fact_states_is_no_repeat_and_what_a_text_states_is_one() -> None:
    fact = Fact(content=SAID)
    how: dict[str, Any] = {"conversation": conversation(SAID), "rejected": rejected()}
    assert examine(SAID, [fact], QUESTION, **how).risk_level is RiskLevel.LOW
    assert above(SAID, SAID).risk_level is RiskLevel.HIGH


@pytest.mark.parametrize("status", ["NOT_CHECKABLE", "UNSUPPORTED", "CONTRADICTED", "SUPPORTED"])
def test_a_judge_cannot_wave_a_repeat_through_without_a_quotation(status: str) -> None:
    """Its verdict stands where it quotes evidence, and the sub-agent's words are none."""

    def verdicts(asked: Any) -> dict[str, Any]:
        quote = {"in": "1", "text": SAID}
        word = {"n": 1, "status": status, "quotes": [quote], "kind": "NUMBER"}
        return {"id": asked["id"], "claims": [word], "unnumbered": []}

    model = Chat(reply=lambda sent: reply_to([str(one.content) for one in sent], verdicts))
    report = above(SAID, judge=model)
    assert report.checked_by.startswith("judge")
    assert report.claims[0].status is ClaimStatus.UNSUPPORTED
    assert report.risk_level is RiskLevel.HIGH
    assert report.claims[0].reason == rejected()[0].reason


CLAIMS = st.builds(
    RejectedClaim,
    text=st.text(max_size=LONGEST),
    wrong=st.text(max_size=20),
    reason=st.text(max_size=40),
)


SENTENCES = st.lists(
    st.from_regex(r"[^\W_]{1,8}", fullmatch=True), min_size=LEAST_WORDS, max_size=8
).map(" ".join)


@given(st.text(), st.text(), SENTENCES)
def test_no_tools_result_keeps_a_rejected_claim(before: str, behind: str, said: str) -> None:
    left = without_rejected(before + said + behind, [RejectedClaim(text=said, said=said)])
    assert said not in left
    assert without_rejected(before, []) == before


@given(st.text(), CLAIMS)
def test_any_text_and_any_claim_can_be_compared(text: str, claim: RejectedClaim) -> None:
    assert isinstance(without_rejected(text, [claim]), str)


@given(st.lists(CLAIMS))
def test_each_text_once(claims: list[RejectedClaim]) -> None:
    texts = [one.text for one in unique_claims(claims, claims)]
    assert sorted(texts) == sorted({one.text for one in claims})


def test_of_many_flagged_claims_the_first_are_given_on() -> None:
    answer = " ".join(f"Item {n} of the list costs {900 + n} euros." for n in range(40))
    context = [f"Item {n} of the list costs {100 + n} euros." for n in range(40)]
    assert len(rejected_claims(examine(answer, context))) <= MOST


def test_a_report_that_allows_a_claim_rejects_none() -> None:
    """Under `open` a model may say what it knows, and the report is of LOW risk."""
    (claim,) = examine(SAID, CONTEXT, QUESTION).claims
    report = examine(SAID, CONTEXT, QUESTION)
    assert rejected_claims(report)
    allowed = report.model_copy(update={"flagged": False, "risk_level": RiskLevel.LOW})
    assert claim.flagged
    assert rejected_claims(allowed) == ()


def test_a_short_claim_is_cut_out_of_no_other_word() -> None:
    text = "It is cheaper in May. Cheap."
    claim = RejectedClaim(text="cheap", said="cheap", wrong="cheap")
    assert "cheaper in May" in without_rejected(text, [claim])


def test_a_verifier_of_the_users_own_waves_no_repeat_through() -> None:
    class Unsure:
        identity = "unsure@1"
        passage = 4_000
        thresholds: dict[str, float] = {}

        def judge(self, claim: str, passages: Any) -> Judgement:
            return Judgement(0.0, 0.0, 1.0, 0)

    from crp_integrations.relay.storeless_functions import screened_answer

    report, _ = screened_answer(
        SAID, [], QUESTION, conversation=conversation(SAID), rejected=rejected(), verifier=Unsure()
    )
    assert report.checked_by == "unsure@1"
    assert report.claims[0].reason == rejected()[0].reason
    assert report.risk_level is RiskLevel.HIGH


def test_what_a_sub_agent_invented_is_no_source_in_other_words() -> None:
    """The invented name stands in the rejected claim, and stays an invention above."""
    said = "The Aldbury bridge was designed by Hans Gruber."
    told = (RejectedClaim(text=said, said=said, wrong="Hans Gruber", reason="It is invented."),)
    answer = "Hans Gruber is the engineer whom the town honours for it with a statue."
    for claims in ((), told):
        report = examine(answer, [], QUESTION, conversation=conversation(said), rejected=claims)
        assert report.risk_level is not RiskLevel.LOW

"""Many questions at once, and what is said of them together."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import LimitReached, ModelRateLimited, RequestError, SafetyHalt
from crp_integrations.headers import names
from crp_integrations.headers.parse import read
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.relay.strategies.continuation import worst_headers
from tests.doubles import ScriptedModel
from tests.relay.conftest import Opener
from tests.relay.played import (
    COMMISSIONED,
    COOLING,
    INVENTED,
    MODEL,
    NEEDS,
    QUESTION,
    REVENUE,
    WHOLE,
    made,
    question,
    session,
)

ASKED = tuple(f"{need}?" for need in NEEDS)
OWN = {**dict(zip(ASKED, (COMMISSIONED, REVENUE, COOLING), strict=True)), QUESTION: WHOLE}


class Each(ScriptedModel):
    def __init__(self, **answers: object) -> None:
        super().__init__()
        self.answers = {**OWN, **answers}
        self.lock = threading.Lock()

    def call(self, call: ModelCall) -> Reply:
        with self.lock:
            self.calls.append(call)
        said = self.answers[question(call)]
        if isinstance(said, BaseException):
            raise said
        return Reply(text=str(said), model=call.model)


def test_each_question_is_answered_in_its_place_and_session(open_relay: Opener) -> None:
    relay = made(open_relay, Each())
    found = relay.batch(ASKED, model=MODEL)
    assert [answer.text for answer in found.answers] == [COMMISSIONED, REVENUE, COOLING]
    assert found.errors == (None, None, None)
    assert len({answer.session_id for answer in found.answers}) == 3
    assert relay.verify().sessions == 3


def test_the_headers_say_the_worst_of_all(open_relay: Opener) -> None:
    relay = made(open_relay, Each(**{ASKED[0]: f"{COMMISSIONED} {INVENTED}"}))
    found = relay.batch(ASKED, model=MODEL)
    said, bad = read(found.headers), read(found.answers[0].headers)
    assert said.hallucination_risk == bad.hallucination_risk == "CRITICAL"
    assert said.hallucination_score == bad.hallucination_score
    assert said.grounding_pct == bad.grounding_pct < 1.0
    assert said.safety_budget == bad.safety_budget == 0.65
    each = [read(answer.headers) for answer in found.answers]
    assert said.quality_tier == max((one.quality_tier for one in each), key=lambda t: t.place)
    assert said.claim_count == sum(one.claim_count for one in each)
    assert said.fabrications == sum(one.fabrications for one in each)


def test_a_question_that_fails_leaves_the_others(open_relay: Opener) -> None:
    relay = made(open_relay, Each(**{ASKED[1]: ModelRateLimited("slow down")}))
    found = relay.batch(ASKED, model=MODEL)
    assert [answer and answer.text for answer in found.answers] == [COMMISSIONED, None, COOLING]
    assert [type(error) for error in found.errors] == [type(None), ModelRateLimited, type(None)]
    assert read(found.headers).hallucination_risk == "LOW"
    assert relay.verify().windows == 3


def test_what_is_withheld_is_an_error_and_counts_in_the_headers(open_relay: Opener) -> None:
    relay = made(open_relay, Each(**{ASKED[0]: f"{COMMISSIONED} {INVENTED}"}))
    found = relay.batch(ASKED, model=MODEL, policy="halt-on CRITICAL")
    assert found.answers[0] is None
    assert isinstance(found.errors[0], SafetyHalt)
    assert read(found.headers).hallucination_risk == "CRITICAL"


def test_when_all_fail_nothing_is_said(open_relay: Opener) -> None:
    relay = made(open_relay, Each(**dict.fromkeys(ASKED, ModelRateLimited("slow down"))))
    found = relay.batch(ASKED, model=MODEL)
    assert found.answers == (None, None, None)
    assert all(isinstance(error, ModelRateLimited) for error in found.errors)
    assert found.headers == {}


async def test_the_asynchronous_twin_answers_alike(open_relay: Opener) -> None:
    found = await made(open_relay, Each()).abatch(ASKED, model=MODEL)
    assert [answer.text for answer in found.answers] == [COMMISSIONED, REVENUE, COOLING]


def test_each_question_gets_its_strategy(open_relay: Opener) -> None:
    relay = made(open_relay, Each(**{need: OWN[f"{need}?"] for need in NEEDS}))
    found = relay.batch([QUESTION, ASKED[0]], model=MODEL, strategy="hierarchical")
    assert [len(answer.parts) for answer in found.answers] == [3, 0]
    relay = made(open_relay, ScriptedModel(COMMISSIONED))
    found = relay.batch([f"List all dates: {ASKED[0]}", ASKED[0]], strategy="auto", model=MODEL)
    assert [answer.envelope.strategy for answer in found.answers] == ["pull", "push"]


def test_questions_of_one_session_share_its_budget(open_relay: Opener) -> None:
    relay = made(open_relay, Each(**dict.fromkeys(ASKED, INVENTED)))
    first = relay.ask(QUESTION, model=MODEL)
    found = relay.batch(ASKED, model=MODEL, session_id=first.session_id)
    assert len([answer for answer in found.answers if answer]) == 3
    assert session(relay, first.session_id).safety_budget == 0.55
    assert relay.verify().windows == 4


def test_none_and_too_many_are_refused(open_relay: Opener) -> None:
    relay = made(open_relay, Each(), dispatch={"batch_size": 2})
    with pytest.raises(RequestError, match="no question"):
        relay.batch([])
    with pytest.raises(LimitReached, match="3 questions, at most 2"):
        relay.batch(ASKED, model=MODEL)
    with pytest.raises(RequestError, match="query is empty"):
        relay.batch([ASKED[0], "  "], model=MODEL)


RISKS = ("LOW", "MEDIUM", "HIGH", "CRITICAL")
fractions = st.integers(0, 1000).map(lambda n: f"{n / 1000:.3f}")


@settings(max_examples=50)
@given(
    st.lists(
        st.fixed_dictionaries(
            {names.RISK: st.sampled_from(RISKS), names.GROUNDING_PCT: fractions},
            optional={
                names.QUALITY_TIER: st.sampled_from("SABCD"),
                names.SAFETY_BUDGET: fractions,
                names.RISK_SCORE: fractions,
                names.FABRICATIONS: st.integers(0, 9).map(str),
            },
        ),
        min_size=1,
        max_size=6,
    )
)
def test_no_value_is_better_than_that_of_any_window(each: list[dict[str, str]]) -> None:
    said = worst_headers(each)
    for one in each:
        assert RISKS.index(said[names.RISK]) >= RISKS.index(one[names.RISK])
        assert float(said[names.GROUNDING_PCT]) <= float(one[names.GROUNDING_PCT])
        if names.QUALITY_TIER in one:
            tier = said[names.QUALITY_TIER]
            assert "SABCD".index(tier) >= "SABCD".index(one[names.QUALITY_TIER])
        if names.SAFETY_BUDGET in one:
            assert float(said[names.SAFETY_BUDGET]) <= float(one[names.SAFETY_BUDGET])
        if names.RISK_SCORE in one:
            assert float(said[names.RISK_SCORE]) >= float(one[names.RISK_SCORE])
        if names.FABRICATIONS in one:
            assert int(said[names.FABRICATIONS]) >= int(one[names.FABRICATIONS])
    # Each value is one that a window has, so its spelling is one that a header may have.
    assert said[names.GROUNDING_PCT] in {one[names.GROUNDING_PCT] for one in each}
    assert worst_headers(list(reversed(each))).keys() == said.keys()

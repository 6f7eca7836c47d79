"""Which strategy a question gets, and what push and pull do.

Many questions at once, and what is said of them together.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations import Relay, asked_by
from crp_integrations.envelope.prompt import HIERARCHICAL, PULL
from crp_integrations.errors import LimitReached, ModelRateLimited, RequestError, SafetyHalt
from crp_integrations.headers import names
from crp_integrations.headers.codec import parse_response
from crp_integrations.headers.response_headers import answer_headers
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.relay.composition import intent
from crp_integrations.relay.continuation import worst_headers
from crp_integrations.vocabulary import EventType, GroundingMode, Strategy
from tests.doubles import ScriptedModel
from tests.relay.conftest import Opener
from tests.relay.need_questions import (
    COMMISSIONED,
    COOLING,
    INVENTED,
    MODEL,
    NEEDS,
    QUESTION,
    REVENUE,
    WHOLE,
    WORSE,
    event_data,
    made,
    question,
    system,
    windows,
)

# What people ask, with the strategy that a reader would give it (related facts §7).
ASKED: tuple[tuple[str, Strategy], ...] = tuple(
    (question, strategy)
    for strategy, questions in {
        Strategy.PUSH: (
            "When was the Meridian reactor commissioned?",
            "Who operates the plant at Northfield?",
            "What is the notice period for data breaches?",
            "How many employees did the company have in 2023?",
            "What does Article 5 of the EU AI Act prohibit?",
            "Where is the head office of the insurer?",
            "Is the licence still valid?",
            "Why was the shipment delayed?",
            "What colour is the warning light when the pump fails?",
            "Explain the refund policy.",
            "Which valve closes first?",
            "What happened at the annual meeting?",
        ),
        Strategy.PULL: (
            "Extract the parties, dates and amounts from the lease.",
            "List all deadlines in the grant agreement.",
            "List every supplier named in the audit report.",
            "Find all mentions of asbestos in the survey.",
            "Enumerate the obligations of the processor.",
            "Give me all dates in the correspondence.",
            "Find every clause on termination.",
            "Pull out the figures on emissions.",
        ),
        Strategy.REFLEXIVE: (
            "Verify that the policy covers flood damage.",
            "Double-check the dosage for children under six.",
            "Is it true that the bridge was closed in May? Please fact-check.",
            "Make sure the numbers are right: what was the margin in 2022?",
            "What is the maximum load? Check your answer.",
            "Confirm with the sources whether the patent has lapsed.",
            "Please verify the commissioning date.",
        ),
        Strategy.HIERARCHICAL: (
            "Compare the GDPR and the EU AI Act on fines.",
            "What are the differences between plan A and plan B?",
            "How does the 2022 report differ from the 2023 report?",
            "Contrast the two proposals.",
            "Postgres versus SQLite for the audit store: which one?",
            "What are the pros and cons of leasing?",
            "Synthesise the findings of the three inspections.",
            "Summarise across all interviews what staff think of the move.",
            "What trade-offs does the design make?",
        ),
        Strategy.AGENTIC: (
            "Investigate why revenue fell in the third quarter.",
            "Work out, step by step, what the total cost of ownership is.",
            "First find the supplier of the valve, then tell me its warranty.",
            "Research which permits are needed and plan how to get them.",
            "Figure out which customers are affected by the recall.",
            "Find out who owns the parcel, and then whether it is mortgaged.",
        ),
        Strategy.STREAMING: (
            "Stream the incident summary as it is written.",
            "Answer in real time: what is the status of the outage?",
        ),
        Strategy.BATCH: (
            "Answer each of the following questions in bulk.",
            "For each of these tickets, give the category.",
        ),
        Strategy.FAN_OUT: (
            "In parallel, find the tax rate, the population and the area of each canton.",
            "Look into the three sites side by side, independently of each other.",
        ),
    }.items()
    for question in questions
)

# Written after the words were last changed, which have not been changed for them since.
HELD_OUT: tuple[tuple[str, Strategy], ...] = (
    ("Who signed the contract?", Strategy.PUSH),
    ("How long is the warranty?", Strategy.PUSH),
    ("What does the manual say about lubrication?", Strategy.PUSH),
    ("When does the lease end?", Strategy.PUSH),
    ("Tell me about the traceability requirement.", Strategy.PUSH),
    ("What is the different colour code for?", Strategy.PUSH),
    ("Extract the IBANs from the invoices.", Strategy.PULL),
    ("Which names appear in the minutes? Give me all of them.", Strategy.PULL),
    ("List the risks the auditor named.", Strategy.PULL),
    ("Collect every date on which the alarm went off.", Strategy.PULL),
    ("Find all references to Regulation 2016/679.", Strategy.PULL),
    ("Are you sure the threshold is 50? Verify it.", Strategy.REFLEXIVE),
    ("Confirm that no penalty applies.", Strategy.REFLEXIVE),
    ("I need a checked answer: is the dose 5 mg?", Strategy.REFLEXIVE),
    ("Make certain the quoted revenue is right.", Strategy.REFLEXIVE),
    ("How do the two vendors compare on price?", Strategy.HIERARCHICAL),
    ("What do the 2021 and 2022 audits have in common?", Strategy.HIERARCHICAL),
    ("Give a synthesis of the expert opinions.", Strategy.HIERARCHICAL),
    ("Plan how we migrate the archive, with the constraints of each system.", Strategy.AGENTIC),
    ("Trace the root cause of the outage through the logs.", Strategy.AGENTIC),
    ("Investigate who approved the change and when.", Strategy.AGENTIC),
    ("Run these 40 questions against the handbook.", Strategy.BATCH),
    ("Check the three registers in parallel.", Strategy.FAN_OUT),
    ("Give me the result in real time.", Strategy.STREAMING),
)


@pytest.mark.parametrize(("asked", "least"), [(ASKED, 48), (HELD_OUT, 20)])
def test_the_words_of_a_question_tell_its_strategy(
    asked: tuple[tuple[str, Strategy], ...], least: int
) -> None:
    wrong = [
        (question, taken) for question, wanted in asked if (taken := intent(question)) != wanted
    ]
    assert len(asked) - len(wrong) >= least, wrong


def test_auto_takes_the_strategy_of_the_words(open_relay: Opener) -> None:
    relay = made(open_relay, ScriptedModel(WHOLE))
    assert relay.ask("List all dates.", model=MODEL, strategy="auto").envelope.strategy == "pull"
    assert relay.ask("When was it?", model=MODEL, strategy="auto").envelope.strategy == "push"


@pytest.mark.parametrize(
    ("asking", "taken"),
    [
        ({}, "push"),
        # The best of those that are accepted, where none is named.
        ({"accept_strategies": ["pull", "push"]}, "pull"),
        # One that is named and accepted, whatever its place.
        ({"accept_strategies": ["push", "pull"], "strategy": "pull"}, "pull"),
        # What is accepted comes before what is named, and before the words of the question.
        ({"accept_strategies": ["pull", "push"], "strategy": "reflexive"}, "pull"),
        ({"accept_strategies": ["push"], "strategy": "auto"}, "push"),
        ({"accept_strategies": ["pull", "reflexive"], "strategy": "auto"}, "reflexive"),
    ],
)
def test_what_the_caller_accepts_comes_first(
    open_relay: Opener, asking: dict[str, object], taken: str
) -> None:
    asked = "Verify when the Meridian reactor was commissioned."
    relay = made(open_relay, ScriptedModel(COMMISSIONED))
    assert relay.ask(asked, model=MODEL, **asking).headers["CRP-Context-Strategy"] == taken
    assert relay.turn(asked, model=MODEL, **asking).request.strategy == taken


def test_an_upgrade_on_risk_comes_after_what_the_caller_accepts(open_relay: Opener) -> None:
    policy = "upgrade-on-risk reflexive; require-grounding 0.90"

    def asked(**asking: object) -> tuple[Relay, str]:
        relay = made(open_relay, ScriptedModel(INVENTED, COMMISSIONED, "NONE"))
        answer = relay.ask(QUESTION, model=MODEL, policy=policy, **asking)
        return relay, answer.session_id

    relay, session = asked()
    (upgraded,) = event_data(relay, session, EventType.STRATEGY_UPGRADE)
    assert (upgraded["to"], upgraded["why"]) == ("reflexive", "risk")
    assert [node.strategy for node in windows(relay, session)] == ["reflexive"]
    relay, session = asked(accept_strategies=["push"])
    assert event_data(relay, session, EventType.STRATEGY_UPGRADE) == []
    assert len(event_data(relay, session, EventType.RE_DISPATCH)) == 1
    assert [node.strategy for node in windows(relay, session)] == ["push"]


@pytest.mark.parametrize("upgrade", ["reflexive", "hierarchical", "batch"])
def test_each_upgrade_that_a_policy_can_name_is_played(open_relay: Opener, upgrade: str) -> None:
    model = ScriptedModel(INVENTED, WHOLE, "NONE")
    relay = made(open_relay, model)
    policy = f"upgrade-on-risk {upgrade}; require-grounding 0.90"
    answer = relay.ask(QUESTION, model=MODEL, policy=policy)
    assert answer.text == WHOLE
    assert answer.headers["CRP-Context-Strategy"] == upgrade
    assert len(model.calls) == (3 if upgrade == "reflexive" else 2)
    assert (HIERARCHICAL in system(model.calls[1])) is (upgrade == "hierarchical")


def test_pull_looks_wider_is_strict_and_extracts(open_relay: Opener) -> None:
    numbered = [
        f"Meridian pump number {n} was serviced on day {n} of the year {1900 + n}, says log {n}."
        for n in range(100)
    ]

    def asked(strategy: str) -> tuple[ScriptedModel, int, GroundingMode]:
        model = ScriptedModel(numbered[7])
        # One window, whose envelope the answer has: what is left open is not gone on with.
        alone = {"continue_incomplete": False}
        relay = made(open_relay, model, envelope={"k_lexical": 0}, dispatch=alone)
        relay.fabric.add(numbered)
        seen = relay.preview(
            "When was each Meridian pump serviced?", model=MODEL, strategy=strategy
        )
        answer = relay.ask("When was each Meridian pump serviced?", model=MODEL, strategy=strategy)
        assert seen.etag == answer.envelope.etag
        return model, answer.envelope.total_facts_available, answer.envelope.grounding_mode

    model, found, grounding = asked("pull")
    assert len(model.calls) == 1
    assert PULL in system(model.calls[0])
    assert "only" in system(model.calls[0]).split(PULL)[0].lower()
    assert found >= 100
    assert grounding is GroundingMode.STRICT
    model, found, grounding = asked("push")
    assert PULL not in system(model.calls[0])
    assert found < 60
    assert grounding is GroundingMode.PREFERRED


def test_parts_branches_batches_and_sub_agents_without_a_model() -> None:
    relay = Relay.open()
    relay.add(
        [
            "The lease of the flat in Rue Haute ends on 30 June 2027 and can be renewed once.",
            "Pets need the landlord's written consent under the lease of the flat in Rue Haute.",
            "The deposit for the flat in Rue Haute is three months' rent, held at Banque du Midi.",
        ]
    )
    both = "When does the lease end, and what is the deposit?"
    assert len(relay.ask(both, strategy="hierarchical").parts) == 2
    root = relay.ask("When does the lease end?", k=1)
    ids: dict[str, Any] = {"session_id": root.session_id}
    after = {**ids, "continuation_ids": [root.continuation_id]}
    left = relay.ask("Are pets allowed?", **after)
    right = relay.ask("How high is the deposit?", **after)
    joined = {**ids, "continuation_ids": [left.continuation_id, right.continuation_id]}
    relay.ask("What must I pay or ask for before I move in?", **joined)
    nodes = windows(relay, root.session_id)
    # The two branches share a number, and stand in the order of their ids.
    assert sorted(node.pattern for node in nodes) == ["BRANCH", "FAN_IN", "LINEAR", "LINEAR"]
    assert [node.window_number for node in nodes] == [1, 2, 2, 3]
    found = relay.batch(["When does the lease end?", "Who holds the deposit?"])
    assert found.errors == (None, None)
    down = relay.delegate(root.session_id)
    sub = relay.ask("Are pets allowed?", **asked_by(down))
    assert sub.headers["CRP-Agent-Loop-Depth"] == "1"


BATCHED = tuple(f"{need}?" for need in NEEDS)
OWN = {**dict(zip(BATCHED, (COMMISSIONED, REVENUE, COOLING), strict=True)), QUESTION: WHOLE}


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
    found = relay.batch(BATCHED, model=MODEL)
    assert [answer.text for answer in found.answers] == [COMMISSIONED, REVENUE, COOLING]
    assert found.errors == (None, None, None)
    assert len({answer.session_id for answer in found.answers}) == 3
    assert relay.verify().sessions == 3


def test_the_headers_say_the_worst_of_all(open_relay: Opener) -> None:
    relay = made(open_relay, Each(**{BATCHED[0]: WORSE}))
    found = relay.batch(BATCHED, model=MODEL)
    said, bad = parse_response(found.headers), parse_response(found.answers[0].headers)
    assert said.hallucination_risk == bad.hallucination_risk == "CRITICAL"
    assert said.hallucination_score == bad.hallucination_score
    assert said.grounding_pct == bad.grounding_pct < 1.0
    assert said.safety_budget == bad.safety_budget == 0.65
    each = [parse_response(answer.headers) for answer in found.answers]
    assert said.quality_tier == max((one.quality_tier for one in each), key=lambda t: t.place)
    assert said.claim_count == sum(one.claim_count for one in each)
    assert said.fabrications == sum(one.fabrications for one in each)


def test_a_batch_has_every_header_of_an_answer_that_is_not_of_its_window(
    open_relay: Opener,
) -> None:
    relay = made(open_relay, Each(**{BATCHED[0]: WORSE}))
    batch = relay.batch(BATCHED, model=MODEL)
    each = [answer_headers(answer.report) for answer in batch.answers]
    shared = {name for name in set.intersection(*map(set, each)) if name != names.ATTRIBUTION}
    assert {names.COMPLETENESS, names.FLOW, names.OMISSIONS, names.AI_ACT} <= shared
    assert shared <= batch.headers.keys()


def test_a_batch_has_the_worst_value_and_none_that_an_answer_lacks() -> None:
    full = {
        names.COMPLETENESS: "COMPLETE; sub-queries=2/2",
        names.REPETITION: "MINOR; overlap=0.2",
        names.FLOW: "0.9",
        names.DISTORTIONS: "0",
        names.OMISSIONS: "CRITICAL:0, HIGH:1, MEDIUM:2",
        names.PERSONAL: "false",
        names.ISO_CONTROLS: "A.6.2.8",
    }
    part = {
        names.COMPLETENESS: "PARTIAL; sub-queries=1/2; uncovered=fee",
        names.REPETITION: "NONE",
        names.FLOW: "0.34; remediation=stitched",
        names.DISTORTIONS: "1; types=NUMBER_CHANGED",
        names.OMISSIONS: "CRITICAL:1, HIGH:0, MEDIUM:0",
        names.PERSONAL: "true",
        names.ISO_CONTROLS: "A.7.5",
    }
    worst = worst_headers([full, part])
    wanted = part | {names.REPETITION: full[names.REPETITION]}
    del wanted[names.ISO_CONTROLS]
    assert worst == wanted | {names.PROTOCOL: worst[names.PROTOCOL]}
    unread = {name: value for name, value in full.items() if name != names.COMPLETENESS}
    assert names.COMPLETENESS not in worst_headers([full, unread])


def test_a_question_that_fails_leaves_the_others(open_relay: Opener) -> None:
    relay = made(open_relay, Each(**{BATCHED[1]: ModelRateLimited("slow down")}))
    found = relay.batch(BATCHED, model=MODEL)
    assert [answer and answer.text for answer in found.answers] == [COMMISSIONED, None, COOLING]
    assert [type(error) for error in found.errors] == [type(None), ModelRateLimited, type(None)]
    assert parse_response(found.headers).hallucination_risk == "LOW"
    assert relay.verify().windows == 3


def test_what_is_withheld_is_an_error_and_counts_in_the_headers(open_relay: Opener) -> None:
    relay = made(open_relay, Each(**{BATCHED[0]: WORSE}))
    found = relay.batch(BATCHED, model=MODEL, policy="halt-on CRITICAL")
    assert found.answers[0] is None
    assert isinstance(found.errors[0], SafetyHalt)
    assert parse_response(found.headers).hallucination_risk == "CRITICAL"


def test_none_and_too_many_are_refused(open_relay: Opener) -> None:
    relay = made(open_relay, Each(), dispatch={"batch_size": 2})
    with pytest.raises(RequestError, match="no question"):
        relay.batch([])
    with pytest.raises(LimitReached, match="3 questions, at most 2"):
        relay.batch(BATCHED, model=MODEL)
    with pytest.raises(RequestError, match="query is empty"):
        relay.batch([BATCHED[0], "  "], model=MODEL)


RISKS = ("LOW", "UNKNOWN", "MEDIUM", "HIGH", "CRITICAL")
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
        if names.RISK_SCORE in one and said[names.RISK] != "UNKNOWN":
            assert float(said[names.RISK_SCORE]) >= float(one[names.RISK_SCORE])
        if names.FABRICATIONS in one:
            assert int(said[names.FABRICATIONS]) >= int(one[names.FABRICATIONS])
    assert not (said[names.RISK] == "UNKNOWN" and names.RISK_SCORE in said)
    # Each value is one that a window has, so its spelling is one that a header may have.
    assert said[names.GROUNDING_PCT] in {one[names.GROUNDING_PCT] for one in each}
    assert worst_headers(list(reversed(each))).keys() == said.keys()

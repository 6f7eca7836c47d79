"""A policy that nothing can measure is refused at every door; where a judge reads, it follows him."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from starlette.testclient import TestClient

from crp_integrations import Relay
from crp_integrations.errors import (
    ConfigError,
    CRPError,
    ModelError,
    QualityUnreachable,
    RequestError,
    SafetyHalt,
)
from crp_integrations.gateway import GatewaySettings
from crp_integrations.langchain import CRPGate, CRPMiddleware, CRPRunnable
from crp_integrations.litellm import CRPProxyHook
from crp_integrations.llama_index import CRPAgentLLM, CRPQueryEngine
from crp_integrations.relay.judge import Judge
from crp_integrations.relay.settings import load
from tests.adapters import langchain_doubles as langchain
from tests.adapters import llama_index_doubles as llama_index
from tests.adapters.litellm_deployments import ASKED, entry, router
from tests.doubles import stands
from tests.gateway.application import ASKED as GATEWAY_ASKED
from tests.gateway.application import BODY, FAST, application, fill, key_for
from tests.gateway.application import FACTS as PLANTS
from tests.gateway.application import opened as gateway_opened
from tests.judges import reply_to
from tests.relay.judges import scripted_judge
from tests.servers import openai_double

FACTS = langchain.FACTS
QUESTION = "How much power does the Meridian reactor deliver?"
# Neither stands in the facts word for word, so that somebody has to read it.
RIGHT = "The reactor at Meridian gives 412 megawatts of power."
WRONG = "The reactor at Meridian gives 512 megawatts of power."
DIRECTIVES = (
    "halt-on HIGH",
    "require-grounding 0.90",
    "require-entailment 0.85",
    "block-ungrounded",
    "block-parametric",
    "block-distortion",
    "block-fabrication",
    "default-src context",
)
COMPLETE = "require-completeness 0.80"
DEMANDS = (*DIRECTIVES, COMPLETE, "upgrade-on-risk reflexive")
PROFILES = ("profile=medical", "profile=financial")
REFUSED = r"every answer to be read before it is shown, and .*judge=.*'unchecked allow'"


def reading(messages: Sequence[BaseMessage]) -> str:
    """A judge that goes by the figures."""
    return reply_to([str(one.content) for one in messages])


def failing(messages: Sequence[BaseMessage]) -> BaseException:
    """A judge whose provider is down."""
    return ModelError("the provider is down")


def judge_of(reply: Callable[[Sequence[BaseMessage]], Any], **how: Any) -> Judge:
    return Judge(langchain.Chat(reply=reply, model_name="judge-1"), retries=0, **how)


# --- the doors: each answers under a policy, or raises ------------------------------------------


def by_ask(answer: str, policy: str, judge: Any) -> None:
    relay = langchain.opened(llm=langchain.scripted(answer), judge=judge)
    relay.ask(QUESTION, policy=policy)


def by_relays_policy(answer: str, policy: str, judge: Any) -> None:
    relay = langchain.opened(llm=langchain.scripted(answer), judge=judge, policy=policy)
    relay.ask(QUESTION)


def by_judge_of_the_call(answer: str, policy: str, judge: Any) -> None:
    relay = langchain.opened(llm=langchain.scripted(answer), policy=policy)
    relay.ask(QUESTION, judge=judge)


def by_live_stream(answer: str, policy: str, judge: Any) -> None:
    relay = langchain.opened(llm=langchain.scripted(answer), judge=judge)
    list(relay.stream(QUESTION, live=True, policy=policy))


def by_batch(answer: str, policy: str, judge: Any) -> None:
    relay = langchain.opened(llm=langchain.scripted(answer), judge=judge)
    (error,) = relay.batch([QUESTION], policy=policy).errors
    if error is not None:
        raise error


def by_runnable(answer: str, policy: str, judge: Any) -> None:
    chain = CRPRunnable(
        langchain.opened(judge=judge), llm=langchain.scripted(answer), policy=policy
    )
    chain.invoke(QUESTION)


def by_middleware(answer: str, policy: str, judge: Any) -> None:
    middleware = CRPMiddleware(langchain.opened(), judge=judge, policy=policy)
    agent = create_agent(langchain.scripted(answer), [], middleware=[middleware])
    agent.invoke({"messages": [("user", QUESTION)]})


def by_gate(answer: str, policy: str, judge: Any) -> None:
    gate = CRPGate(policy, judge=judge)
    gate.invoke({"answer": answer, "context": list(FACTS), "question": QUESTION})


def by_query_engine(answer: str, policy: str, judge: Any) -> None:
    engine = CRPQueryEngine(
        llama_index.opened(), llm=llama_index.scripted(answer), judge=judge, policy=policy
    )
    engine.query(QUESTION)


def by_router(answer: str, policy: str, judge: Any) -> None:
    with openai_double(text=answer) as server:
        routed = router(
            langchain.opened(), entry(server, "main", "gpt-4o"), policy=policy, judge=judge
        )
        routed.completion("main", [{**ASKED[-1], "content": QUESTION}])


def by_gateway(answer: str, policy: str, judge: Any) -> None:
    """The gateway's refusals as the errors that they stand for."""
    with TemporaryDirectory() as folder, openai_double(text=answer) as server:
        fill(Path(folder), "acme", list(FACTS))
        key, kept = key_for("acme")
        app = application(
            Path(folder), server, kept, settings=GatewaySettings(**FAST), options={"judge": judge}
        )
        with TestClient(app) as client:
            response = client.post(
                "/v1/chat/completions",
                json={**BODY, "messages": [{"role": "user", "content": QUESTION}]},
                headers={"Authorization": f"Bearer {key}", "CRP-Safety-Policy": policy},
            )
    if response.status_code == 200:
        return
    message = response.json()["error"]["message"]
    if response.status_code == 503:
        raise QualityUnreachable(message)
    if response.status_code == 451:
        raise SafetyHalt(message, directive=message.rpartition("(")[2].partition(", found")[0])
    assert response.status_code == 400, message
    assert server.requests == []
    raise RequestError(message)


DOORS = (
    by_ask,
    by_relays_policy,
    by_judge_of_the_call,
    by_live_stream,
    by_batch,
    by_runnable,
    by_middleware,
    by_gate,
    by_query_engine,
    by_router,
    by_gateway,
)
# Their questions bring no judge, so what is wrong shows before the first of them.
CLOSED = (by_middleware, by_gate, by_query_engine)
each_door = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)


@each_door
def test_without_a_reader_every_demand_is_refused(door: Any) -> None:
    wanted = ConfigError if door in CLOSED else RequestError
    for policy in (*DEMANDS, *PROFILES):
        with pytest.raises(wanted, match=REFUSED) as caught:
            door(RIGHT, policy, None)
        if policy in DEMANDS:
            assert policy in str(caught.value)


@each_door
def test_without_a_reader_an_answer_passes_where_that_is_allowed(door: Any) -> None:
    for policy in DEMANDS:
        door(RIGHT, f"{policy}; unchecked allow", None)


@each_door
@pytest.mark.parametrize("how", [{"when": "sample:0.5"}, {"mode": "background"}])
def test_a_judge_that_may_not_speak_in_time_is_no_reader(door: Any, how: dict[str, str]) -> None:
    more = {"on_report": print} if "mode" in how else {}
    with pytest.raises((ConfigError, RequestError), match=r"the judge (reads a sample|works in)"):
        door(RIGHT, "halt-on HIGH", judge_of(reading, **how, **more))


@each_door
def test_a_judge_that_reads_decides_for_every_directive(door: Any) -> None:
    for policy in DIRECTIVES:
        door(RIGHT, policy, judge_of(reading))
        if policy == "block-fabrication":
            # A figure in the place of another one is no invention.
            door(WRONG, policy, judge_of(reading))
            continue
        with pytest.raises(SafetyHalt) as caught:
            # What is wrong is no less so where the unread may pass.
            door(WRONG, f"{policy}; unchecked allow", judge_of(reading))
        assert caught.value.directive.startswith(policy)


@each_door
def test_what_the_judge_did_not_read_is_withheld_unless_it_is_allowed(door: Any) -> None:
    for policy in DIRECTIVES:
        with pytest.raises(SafetyHalt, match="not read: the judge failed") as caught:
            door(RIGHT, policy, judge_of(failing))
        assert "1 of 1 claim was not read" in str(caught.value)
        door(RIGHT, f"{policy}; unchecked allow", judge_of(failing))


@each_door
def test_whether_an_answer_is_complete_is_read_or_it_is_unmet(door: Any) -> None:
    door(RIGHT, COMPLETE, scripted_judge(needs=(True,)))
    for judge, why in (
        (scripted_judge(needs=(False,)), r"0 of 1 need answered in 1 window$|it is 0"),
        (judge_of(failing), "it is not read: the judge failed: ModelError"),
        (judge_of(reading), "it is not read: the judge did not tell which parts"),
    ):
        with pytest.raises(QualityUnreachable, match=rf"{COMPLETE} is not met.*{why}"):
            door(RIGHT, COMPLETE, judge)
    door(RIGHT, f"{COMPLETE}; unchecked allow", judge_of(failing))


# --- readers that are no judge, and requests that name what they accept -------------------------


def test_the_documents_arithmetic_is_a_reader() -> None:
    relay = langchain.opened(llm=langchain.scripted(RIGHT), preset="literal")
    answer = relay.ask(QUESTION, policy="halt-on CRITICAL")
    assert answer.report.risk_level.value != "UNKNOWN"
    CRPGate("halt-on CRITICAL", settings=load(preset="literal"))


def test_a_judge_that_is_asked_in_doubt_alone_is_a_reader() -> None:
    by_ask(RIGHT, "halt-on HIGH", judge_of(reading, when="doubt"))
    with pytest.raises(SafetyHalt, match="not read"):
        by_ask(RIGHT, "halt-on HIGH", judge_of(failing, when="doubt"))


def test_an_accepted_risk_is_a_demand() -> None:
    relay = langchain.opened(llm=langchain.scripted(RIGHT))
    with pytest.raises(RequestError, match="accept-risk MEDIUM needs every answer"):
        relay.ask(QUESTION, accept_risk="MEDIUM")
    assert relay.ask(QUESTION, accept_risk="CRITICAL").report.risk_level.value == "UNKNOWN"
    assert relay.ask(QUESTION, accept_risk="MEDIUM", policy="unchecked allow").text
    with pytest.raises(SafetyHalt, match="1 of 1 claim was not read"):
        relay.ask(QUESTION, accept_risk="MEDIUM", judge=judge_of(failing))


def test_a_safety_mode_is_a_policy() -> None:
    relay = langchain.opened(llm=langchain.scripted(RIGHT))
    with pytest.raises(RequestError, match="halt-on CRITICAL, block-ungrounded need"):
        relay.ask(QUESTION, safety_mode="strict")
    assert relay.ask(QUESTION, safety_mode="warn").text


def test_a_policy_that_is_reported_alone_demands_nothing() -> None:
    relay = langchain.opened(llm=langchain.scripted(RIGHT))
    assert relay.ask(QUESTION, report_only="halt-on HIGH").text


def test_no_model_is_paid_before_the_refusal() -> None:
    model = langchain.scripted(RIGHT)
    relay = langchain.opened(llm=model)
    with pytest.raises(RequestError, match=REFUSED):
        relay.ask(QUESTION, policy="halt-on HIGH", decompose="model")
    assert model.seen == []


def test_a_session_may_not_be_talked_into_unread_answers() -> None:
    relay = langchain.opened(llm=langchain.scripted(RIGHT), policy="halt-on HIGH")
    with pytest.raises(CRPError) as caught:
        relay.ask(QUESTION, policy="halt-on HIGH; unchecked allow")
    assert caught.value.status_hint == 403
    assert "unchecked of the child is allow" in str(caught.value)


def test_components_whose_questions_bring_no_judge() -> None:
    relay = langchain.opened()
    for made in (
        lambda: CRPProxyHook(relay, policy="halt-on HIGH"),
        lambda: CRPAgentLLM(
            relay=llama_index.opened(), llm=llama_index.scripted(RIGHT), policy="halt-on HIGH"
        ),
        lambda: CRPGate(),
    ):
        with pytest.raises(ConfigError, match=REFUSED):
            made()
    CRPProxyHook(relay, policy="halt-on HIGH; unchecked allow")
    CRPGate("halt-on HIGH; unchecked allow")


# --- the gateway --------------------------------------------------------------------------------


def test_a_gateway_without_a_judge_refuses_its_policy_and_a_callers(tmp_path: Path) -> None:
    with openai_double(text=PLANTS[7]) as server:
        with (
            pytest.raises(ConfigError, match=r"the gateway: halt-on HIGH needs every answer"),
            gateway_opened(tmp_path, server, policy="halt-on HIGH"),
        ):
            pass
        with gateway_opened(tmp_path, server) as gateway:
            refused = gateway.ask(**{"CRP-Safety-Policy": "halt-on HIGH"})
            assert refused.status_code == 400
            assert "unchecked allow" in refused.text
            assert server.requests == []
            passed = gateway.ask(**{"CRP-Safety-Policy": "halt-on HIGH; unchecked allow"})
            assert passed.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_gateway_whose_judge_fails_withholds(tmp_path: Path, stream: bool) -> None:
    answer = "The seventh of the plants dates from 1957."
    body = {"model": "gpt-4o-mini", "messages": GATEWAY_ASKED, "stream": stream}
    with (
        openai_double(text=answer) as server,
        gateway_opened(
            tmp_path, server, policy="halt-on HIGH", options={"judge": judge_of(failing)}
        ) as gateway,
    ):
        withheld = gateway.post("/v1/chat/completions", body)
        assert withheld.status_code == 451
        assert "1 of 1 claim was not read: the judge failed" in withheld.text
        assert not stands("1957", withheld.text)


# --- a 304, and facts that did not fit ----------------------------------------------------------


def asked_again(relay: Relay, etag: str, **how: Any) -> bool:
    """Whether an earlier answer is vouched for."""
    try:
        relay.ask(QUESTION, if_match=etag, session_id=SESSION, **how)
    except CRPError as error:
        if error.status_hint != 304:
            raise
        return True
    return False


SESSION = "crp_sess_0123456789abcdef"


def test_an_earlier_answer_is_vouched_for_by_its_own_judge_alone() -> None:
    relay = langchain.opened(llm=langchain.scripted(RIGHT))
    read, other = judge_of(reading), judge_of(reading, rubric="Mind the units.")
    how = {"policy": "halt-on HIGH"}
    etag = relay.ask(QUESTION, session_id=SESSION, judge=read, **how).envelope.etag
    assert asked_again(relay, etag, judge=read, **how)
    assert not asked_again(relay, etag, judge=other, **how)


def test_what_nobody_read_is_never_vouched_for_under_a_policy_that_halts() -> None:
    relay = langchain.opened(llm=langchain.scripted(RIGHT))
    failed = judge_of(failing)
    etag = relay.ask(QUESTION, session_id=SESSION, judge=failed).envelope.etag
    assert asked_again(relay, etag, judge=failed)
    with pytest.raises(SafetyHalt, match="not read"):
        asked_again(relay, etag, judge=failed, policy="halt-on HIGH")


def test_facts_of_which_none_fits_are_flagged_and_withheld() -> None:
    def opened(**more: Any) -> Relay:
        return langchain.opened(
            llm=langchain.scripted(RIGHT), context_limits={"gpt-4o": 60}, **more
        )

    relay = opened()
    answer = relay.ask(QUESTION)
    assert answer.envelope.facts == ()
    assert any(flag.startswith("facts-did-not-fit=") for flag in answer.report.flags)
    # Who wants none is told nothing.
    wanted_none = langchain.opened(llm=langchain.scripted(RIGHT)).ask(QUESTION, budget_tokens=0)
    assert not any(flag.startswith("facts-did-not-fit") for flag in wanted_none.report.flags)
    with pytest.raises(SafetyHalt):
        opened(judge=judge_of(reading)).ask(QUESTION, policy="halt-on HIGH")


@each_door
def test_block_pii_lets_an_answer_repeat_the_questions_own_data(
    door: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "QUESTION", f"I am jo.smith@example.org. {QUESTION}")
    door("Write to jo.smith@example.org.", "block-pii", None)
    with pytest.raises(SafetyHalt) as halted:
        door("Write to smith@example.org.", "block-pii", None)
    assert halted.value.directive == "block-pii"

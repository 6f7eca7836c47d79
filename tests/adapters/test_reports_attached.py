"""What of a report stands on an answer, who is handed all of it, and where it is found again."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_core.tracers.context import collect_runs
from langgraph.checkpoint.memory import InMemorySaver
from litellm import completion
from llama_index.core.base.llms.types import ChatMessage as LlamaMessage

from crp_integrations import SafetyHalt, examine
from crp_integrations.adapters.observed_answers import SUMMARY_BYTES, summarise_report
from crp_integrations.dpe.records import Report
from crp_integrations.errors import RequestError
from crp_integrations.langchain import (
    CRPGate,
    CRPMiddleware,
    CRPRunnable,
    DPECallbackHandler,
    EmittingMiddleware,
    report_of,
)
from crp_integrations.litellm import CRPLogger, CRPProxyHook, CRPRouter
from crp_integrations.llama_index import (
    CRPAgentLLM,
    CRPQueryEngine,
    DPEEventHandler,
    DPESpanHandler,
    EmittingHandler,
)
from crp_integrations.llama_index import report_of as report_on_response
from crp_integrations.relay.judge import Judge
from crp_integrations.vocabulary.provenance import RiskLevel
from tests.adapters import llama_index_doubles as llama
from tests.adapters.langchain_doubles import FACTS, opened, overheard, scripted
from tests.adapters.llama_index_doubles import HALTING, QUESTION, WRONG
from tests.adapters.test_memory_emission import emitting
from tests.doubles import ScriptedModel
from tests.judges import reply_to

IDS = ["window_id", "report_hash"]
REPORT = examine(WRONG, context=list(FACTS), question=QUESTION)
TEXT = st.text(st.characters(), max_size=3_000)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_summary_never_takes_more_than_its_kilobyte(data):
    count = data.draw(st.integers(0, 40))
    claim = next(one for one in REPORT.claims if one.flagged)
    claims = [
        claim.model_copy(
            update={
                "claim_id": data.draw(TEXT) if place == 0 else f"c{place}",
                "text": data.draw(TEXT) if place < 3 else claim.text * place,
                "start": data.draw(st.integers(0, 10**30)),
            }
        )
        for place in range(count)
    ]
    report = REPORT.changed(
        claims=tuple(claims),
        reasons=tuple(data.draw(st.lists(TEXT, max_size=5))),
        window_id=data.draw(TEXT),
        session_id=data.draw(TEXT),
        checked_by=data.draw(TEXT),
        risk_score=data.draw(st.floats()),
        risk_level=data.draw(st.sampled_from(RiskLevel)),
    )
    made = summarise_report(report)
    written = json.dumps(made, ensure_ascii=False)
    assert len(written.encode("utf-8", "surrogatepass")) <= SUMMARY_BYTES
    assert len(json.dumps(made)) <= SUMMARY_BYTES
    assert made["risk_level"] == report.risk_level
    assert len(made["claims"]) <= count


def test_a_summary_names_what_is_wrong_and_where_the_report_is():
    relay = opened()
    with pytest.raises(SafetyHalt) as caught:
        CRPRunnable(relay, llm=scripted(WRONG), **HALTING).invoke(QUESTION)
    report = caught.value.report
    made = summarise_report(report)
    assert relay.report(made["window_id"]).report_hash == made["report_hash"]
    assert made["risk_level"] == report.risk_level
    (reason,) = made["reasons"]
    assert len(reason) > 100 and report.reasons[0].startswith(reason)
    assert made["flags"] == list(report.flags)
    (claim,) = made["claims"]
    assert "512" in WRONG[claim["start"] : claim["end"]]
    assert (claim["status"], claim["error"]) == ("CONTRADICTED", "NUMBER")
    assert len(json.dumps(report.model_dump(mode="json"))) > 4 * SUMMARY_BYTES


def test_a_summary_loses_further_reasons_before_claims_and_claims_before_flags():
    claim = next(one for one in REPORT.claims if one.flagged)
    report = REPORT.changed(
        window_id="w" * 36,
        session_id="s" * 36,
        checked_by="judge gpt-4o-mini",
        flags=("judge-not-asked=budget", "repaired=2"),
        claims=tuple(claim.model_copy(update={"claim_id": f"c{n}"}) for n in range(6)),
        reasons=tuple(f"{n} The answer says 512 megawatts. " * 5 for n in range(5)),
    )
    made = summarise_report(report)
    assert made["flags"] == list(report.flags)
    assert made["claims"][0]["claim_id"] == "c0"
    (reason,) = made["reasons"]
    assert len(reason) >= 80 and report.reasons[0].startswith(reason)
    assert summarise_report(report.changed(claims=()))["reasons"] == [report.reasons[0][:160]]


MANY = " ".join(FACTS[0].replace("412", str(512 + number)) for number in range(12))
SENT = [("system", "\n".join(FACTS)), ("user", QUESTION)]


def by_middleware(relay, **options):
    agent = create_agent(scripted(MANY), [], middleware=[CRPMiddleware(relay, **options)])
    return agent.invoke({"messages": [("user", QUESTION)]})["messages"][-1].response_metadata


def by_runnable(relay, **options):
    return CRPRunnable(relay, llm=scripted(MANY), **options).invoke(QUESTION).response_metadata


def by_handler(relay, **options):
    handler = DPECallbackHandler(relay=relay, **options)
    return scripted(MANY).invoke(SENT, {"callbacks": [handler]}).response_metadata


def by_query_engine(relay, **options):
    return CRPQueryEngine(relay, llm=llama.scripted(MANY), **options).query(QUESTION).metadata


def by_agent_llm(relay, **options):
    llm = CRPAgentLLM(relay, llama.scripted(MANY), **options)
    return llm.chat([LlamaMessage(role="user", content=QUESTION)]).additional_kwargs


def by_event_handler(relay, **options):
    sent = [LlamaMessage(role=role, content=content) for role, content in SENT]
    with DPEEventHandler(relay=relay, **options):
        return llama.scripted(MANY).chat(sent).additional_kwargs


def by_router(relay, **options):
    models = [{"model_name": "main", "litellm_params": {"model": "openai/gpt-4o", "api_key": "x"}}]
    asked = [{"role": "user", "content": QUESTION}]
    router = CRPRouter(models, relay=relay, **options)
    response = router.completion("main", asked, mock_response=MANY)
    assert response.crp["window_id"]
    return response.choices[0].message.model_dump()


def reads(call):
    return reply_to(str(message.content) for message in call.messages)


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        by_middleware,
        by_runnable,
        by_handler,
        by_query_engine,
        by_agent_llm,
        by_event_handler,
        by_router,
    ],
)
def test_a_message_holds_little_and_names_the_whole_report(call, judged):
    relay = opened()
    metadata = call(relay, **({"judge": Judge(ScriptedModel(reads))} if judged else {}))
    own = {key: value for key, value in metadata.items() if key.startswith("crp")}
    if call is by_router:
        # A response of LiteLLM has the report beside its messages.
        assert not own
        return
    summary = own.pop("crp")
    assert len(json.dumps(summary)) <= SUMMARY_BYTES
    # Beside it only ids and numbers.
    assert own.keys() <= {"crp_agent", "crp_receipt", "crp_session"}
    assert len(json.dumps(own)) <= SUMMARY_BYTES / 2
    assert summary["reasons"][0] and summary["claims"]
    report = relay.report(summary["window_id"])
    assert report.report_hash == summary["report_hash"]
    assert report.claim_counts.model_dump() == summary["claim_counts"]
    assert len(report.claims) >= 10


def state_of(message):
    return {"messages": [("user", QUESTION), message]}


def runnable(**options):
    return CRPRunnable(opened(), llm=scripted(WRONG), **options).invoke(QUESTION)


def middleware(**options):
    agent = create_agent(scripted(WRONG), [], middleware=[CRPMiddleware(opened(), **options)])
    return agent.invoke({"messages": [("user", QUESTION)]})


def gate(**options):
    return CRPGate.around(
        RunnableLambda(lambda _: {"answer": WRONG, "context": list(FACTS)}),
        "oversight log-only",
        **options,
    ).invoke(QUESTION)


def query_engine(**options):
    return CRPQueryEngine(llama.opened(), llm=llama.scripted(WRONG), **options).query(QUESTION)


def agent_llm(**options):
    llm = CRPAgentLLM(llama.opened(), llama.scripted(WRONG), **options)
    return llm.chat([LlamaMessage(role="user", content=QUESTION)])


def assert_same_shape(part, whole):
    """Whatever the part has, the whole has under the same name and in the same form."""
    for name, value in part.items():
        assert type(value) is type(whole[name]) or None in (value, whole[name]), name
        if isinstance(value, dict):
            assert value.keys() == whole[name].keys()
        for item in value if name == "claims" else ():
            assert_same_shape(item, whole["claims"][0])


def routed():
    router = CRPRouter(
        [{"model_name": "main", "litellm_params": {"model": "openai/gpt-4o", "api_key": "x"}}],
        relay=opened(),
    )
    asked = [{"role": "user", "content": QUESTION}]
    return router.completion("main", asked, mock_response=WRONG).crp


def logged():
    logger = CRPLogger()
    logger.install()
    with logger.shown(list(FACTS), QUESTION):
        asked = [{"role": "user", "content": QUESTION}]
        response = completion("gpt-4o", asked, mock_response=WRONG)
    return logger.report(response)


@pytest.mark.parametrize("reports", [routed, logged])
def test_litellm_has_the_shape_of_the_other_adapters(reports):
    full = reports()
    assert_same_shape(report_of(runnable()), full)
    assert Report.model_validate(full)


COMPONENTS = {
    "CRPRunnable": (runnable, report_of),
    "CRPMiddleware": (middleware, report_of),
    "CRPGate": (gate, report_of),
    "CRPQueryEngine": (query_engine, report_on_response),
    "CRPAgentLLM": (agent_llm, report_on_response),
}


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_attaches_as_much_as_it_is_told_and_hands_all_of_it_over(name):
    answer, found = COMPONENTS[name]
    handed: list[Report] = []

    def taken(report):
        handed.append(report)
        raise ValueError("the receiver is broken")

    summary = found(answer(on_report=taken))
    (report,) = handed
    assert report.distortion_types == ("NUMBER_CHANGED",)
    assert summary == summarise_report(report)
    assert summary["flags"] == list(report.flags)
    full = found(answer(attach="full"))
    assert Report.model_validate(full).distortion_types == ("NUMBER_CHANGED",)
    assert list(found(answer(attach="id"))) == IDS
    assert_same_shape(summary, full)
    with pytest.raises(RequestError, match="'most' is not one of full, summary, id"):
        answer(attach="most")
    with pytest.raises(RequestError, match="on_report is int"):
        answer(on_report=1)


@pytest.mark.parametrize("name", ["CRPRunnable", "CRPMiddleware", "CRPQueryEngine", "CRPAgentLLM"])
def test_the_report_of_a_withheld_answer_is_handed_over_too(name):
    handed = []
    with pytest.raises(SafetyHalt) as caught:
        COMPONENTS[name][0](**HALTING, on_report=handed.append)
    assert handed == [caught.value.report]


def parsed(on=lambda chat: chat):
    """A chain whose answer is a bare text, with a tool's result to be checked against."""
    shown = [
        ("user", QUESTION),
        AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "1"}]),
        {"role": "tool", "content": FACTS[0], "tool_call_id": "1"},
    ]
    return RunnableLambda(lambda _: shown) | on(scripted(WRONG)) | StrOutputParser()


@pytest.mark.parametrize("place", ["call", "model"])
@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_a_report_is_found_behind_a_parser(way, place):
    handler = DPECallbackHandler()
    config = {"callbacks": [handler]} if place == "call" else {}
    chain = parsed() if place == "call" else parsed(lambda c: c.with_config(callbacks=[handler]))
    with collect_runs() as runs:
        if way == "invoke":
            assert chain.invoke(QUESTION, config) == WRONG
        else:
            assert "".join(chain.stream(QUESTION, config)) == WRONG
    for held in (runs, runs.traced_runs, runs.traced_runs[-1]):
        assert report_of(held)["risk_level"] == handler.last_report["risk_level"]
    assert handler.last_report["distortion_types"] == ["NUMBER_CHANGED"]


async def test_a_report_is_found_in_events_results_and_nowhere_else():
    handler = DPECallbackHandler(attach="id")
    heard, _ = await overheard(
        parsed(), QUESTION, "astream_events", config={"callbacks": [handler]}
    )
    assert list(report_of(heard)) == IDS
    result = []

    class Ends(BaseCallbackHandler):
        def on_llm_end(self, response, **kwargs):
            result.append(response)

    parsed().invoke(QUESTION, {"callbacks": [handler, Ends()]})
    assert report_of(result[0]) == report_of(result[0].generations[0][0])
    assert list(report_of(result[0])) == IDS
    message = result[0].generations[0][0].message
    # A later answer that nothing is attached to has none, whatever an earlier one has.
    assert report_of({"messages": [message]}) == report_of(message)
    assert report_of({"messages": [message, AIMessage("Hello")]}) is None
    for nothing in (None, "text", 5, [], {}, AIMessage("Hello"), {"crp": {"fact_id": "f"}}):
        assert report_of(nothing) is None
        assert report_on_response(nothing) is None


def test_a_handler_around_a_whole_turn_takes_its_report_and_attaches_nothing_itself():
    heard = []
    handler = DPECallbackHandler(on_report=heard.append)
    message = CRPRunnable(opened(), llm=scripted(WRONG)).invoke(QUESTION, {"callbacks": [handler]})
    (report,) = heard
    assert report["window_id"] == report_of(message)["window_id"]


def test_an_event_handler_around_an_agents_llm_is_given_all_of_the_report():
    heard = []
    with DPEEventHandler(on_report=heard.append) as handler:
        response = agent_llm()
    (event,) = heard
    assert event.report["window_id"] == report_on_response(response)["window_id"]
    assert handler.last_report == event.report
    assert report_on_response(event) == event.report


def saved(saver):
    return sum(len(one[1]) for one in saver.blobs.values())


def test_ten_tool_calls_write_little_into_a_checkpointer(capsys):
    @tool
    def reading(number: int) -> str:
        """A reading of the plant."""
        return f"Reading {number} of the Meridian reactor is {400 + number} MW of electric power."

    def script():
        for number in range(10):
            text = f"Reading {number} of the Meridian reactor is {400 + number} MW. I go on."
            call = {"name": "reading", "args": {"number": number + 1}, "id": f"call-{number}"}
            yield AIMessage(text, tool_calls=[call])
        yield WRONG

    sizes = {}
    for attach in ("full", "summary", "id"):
        saver = InMemorySaver()
        agent = create_agent(
            scripted(*script()),
            [reading],
            middleware=[CRPMiddleware(opened(), attach=attach)],
            checkpointer=saver,
        )
        config = {"configurable": {"thread_id": "anna"}}
        result = agent.invoke({"messages": [("user", QUESTION)]}, config)
        told = [m.response_metadata for m in result["messages"] if isinstance(m, AIMessage)]
        assert len(told) == 11
        sizes[attach] = saved(saver), sum(len(json.dumps(one["crp"])) for one in told) // 11
        text = json.dumps(agent.get_state(config).values["messages"], default=str)
        assert "CRP-Set-Session" not in text, "a message holds no credential"
        assert all(one["crp_receipt"] for one in told)
    with capsys.disabled():
        print(f"\nbytes in the checkpointer, and of the report an answer: {sizes}")
    assert sizes["summary"][1] <= SUMMARY_BYTES
    assert sizes["summary"][0] < sizes["full"][0] / 2
    assert sizes["id"][0] < sizes["summary"][0]


HANDLERS = {
    "DPECallbackHandler": lambda relay: DPECallbackHandler(relay=relay),
    "CRPMiddleware": CRPMiddleware,
    "EmittingMiddleware": lambda relay: EmittingMiddleware(emitting(relay.fabric.add)),
    "DPEEventHandler": lambda relay: DPEEventHandler(relay=relay),
    "DPESpanHandler": lambda relay: DPESpanHandler(),
    "EmittingHandler": lambda relay: EmittingHandler(emitting(relay.fabric.add)),
    "CRPLogger": lambda relay: CRPLogger(),
    "CRPProxyHook": CRPProxyHook,
}


@pytest.mark.parametrize("name", HANDLERS)
def test_a_deep_copy_shares_a_handler(name):
    handler = HANDLERS[name](opened())
    assert copy.deepcopy({"callbacks": [handler]})["callbacks"] == [handler]
    assert copy.deepcopy(handler) is handler


def test_a_deep_copy_shares_a_router_and_a_judge():
    entry = {"model_name": "main", "litellm_params": {"model": "extractive/lead"}}
    router = CRPRouter([entry], relay=opened())
    assert copy.deepcopy({"router": router})["router"] is router
    gate = CRPGate(judge=Judge(ScriptedModel("x")))
    shared = gate._gate._examination["judge"]
    assert copy.deepcopy(gate)._gate._examination["judge"] is shared


def test_a_copied_component_has_the_same_store():
    relay = opened()
    chain = copy.deepcopy(CRPRunnable(relay, llm=scripted(WRONG)))
    assert relay.report(report_of(chain.invoke(QUESTION))["window_id"])

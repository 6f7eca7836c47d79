"""Agents of LlamaIndex: every model call reported on, or packed, examined and sealed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.dispatcher import instrument_tags
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool, QueryEngineTool
from pydantic import BaseModel

from crp_integrations.adapters import observed_answers
from crp_integrations.errors import RequestError, SafetyHalt
from crp_integrations.llama_index import CRPAgentLLM, DPEEventHandler, ReportEvent
from crp_integrations.llama_index.span_tree import process_tree
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import RiskLevel
from tests.adapters.llama_index_doubles import (
    FACTS,
    HALTING,
    QUESTION,
    WRONG,
    Chat,
    agent,
    heard,
    leaked,
    no_metadata,
    opened,
    outputs,
    prompts,
    reader,
    scripted,
    streamed,
)

# Runs at once, of agents three deep.
MANY = 10
KINDS = ("FunctionAgent", "AgentWorkflow")
NOW = "At this moment the Meridian reactor delivers 388 megawatts to the northern grid."


def load_now(plant: str) -> str:
    """What a plant delivers at this moment."""
    return NOW


def weather(city: str) -> str:
    """The weather in a city."""
    return f"The weather in {city} is sunny with 31 degrees and a light wind from the north-west."


def search(facts=FACTS, llm=None):
    """A query engine over facts, as a tool; its model says the first fact."""
    index = VectorStoreIndex.from_documents(
        [Document(text=text) for text in facts], embed_model=MockEmbedding(embed_dim=8)
    )
    engine = index.as_query_engine(llm=llm or scripted(facts[0]), similarity_top_k=len(facts))
    return QueryEngineTool.from_defaults(engine, name="search", description="finds facts")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    handlers = list(get_dispatcher().event_handlers)
    yield
    assert len(process_tree()) == 0, "the tree forgets what has ended"
    assert get_dispatcher().event_handlers == handlers


# --- the event handler ---------------------------------------------------------------------


@pytest.mark.requirement("CARD-23")
@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_reports_reach_agents_by_events_and_metadata_with_depth_and_turn(kind, streaming):
    llm = scripted([("search", {"input": QUESTION})], [("load_now", {"plant": "M"})], WRONG)
    made = agent(llm, [search(), load_now], kind, streaming=streaming)
    published = []

    class Listener(BaseEventHandler):
        def handle(self, event, **kwargs):
            if isinstance(event, ReportEvent):
                published.append(event)

    listener = Listener()
    get_dispatcher().add_event_handler(listener)
    try:
        with DPEEventHandler(attach="full"):
            events, result, error = await heard(made.run(QUESTION))
    finally:
        get_dispatcher().event_handlers.remove(listener)
    assert error is None
    told = [one.metadata["crp_agent"] for one in outputs(events)]
    assert [(one["agent"], one["depth"], one["turn"]) for one in told] == [
        ("root", 0, 1),
        ("root", 0, 2),
        ("root", 0, 3),
    ]
    first, second, last = (one.metadata["crp"] for one in outputs(events))
    assert first == second
    assert (first["risk_level"], first["reasons"]) == ("UNKNOWN", ["the answer has no text"])
    assert last["distortion_types"] == ["NUMBER_CHANGED"]
    assert result.metadata["crp"] == last and result.metadata["crp_agent"]["turn"] == 3
    json.dumps(result.metadata)
    # Events: the agent's three answers, and that of the query engine in its tool.
    standing = [(one.agent["turn"], one.agent["tool"]) for one in published]
    assert standing == [(1, ""), (1, "search"), (2, ""), (3, "")]
    assert published[1].report["risk_level"] == "LOW"
    assert published[3].report == last
    assert no_metadata(prompts(llm))


async def test_a_wrong_answer_is_not_made_right_by_a_wrong_answer_below_it():
    wrong_engine = search(llm=scripted(WRONG))
    llm = scripted([("search", {"input": QUESTION})], WRONG)
    with DPEEventHandler(attach="full"):
        result = await agent(llm, [wrong_engine]).run(QUESTION)
    assert result.metadata["crp"]["distortion_types"] == ["NUMBER_CHANGED"]


async def test_what_a_tool_says_is_evidence_and_its_error_is_not():
    def broken(plant: str) -> str:
        """Fails."""
        raise ValueError("The Meridian reactor delivers 512 megawatts to the grid at this moment.")

    for tool, reports in ((load_now, NOW), (broken, None)):
        llm = scripted([(tool.__name__, {"plant": "M"})], NOW)
        with DPEEventHandler(attach="full"):
            result = await agent(llm, [tool]).run(QUESTION)
        report = result.metadata["crp"]
        if reports:
            assert report["grounding_pct"] == 1.0
        else:
            assert report["risk_level"] == "UNKNOWN" and not report["claims"]


async def test_results_of_an_earlier_run_count_from_the_conversation():
    llm = scripted([("load_now", {"plant": "M"})], NOW, NOW)
    made = agent(llm, [load_now])
    memory = ChatMemoryBuffer.from_defaults(token_limit=10_000)
    with DPEEventHandler(attach="full"):
        await made.run(QUESTION, memory=memory)
        again = await made.run("And again?", memory=memory)
    assert again.metadata["crp"]["risk_level"] == "LOW"
    assert again.metadata["crp_agent"]["turn"] == 1


def nested(wrap, deepest=3, streaming=True, kind="FunctionAgent"):
    """An agent that asks an agent that asks an agent; two tools at once on each level."""

    def level(depth):
        def reply(messages):
            if depth == deepest - 1:
                # What it was asked stands in its only user message.
                who = messages[-1].content.split()[-1]
                if messages[-1].role == "user":
                    return [("password", {"who": who})]
                return messages[-1].content
            if messages[-1].role == "tool":
                return " ".join(one.content for one in messages if one.role == "tool")
            who = messages[-1].content.split()[-1]
            return [("ask", {"who": who + side}) for side in "lr"]

        if depth == deepest - 1:

            def password(who: str) -> str:
                """The password of somebody."""
                return f"The password of customer {who} of the bank is {sha256(who)[7:19]} today."

            tools = [FunctionTool.from_defaults(password)]
        else:
            inner = level(depth + 1)

            async def ask(who: str) -> str:
                """Ask another agent."""
                return str(await inner.run(f"What is the password of {who}"))

            tools = [FunctionTool.from_defaults(async_fn=ask)]
        return agent(wrap(Chat(reply)), tools, kind, name=f"level{depth}", streaming=streaming)

    return level(0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["sync", "async", "stream", "many"])
def test_depth_turn_and_report_of_agents_three_deep(kind, way):
    reported: list[ReportEvent] = []
    made = nested(lambda llm: llm, streaming=way == "stream", kind=kind)

    async def one(name):
        with DPEEventHandler(attach="full", on_report=reported.append):
            run = made.run(f"What is the password of {name}")
            if way == "stream":
                _, result, error = await heard(run)
                assert error is None
                return result
            return await run

    async def every():
        return await asyncio.gather(*(one(f"c{n}") for n in range(MANY)))

    async def alone():
        return [await one("c0")]

    results = asyncio.run(every() if way == "many" else alone())
    runs = len(results)
    # Root: two turns. Two agents below it with two each, four below those with two.
    assert len(reported) == runs * 2 * (1 + 2 + 4)
    by_run: dict[str, list[dict]] = {}
    for event in reported:
        assert event.agent["agent"] == f"level{event.agent['depth']}"
        by_run.setdefault(event.agent["run"], []).append(event.agent)
        checked = "not-examined" not in event.report["flags"]
        assert checked == (event.agent["turn"] == 2)
        if checked:
            assert event.report["grounding_pct"] == 1.0
    assert len(by_run) == runs * 7
    for calls in by_run.values():
        assert [one["turn"] for one in calls] == [1, 2]
        parent = calls[0]["parent"]
        assert (parent == "") == (calls[0]["depth"] == 0)
        assert not parent or by_run[parent][0]["depth"] == calls[0]["depth"] - 1
    for n, result in enumerate(results):
        report = result.metadata["crp"]
        assert report["response_content_hash"] == sha256(str(result))
        for side in ("ll", "lr", "rl", "rr"):
            assert sha256(f"c{n}{side}")[7:19] in str(result)
        sources = {one["fact_id"] for c in report["claims"] for one in c["evidence"]}
        assert 0 < len(sources) <= 4, "what its own agents' tools have said, and nobody else's"


async def test_handlers_side_by_side_hear_their_own():
    seen: dict[str, list] = {"a": [], "b": []}

    async def one(name):
        llm = scripted([("load_now", {"plant": "M"})], f"{NOW} This was for {name}.")
        with DPEEventHandler(attach="full", on_report=seen[name].append):
            await agent(llm, [load_now]).run(QUESTION)

    await asyncio.gather(one("a"), one("b"))
    for events in seen.values():
        assert len(events) == 2


async def test_a_handler_is_in_one_block_at_a_time():
    handler, reported = DPEEventHandler(attach="full"), []
    with handler:
        with pytest.raises(RequestError, match="another one"):
            handler.__enter__()
        with DPEEventHandler(attach="full", on_report=reported.append):
            await agent(scripted(FACTS[0])).run(QUESTION)
    assert len(reported) == 1
    with handler:
        await agent(scripted(FACTS[0])).run(QUESTION)
    assert len(reported) == 1


async def test_the_next_agent_of_a_workflow_is_named():
    first = FunctionAgent(
        name="first",
        description="hands over",
        llm=scripted([("handoff", {"to_agent": "second", "reason": "it knows"})]),
        can_handoff_to=["second"],
    )
    second = FunctionAgent(
        name="second",
        description="answers",
        llm=scripted([("load_now", {"plant": "M"})], NOW),
        tools=[load_now],
    )
    workflow = AgentWorkflow(agents=[first, second], root_agent="first")
    with DPEEventHandler(attach="full"):
        events, result, error = await heard(workflow.run(QUESTION))
    assert error is None
    told = [one.metadata["crp_agent"] for one in outputs(events) if one.get("metadata")]
    assert [(one["agent"], one["depth"], one["turn"]) for one in told] == [
        ("first", 0, 1),
        ("second", 0, 2),
        ("second", 0, 3),
    ]
    assert result.metadata["crp"]["risk_level"] == "LOW"


async def test_a_critical_answer_ends_the_block_and_only_there(monkeypatch):
    grave = "The Meridian reactor was commissioned by Emperor Augustus and exploded twice."
    real = observed_answers.examine

    def examine(answer, **asked):
        report = real(answer, **asked)
        return report.changed(risk_level=RiskLevel.CRITICAL) if answer == grave else report

    monkeypatch.setattr(observed_answers, "examine", examine)
    done, reported = [], []
    handler = DPEEventHandler(attach="full", on_critical="raise", on_report=reported.append)

    async def asked(text):
        made = agent(scripted([("search", {"input": QUESTION})], text), [search()])
        with handler:
            done.append(await made.run(QUESTION))

    with pytest.raises(SafetyHalt) as halt:
        await asked(grave)
    assert halt.value.report.risk_level is RiskLevel.CRITICAL
    assert str(done[0]) == grave, "LlamaIndex swallows what a handler raises: the run went on"
    assert reported[-1].report["risk_level"] == "CRITICAL"
    await asked(FACTS[0])
    assert len(done) == 2
    with pytest.raises(RequestError, match="with statement"):
        handler.listen()


# --- the agent's LLM -----------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_is_packed_for_checked_and_sealed(kind, streaming):
    relay = opened()
    llm = scripted(FACTS[0])
    checking = CRPAgentLLM(relay, llm, attach="full")
    made = agent(checking, (), kind, system_prompt="Be brief.", streaming=streaming)
    events, result, error = await heard(made.run(QUESTION))
    assert error is None and str(result) == FACTS[0]
    told = result.metadata
    assert told["crp"]["risk_level"] == "LOW"
    standing = told["crp_agent"]
    assert (standing["agent"], standing["depth"], standing["turn"]) == ("root", 0, 1)
    assert (standing["window_number"], standing["parent_session"]) == (1, "")
    assert told["crp_headers"]["CRP-Safety-Hallucination-Risk"].startswith("LOW")
    json.dumps(told)
    ((system, question),) = llm.seen
    assert system.content.startswith("Be brief.") and FACTS[0] in system.content
    assert question.content == QUESTION
    assert no_metadata(prompts(llm))
    assert relay.verify().windows == 1
    if streaming:
        assert streamed(events) == FACTS[0]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_halt_leaks_nothing_in_any_event(kind, streaming):
    said = []

    class Listener(BaseEventHandler):
        def handle(self, event, **kwargs):
            if "InProgress" in event.class_name():
                said.append(event)

    listener = Listener()
    get_dispatcher().add_event_handler(listener)
    try:
        relay = opened()
        llm = scripted([("weather", {"city": "Rome"})], WRONG)
        made = agent(CRPAgentLLM(relay, llm, **HALTING), [weather], kind, streaming=streaming)
        events, result, error = await heard(made.run(QUESTION))
    finally:
        get_dispatcher().event_handlers.remove(listener)
    assert isinstance(error, SafetyHalt) and result is None
    assert not leaked(events)
    assert not leaked([one.response.delta for one in said])
    assert relay.verify().windows == 2


async def test_a_tools_result_is_evidence_and_sent_once_and_its_error_is_none():
    def broken(city: str) -> str:
        """Fails."""
        raise ValueError(weather(city))

    for tool, status in ((weather, "SUPPORTED"), (broken, "NOT_CHECKED")):
        said = weather("Rome")
        llm = scripted([(tool.__name__, {"city": "Rome"})], said)
        made = agent(CRPAgentLLM(opened(), llm, attach="full"), [tool])
        _, result, _ = await heard(made.run("How is the weather in Rome?"))
        assert said not in llm.seen[1][0].content
        report = result.metadata["crp"]
        assert (status == "SUPPORTED") == ("SUPPORTED" in {c["status"] for c in report["claims"]})


@pytest.mark.parametrize("way", ["sync", "async", "stream", "many"])
@pytest.mark.parametrize("kind", KINDS)
def test_depth_turn_and_session_of_agents_three_deep(kind, way):
    # No receipts: what is looked at is whose each window is.
    relay = opened(receipts=False)
    made = nested(lambda llm: CRPAgentLLM(relay, llm), streaming=way == "stream", kind=kind)
    seen: list[ReportEvent] = []

    async def one(name):
        with DPEEventHandler(attach="full", on_report=seen.append):
            _, result, error = await heard(made.run(f"What is the password of {name}"))
        assert error is None
        return result

    async def every():
        return await asyncio.gather(*(one(f"c{n}") for n in range(MANY)))

    results = asyncio.run(every()) if way == "many" else [asyncio.run(one("c0"))]
    parents = {}
    for event in seen:
        told = event.agent
        assert told["turn"] == told["window_number"]
        assert told["agent"] == f"level{told['depth']}"
        parents[told["session_id"]] = (told["depth"], told["parent_session"])
    assert len(seen) == len(results) * 14
    assert len(parents) == len(results) * 7, "each agent run has a session of its own"
    for depth, parent in parents.values():
        assert (parent == "") == (depth == 0)
        assert depth == 0 or parents[parent][0] == depth - 1
    for n, result in enumerate(results):
        assert result.metadata["crp"]["risk_level"] == "LOW"
        assert sha256(f"c{n}rl")[7:19] in str(result)
    assert relay.verify().windows == len(seen)


def test_a_synchronous_tool_that_runs_an_agent_is_around_it():
    relay = opened()
    inner = agent(CRPAgentLLM(relay, scripted(FACTS[0])), name="inner")
    told = []

    def ask() -> str:
        """Ask another agent."""

        async def asked():
            return await inner.run(QUESTION)

        result = asyncio.run(asked())
        told.append(result.metadata["crp_agent"])
        return str(result)

    outer = agent(CRPAgentLLM(relay, scripted([("ask", {})], FACTS[0])), [ask])

    async def main():
        return await outer.run(QUESTION)

    result = asyncio.run(main())
    assert (told[0]["depth"], told[0]["turn"]) == (1, 1)
    assert told[0]["parent_session"] == result.metadata["crp_agent"]["session_id"]
    assert result.metadata["crp_agent"]["turn"] == 2


async def test_sessions_of_32_callers_never_mix():
    def balance(name: str) -> str:
        """The balance of a customer."""
        return f"The balance of customer {name} at the bank is {int(name[1:]) + 1000} euros today."

    def reply(messages):
        if messages[-1].role == "tool":
            return messages[-1].content
        return [("balance", {"name": messages[-1].content.split()[-1].rstrip("?")})]

    relay = opened(*(f"The password of customer c{n} of the bank is w{n}." for n in range(32)))
    llm = Chat(reply)
    made = agent(CRPAgentLLM(relay, llm, k=6, attach="full"), [balance])

    async def one(n):
        with instrument_tags({"session_id": f"caller-{n}"}):
            run = made.run(f"What is the balance of customer c{n}?")
        return await heard(run)

    sessions = set()
    for n, (events, result, error) in enumerate(await asyncio.gather(*(one(n) for n in range(32)))):
        assert error is None
        for place, output in enumerate(outputs(events), 1):
            told = output.metadata["crp_agent"]
            assert (told["depth"], told["turn"], told["window_number"]) == (0, place, place)
            sessions.add(told["session_id"])
        assert f"{n + 1000} euros" in str(result)
        assert result.metadata["crp"]["risk_level"] == "LOW"
        assert result.metadata["crp"]["response_content_hash"] == sha256(str(result))
    assert len(sessions) == 32
    for sent in llm.seen:
        name = next(m for m in sent if m.role == "user").content.split()[-1].rstrip("?")
        balances = {word for word in sent[0].content.split() if word.isdigit()}
        assert balances <= {str(int(name[1:]) + 1000)}, "no result of another caller"
    assert relay.verify().windows == 64


async def test_a_tag_names_a_session_that_stays():
    relay = opened()
    said = weather("Rome")
    llm = scripted([("weather", {"city": "Rome"})], said, said)
    made = agent(CRPAgentLLM(relay, llm), [weather])
    told = []
    for _ in range(2):
        with instrument_tags({"session_id": "anna@example.org"}):
            events, *_ = await heard(made.run("How is the weather in Rome?"))
        told += [one.metadata["crp_agent"] for one in outputs(events)]
    assert len({one["session_id"] for one in told}) == 1
    assert "anna" not in told[0]["session_id"]
    assert [(one["turn"], one["window_number"]) for one in told] == [(1, 1), (2, 2), (1, 3)]
    relay.end_session(told[0]["session_id"])


async def test_a_sub_agent_is_under_the_policy_of_the_one_around_it_and_costs_it():
    relay = opened()
    # Policy and judge are handed down.
    inner = agent(CRPAgentLLM(relay, scripted(WRONG)), name="inner")
    assert str(await inner.run(QUESTION)) == WRONG

    async def ask() -> str:
        """Ask another agent."""
        return str(await inner.run(QUESTION))

    outer = CRPAgentLLM(relay, scripted([("ask", {})], FACTS[0]), attach="full", **HALTING)
    events, result, error = await heard(agent(outer, [ask]).run(QUESTION))
    # The halt of the inner one is an error of the outer one's tool, which LlamaIndex tells it.
    assert error is None and not leaked(events)
    budgets = [
        float(one.metadata["crp_headers"]["CRP-Agent-Safety-Budget"]) for one in outputs(events)
    ]
    assert budgets[0] == 1.0 > budgets[1]
    assert str(result) == FACTS[0]


@pytest.mark.parametrize(("own", "checked"), [({}, "judge"), ({"judge": False}, "exact")])
async def test_an_agent_below_one_with_a_judge_has_it_too(own, checked):
    relay, reports = opened(), []
    inner = agent(CRPAgentLLM(relay, scripted(FACTS[0]), **own), name="inner")

    async def ask() -> str:
        """Ask another agent."""
        result = await inner.run(QUESTION)
        reports.append(result.metadata["crp"])
        return str(result)

    outer = CRPAgentLLM(relay, scripted([("ask", {})], FACTS[0]), judge=reader())
    await agent(outer, [ask]).run(QUESTION)
    assert reports[0]["checked_by"].startswith(checked)
    await agent(CRPAgentLLM(relay, scripted([("ask", {})], FACTS[0])), [ask]).run(QUESTION)
    assert reports[1]["checked_by"] == "exact comparison"


async def test_an_agent_too_deep_is_stopped():
    relay = opened()
    llms: list[Chat] = []

    def wrap(llm):
        llms.append(llm)
        return CRPAgentLLM(relay, llm, max_depth=1)

    _, _, error = await heard(nested(wrap).run("What is the password of c0"))
    assert error is None
    told = " ".join(m.content or "" for sent in llms[1].seen for m in sent if m.role == "tool")
    assert "2 agents deep, at most 1" in told
    assert not llms[0].seen, "the inmost model is not asked"


async def test_a_remedy_asks_the_same_model_again():
    llm = scripted(WRONG, "The reactor delivers 412 megawatts.", FACTS[0])
    made = agent(CRPAgentLLM(opened(), llm, strategy="reflexive"), [weather])
    _, result, error = await heard(made.run(QUESTION))
    assert error is None and str(result) == FACTS[0]
    assert [bool(given.get("tools")) for given in llm.bound] == [True, False, False]
    assert no_metadata(prompts(llm))


async def test_errors_of_a_model_go_on_unchanged_and_are_sealed():
    class Down(Exception):
        pass

    relay = opened()
    _, _, error = await heard(agent(CRPAgentLLM(relay, scripted(Down("no")))).run(QUESTION))
    assert isinstance(error, Down)
    assert relay.verify().windows == 1


async def test_what_does_not_go_with_an_agent_is_refused():
    relay = opened()
    for options, words in (
        ({"history": ()}, "'history'"),
        ({"budget": 1}, "'budget'"),
        ({"strategy": "fan-out"}, "strategy"),
        ({"max_depth": -1}, "max_depth"),
    ):
        with pytest.raises(RequestError, match=words):
            CRPAgentLLM(relay, scripted("x"), **options)
    with pytest.raises(RequestError, match="no user question"):
        CRPAgentLLM(relay, scripted("x")).chat([])


@pytest.mark.parametrize("windows", [True, False])
async def test_a_structure_is_made_of_the_answer_and_the_report_stays_its_own(windows):
    class Power(BaseModel):
        """The power of a reactor."""

        megawatts: int

    relay = opened()
    llm = scripted([("load_now", {"plant": "M"})], NOW, [("Power", {"megawatts": 388})])
    made = agent(CRPAgentLLM(relay, llm) if windows else llm, [load_now], output_cls=Power)
    with DPEEventHandler(attach="full"):
        result = await made.run(QUESTION)
    assert result.structured_response == {"megawatts": 388}
    assert result.metadata["crp"]["risk_level"] == "LOW"
    assert result.metadata["crp_agent"]["turn"] == 2
    assert relay.verify().windows == (3 if windows else 0)


async def test_a_last_answer_after_too_many_turns_is_reported_on():
    llm = scripted([("load_now", {"plant": "M"})], [("load_now", {"plant": "N"})], NOW)
    made = agent(llm, [load_now], early_stopping_method="generate")
    with DPEEventHandler(attach="full"):
        result = await made.run(QUESTION, max_iterations=2)
    assert str(result) == NOW
    assert result.metadata["crp"]["risk_level"] == "LOW"
    assert result.metadata["crp_agent"]["turn"] == 3


def test_alone_it_is_a_window_of_its_own():
    relay = opened()
    llm = CRPAgentLLM(relay, scripted(FACTS[0]), **HALTING)
    response = llm.complete(QUESTION)
    assert response.text == FACTS[0]
    assert response.additional_kwargs["crp"]["risk_level"] == "LOW"
    assert "".join(part.delta for part in llm.stream_complete(QUESTION)) == FACTS[0]
    with pytest.raises(SafetyHalt):
        CRPAgentLLM(relay, scripted(WRONG), **HALTING).stream_complete(QUESTION)
    assert relay.verify().windows == 3

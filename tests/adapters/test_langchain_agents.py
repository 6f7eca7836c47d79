"""Agents of LangChain with the middleware: every model call packed, examined and sealed."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import BaseModel

from crp_integrations.errors import (
    AccessDenied,
    LimitReached,
    ModelError,
    PolicySyntaxError,
    RequestError,
    SafetyHalt,
)
from crp_integrations.fabric.records import Fact
from crp_integrations.langchain import (
    CRPMiddleware,
    CRPRunnable,
    DPECallbackHandler,
    report_of,
)
from crp_integrations.relay.window_envelope import WindowEnvelope
from crp_integrations.seals import sha256
from tests.adapters.langchain_doubles import (
    FACTS,
    HALTING,
    WAYS,
    Chat,
    Listed,
    leaked,
    no_metadata,
    opened,
    overheard,
    prompts,
    reader,
    scripted,
)
from tests.doubles import FixedClock, Recording, ScriptedModel

QUESTION = "How much power does the Meridian reactor deliver?"
ASK = {"messages": [("user", QUESTION)]}
WRONG = FACTS[0].replace("412", "512")


def calling(name, *each, text=""):
    calls = [
        {"name": name, "args": args, "id": f"{name}-{n}", "type": "tool_call"}
        for n, args in enumerate(each)
    ]
    return AIMessage(text, tool_calls=calls)


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"The weather in {city} is sunny with 31 degrees and a light wind from the north-west."


def agent_of(model, relay=None, tools=(), **options):
    how = {
        name: options.pop(name)
        for name in ("checkpointer", "system_prompt", "response_format")
        if name in options
    }
    relay = relay or opened()
    return create_agent(model, list(tools), middleware=[CRPMiddleware(relay, **options)], **how)


def answers(result):
    return [m for m in result["messages"] if isinstance(m, AIMessage)]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_an_answer_is_packed_for_checked_and_sealed(way):
    relay = opened()
    model = scripted(FACTS[0])
    agent = agent_of(model, relay, system_prompt="Be brief.", attach="full")
    result = await agent.ainvoke(ASK) if way == "ainvoke" else agent.invoke(ASK)
    (message,) = answers(result)
    assert message.content == FACTS[0]
    told = message.response_metadata
    assert told["crp"]["risk_level"] == "LOW"
    assert told["crp_agent"] == {
        **told["crp_agent"],
        "depth": 0,
        "turn": 1,
        "window_number": 1,
        "parent_session": "",
    }
    assert told["crp_headers"]["CRP-Safety-Hallucination-Risk"].startswith("LOW")
    json.dumps(told)
    assert set(result) == {"messages"}
    ((system, question),) = model.seen
    assert system.text.startswith("Be brief.") and FACTS[0] in system.text
    assert question.text == QUESTION
    assert no_metadata(prompts(model))
    assert relay.verify().windows == 1


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_tools_result_is_evidence_and_sent_once(way):
    relay = opened()
    said = "The weather in Rome is sunny with 31 degrees and a light wind from the north-west."
    model = scripted(calling("weather", {"city": "Rome"}), said)
    agent = agent_of(model, relay, [weather])
    ask = {"messages": [("user", "How is the weather in Rome?")]}
    result = await agent.ainvoke(ask) if way == "ainvoke" else agent.invoke(ask)
    first, last = answers(result)
    assert first.tool_calls and last.content == said
    assert [m.response_metadata["crp_agent"]["turn"] for m in (first, last)] == [1, 2]
    assert last.response_metadata["crp"]["risk_level"] == "LOW"
    assert said not in model.seen[1][0].text
    assert [message.type for message in model.seen[1]] == ["system", "human", "ai", "tool"]
    assert no_metadata(prompts(model))
    # It is neither stored nor found by others.
    assert said not in relay.turn("How is the weather in Rome?", model="gpt-4o").preview().text


STREAMS = (
    "values",
    "updates",
    "messages",
    "custom",
    "debug",
    "tasks",
    ["values", "updates", "messages", "custom", "debug"],
)


@pytest.mark.parametrize("mode", STREAMS, ids=str)
@pytest.mark.parametrize("way", ["stream", "astream"])
async def test_a_halt_leaks_in_no_stream_mode(mode, way):
    kwargs = {"stream_mode": mode, "subgraphs": True}
    agent = agent_of(scripted(WRONG), **HALTING)
    heard, error = await overheard(agent, ASK, way, **kwargs)
    assert isinstance(error, SafetyHalt)
    assert not leaked(heard)
    good = agent_of(scripted(FACTS[0]), **HALTING)
    heard, error = await overheard(good, ASK, way, **kwargs)
    assert error is None
    assert mode == "custom" or "412" in repr(heard), "what is let through is streamed"


@pytest.mark.parametrize("way", WAYS)
async def test_a_halt_leaks_in_no_way_of_listening(way):
    agent = agent_of(scripted(WRONG), **HALTING)
    heard, error = await overheard(agent, ASK, way)
    assert isinstance(error, SafetyHalt)
    assert not leaked(heard)
    open_ = agent_of(scripted(WRONG), block_streams=False, **HALTING)
    heard, error = await overheard(open_, ASK, way)
    assert isinstance(error, SafetyHalt)
    leaks = leaked(heard)
    assert leaks == (way not in ("stream", "astream")), "the listener would hear it"


async def test_a_halt_leaks_in_no_protocol_stream():
    pytest.importorskip("langchain_core.language_models.chat_model_stream")

    async def read(agent):
        heard = []
        try:
            stream = await agent.astream_events(ASK, version="v3")
            async for event in stream:
                heard.append(event)
        except SafetyHalt:
            return heard, True
        return heard, False

    heard, halted = await read(agent_of(scripted(WRONG), **HALTING))
    assert halted and not leaked(heard)


@pytest.mark.parametrize("way", ["stream", "astream"])
@pytest.mark.parametrize(
    "options", [{}, HALTING, {"block_streams": True}], ids=["free", "halting", "blocking"]
)
async def test_an_answer_comes_in_pieces_once_and_no_sooner_than_it_may(options, way):
    agent = agent_of(scripted(FACTS[0]), **options)
    kwargs = {"stream_mode": ["messages", "updates"]}
    heard, error = await overheard(agent, ASK, way, **kwargs)
    assert error is None
    pieces = [part[0] for mode, part in heard if mode == "messages"]
    shown = [one for one in pieces if one.text]
    assert len(shown) > 1
    assert "".join(one.text for one in shown) == FACTS[0]
    assert len({one.id for one in pieces}) == 1
    if options:
        # What was held back brings its report along.
        assert report_of(sum(pieces[1:], pieces[0]))["risk_level"] == "LOW"
    state = [part for mode, part in heard if mode == "updates"]
    assert report_of(state)["risk_level"] == "LOW"


@pytest.mark.parametrize("options", [{}, HALTING], ids=["free", "halting"])
async def test_events_of_an_agent_show_its_model(options):
    seen = []
    agent = agent_of(scripted(FACTS[0]), on_report=lambda one: seen.append(one), **options)
    words, before = [], []
    async for event in agent.astream_events(ASK, version="v2"):
        if event["event"] == "on_chat_model_stream" and event["data"]["chunk"].text:
            words.append(event["data"]["chunk"].text)
            before.append(not seen)
    assert len(words) > 1 and "".join(words) == FACTS[0]
    assert all(before) != bool(options), "before the verdict exactly where nothing may withhold"
    assert [one.risk_level for one in seen] == ["LOW"]


@pytest.mark.requirement("CARD-22")
async def test_sessions_of_callers_never_mix():
    facts = [f"The password of customer c{n} of the bank is word{n * 7}." for n in range(32)]

    @tool
    def lookup(name: str) -> str:
        """Look a customer up."""
        return f"The balance of customer {name} at the bank is {int(name[1:]) + 1000} euros today."

    def reply(messages):
        name = messages[1].text.split()[-1].rstrip("?")
        if messages[-1].type == "tool":
            return messages[-1].text
        return calling("lookup", {"name": name})

    relay = opened(*facts)
    model = Chat(reply=reply)
    agent = agent_of(model, relay, [lookup], k=6, attach="full")
    asks = [{"messages": [("user", f"What is the balance of customer c{n}?")]} for n in range(32)]
    for results in (agent.batch(asks), await agent.abatch(asks)):
        sessions = set()
        for n, result in enumerate(results):
            for place, message in enumerate(answers(result), 1):
                told = message.response_metadata["crp_agent"]
                assert (told["turn"], told["depth"]) == (place, 0)
                assert told["window_number"] == place
                sessions.add(told["session_id"])
            last = answers(result)[-1]
            assert f"{n + 1000} euros" in last.content
            report = last.response_metadata["crp"]
            assert report["risk_level"] == "LOW"
            assert report["window_id"] == last.response_metadata["crp_agent"]["window_id"]
            assert report["response_content_hash"] == sha256(last.content)
        assert len(sessions) == 32
    for sent in model.seen:
        name = sent[1].text.split()[-1].rstrip("?")
        balances = {word for word in sent[0].text.replace(".", " ").split() if word.isdigit()}
        assert balances <= {str(int(name[1:]) + 1000)}, "no result of another caller"
    assert relay.verify().windows == 128


def test_a_thread_is_a_session():
    relay = opened()
    said = "The weather in Rome is sunny with 31 degrees and a light wind from the north-west."
    model = scripted(calling("weather", {"city": "Rome"}), said, said)
    agent = agent_of(model, relay, [weather], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    question = {"messages": [("user", "How is the weather in Rome?")]}
    agent.invoke(question, config)
    agent.invoke(question, config)
    told = [m.response_metadata["crp_agent"] for m in answers(agent.get_state(config).values)]
    assert len({one["session_id"] for one in told}) == 1
    assert [(one["turn"], one["window_number"]) for one in told] == [(1, 1), (2, 2), (1, 3)]


def nested(relay, seen, deepest=3, both=True, **options):
    """An agent that asks an agent that asks an agent; two tools at once on each level."""

    def level(depth):
        def reply(messages):
            last = messages[-1]
            if last.type == "tool" or depth == deepest - 1:
                return FACTS[0]
            return calling("ask", *({"who": who} for who in ("left", "right")[: 2 if both else 1]))

        model = Chat(reply=reply)
        tools = []
        if depth < deepest - 1:
            inner = level(depth + 1)

            @tool
            async def ask(who: str) -> str:
                """Ask another agent."""
                result = await inner.ainvoke(ASK)
                return answers(result)[-1].content

            @tool("ask")
            def ask_sync(who: str) -> str:
                """Ask another agent."""
                return answers(inner.invoke(ASK))[-1].content

            ask_sync.coroutine = ask.coroutine
            tools = [ask_sync]

        class Watching(AgentMiddleware):
            def after_model(self, state, runtime):
                message = state["messages"][-1]
                told = message.response_metadata
                seen.append((depth, {**told["crp_agent"], "headers": told["crp_headers"]}))

        checking = CRPMiddleware(relay, attach="full", **options)
        return create_agent(model, tools, middleware=[checking, Watching()])

    return level(0)


CALLERS = 10
PLAIN = {"decides": "composite", "verifier": "alignment"}
PLANTS = [
    f"Plant p{n} of the northern line delivers {400 + n} megawatts since 1990." for n in range(32)
]


def asked_plant(messages):
    return next(m for m in messages if m.type == "human").text.split()[-1].rstrip("?")


def a_plants_agent(relay, seen, deepest=3, inner_graph=False, sync_alone=False):
    """Three agents deep, two tools at once on each level; each is asked about one plant.

    `sync_alone` makes tools that an asynchronous run has to call in threads.
    """

    def level(depth):
        def reply(messages):
            plant = asked_plant(messages)
            fact = PLANTS[int(plant[1:])]
            if messages[-1].type == "tool" or depth == deepest - 1:
                return fact
            return calling("ask", {"plant": plant, "by": "left"}, {"plant": plant, "by": "right"})

        class Watching(AgentMiddleware):
            def after_model(self, state, runtime):
                told = state["messages"][-1].response_metadata
                seen.append((depth, asked_plant(state["messages"]), told))

        tools = []
        if depth < deepest - 1:
            inner = level(depth + 1)

            def question(plant):
                return {"messages": [("user", f"What delivers plant {plant}?")]}

            @tool("ask")
            def ask(plant: str, by: str) -> str:
                """Ask another agent."""
                return answers(inner.invoke(question(plant)))[-1].content

            @tool("ask")
            async def aask(plant: str, by: str) -> str:
                """Ask another agent."""
                return answers(await inner.ainvoke(question(plant)))[-1].content

            ask.coroutine = None if sync_alone else aask.coroutine
            tools = [ask]
        model = Chat(reply=reply)
        agent = create_agent(
            model,
            tools,
            middleware=[
                CRPMiddleware(relay, k=3, policy="halt-on MEDIUM", attach="full"),
                Watching(),
            ],
        )
        if not inner_graph:
            return agent
        # A graph of LangGraph of one's own around each agent.
        graph = StateGraph(MessagesState)
        graph.add_node("agent", agent)
        graph.add_edge(START, "agent")
        graph.add_edge("agent", END)
        return graph.compile()

    return level(0)


@pytest.mark.parametrize(
    ("graph", "way"),
    [(False, "astream"), (True, "batch"), (False, "abatch")],
    ids=["create_agent-astream", "StateGraph-batch", "create_agent-abatch-of-sync-tools"],
)
async def test_callers_at_once_three_agents_deep_each_have_their_own(graph, way):
    # No receipts and the document's own arithmetic: what is looked at is whose each window is.
    relay, seen = opened(*PLANTS, receipts=False, dpe=PLAIN), []
    agent = a_plants_agent(relay, seen, inner_graph=graph, sync_alone=way == "abatch")
    asks = [{"messages": [("user", f"What delivers plant p{n}?")]} for n in range(CALLERS)]
    match way:
        case "batch":
            results = await asyncio.to_thread(agent.batch, asks, {"max_concurrency": 8})
        case "abatch":
            results = await agent.abatch(asks)
        case "astream":

            async def streamed(ask):
                states = [part async for part in agent.astream(ask, stream_mode="values")]
                return states[-1]

            results = await asyncio.gather(*map(streamed, asks))
    for n, result in enumerate(results):
        assert answers(result)[-1].content == PLANTS[n]
    # Root: two calls. Two agents below it with two calls each, four below those with one.
    assert len(seen) == CALLERS * (2 + 2 * 2 + 4)
    sessions = {}
    for depth, plant, told in seen:
        agent_told = told["crp_agent"]
        assert agent_told["depth"] == depth
        assert agent_told["turn"] == agent_told["window_number"]
        # A step that only calls tools says nothing, and has no report.
        if report := told.get("crp"):
            assert report["window_id"] == agent_told["window_id"]
        assert len(told["crp_envelope"]["facts"]) <= 3
        sessions.setdefault(agent_told["session_id"], set()).add(
            (depth, plant, agent_told["parent_session"])
        )
    assert len(sessions) == CALLERS * 7
    for (one,) in sessions.values():
        depth, plant, parent = one
        assert (parent == "") == (depth == 0)
        if parent:
            ((above, its_plant, _),) = sessions[parent]
            assert (above, its_plant) == (depth - 1, plant), "below the one that asked it"
    for _, plant, told in seen:
        if report := told.get("crp"):
            assert report["response_content_hash"] == sha256(PLANTS[int(plant[1:])])
    assert relay.verify().windows == len(seen)


@pytest.mark.parametrize("mode", ["messages", "updates", "values", "custom", "debug"])
@pytest.mark.parametrize("way", ["stream", "astream"])
async def test_a_halt_three_agents_deep_leaks_in_no_stream_mode(mode, way):
    def level(depth):
        def reply(messages):
            if messages[-1].type == "tool" or depth == 2:
                return WRONG
            return calling("ask", {"by": "left"}, {"by": "right"})

        tools = []
        if depth < 2:
            inner = level(depth + 1)

            @tool("ask")
            def ask(by: str) -> str:
                """Ask another agent."""
                return answers(inner.invoke(ASK))[-1].content

            @tool("ask")
            async def aask(by: str) -> str:
                """Ask another agent."""
                return answers(await inner.ainvoke(ASK))[-1].content

            ask.coroutine = aask.coroutine
            tools = [ask]
        return agent_of(Chat(reply=reply), relay, tools, **HALTING)

    relay = opened()
    heard, error = await overheard(level(0), ASK, way, stream_mode=mode, subgraphs=True)
    assert isinstance(error, SafetyHalt)
    assert not leaked(heard)
    relay.verify()


@pytest.mark.requirement("CARD-26")
def test_depth_is_told_as_a_header_and_ends_at_five():
    seen = []
    with pytest.raises(AccessDenied) as caught:
        nested(opened(), seen, deepest=8, both=False).invoke(ASK)
    assert caught.value.status_hint == 403
    deepest = {}
    for depth, told in seen:
        deepest[depth] = told["headers"].get("CRP-Agent-Loop-Depth")
    assert deepest == {depth: str(depth) for depth in range(6)}


def test_a_sub_agent_is_under_the_policy_of_the_one_around_it():
    relay = opened(judge=reader())
    inner = create_agent(scripted(WRONG), [], middleware=[CRPMiddleware(relay)])
    assert answers(inner.invoke(ASK))[-1].content == WRONG

    @tool
    def ask() -> str:
        """Ask another agent."""
        return answers(inner.invoke(ASK))[-1].content

    outer = agent_of(scripted(calling("ask", {}), "Done."), relay, [ask], **HALTING)
    with pytest.raises(SafetyHalt):
        outer.invoke(ASK)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("own", "above", "checked"),
    [
        # Three agents, the innermost first; the outermost has its judge.
        ({}, {}, "judge ScriptedJudge"),
        ({"judge": False}, {}, "exact comparison"),
        ({}, {"judge": False}, "exact comparison"),
    ],
)
async def test_agents_below_one_with_a_judge_have_it_too(own, above, checked, asynchronous):
    relay, reports = opened(), []

    def below(model, tools, **fields):
        made = agent_of(model, relay, tools, **fields)

        def kept(result):
            message = answers(result)[-1]
            reports.append(message.response_metadata["crp"])
            return message.content

        def call() -> str:
            return kept(made.invoke(ASK))

        async def acall() -> str:
            return kept(await made.ainvoke(ASK))

        return call, acall

    inner, ainner = below(scripted(WRONG), [], **own)

    @tool
    def look() -> str:
        """Ask the innermost agent."""
        return inner()

    @tool
    async def alook() -> str:
        """Ask the innermost agent."""
        return await ainner()

    name = "alook" if asynchronous else "look"
    tools = [alook if asynchronous else look]
    middle, amiddle = below(scripted(calling(name, {}), FACTS[0]), tools, **above)

    @tool
    def ask() -> str:
        """Ask the agent between."""
        return middle()

    @tool
    async def aask() -> str:
        """Ask the agent between."""
        return await amiddle()

    name = "aask" if asynchronous else "ask"
    outer = agent_of(
        scripted(calling(name, {}), FACTS[0]),
        relay,
        [aask if asynchronous else ask],
        judge=reader(),
    )
    await outer.ainvoke(ASK) if asynchronous else outer.invoke(ASK)
    assert reports[0]["checked_by"] == checked
    # What one agent has decided holds below it alone.
    other, _ = below(scripted(WRONG), [])
    other()
    assert reports[-1]["checked_by"] == "exact comparison"


def test_a_judge_reads_nothing_of_an_agents_other_relay():
    inner = agent_of(scripted(FACTS[0]), opened(), [])
    reports = []

    @tool
    def ask() -> str:
        """Ask another agent."""
        message = answers(inner.invoke(ASK))[-1]
        reports.append(message.response_metadata["crp"])
        return message.content

    model = scripted(calling("ask", {}), FACTS[0])
    agent_of(model, opened(), [ask], judge=reader()).invoke(ASK)
    assert reports[0]["checked_by"] == "exact comparison"


def test_what_a_sub_agent_costs_is_taken_from_the_one_around_it():
    relay = opened()
    inner = create_agent(scripted(WRONG), [], middleware=[CRPMiddleware(relay)])

    @tool
    def ask() -> str:
        """Ask another agent."""
        return answers(inner.invoke(ASK))[-1].content

    outer = agent_of(scripted(calling("ask", {}), FACTS[0]), relay, [ask], attach="full")
    first, last = answers(outer.invoke(ASK))
    budgets = [
        float(m.response_metadata["crp_headers"]["CRP-Agent-Safety-Budget"]) for m in (first, last)
    ]
    assert budgets[0] == 1.0 > budgets[1]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_an_agent_that_goes_on_for_ever_is_stopped(way):
    def reply(messages):
        call = {"name": "weather", "args": {"city": "Rome"}, "id": f"c{len(messages)}"}
        return AIMessage("", tool_calls=[{**call, "type": "tool_call"}])

    model = Chat(reply=reply)
    agent = agent_of(model, tools=[weather], max_turns=4)
    with pytest.raises(LimitReached, match="4 times"):
        await agent.ainvoke(ASK) if way == "ainvoke" else agent.invoke(ASK)
    assert len(model.seen) == 4


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_remedy_asks_the_same_model_again(way):
    model = scripted(WRONG, "The reactor delivers 412 megawatts.", FACTS[0])
    agent = agent_of(model, strategy="reflexive", tools=[weather])
    result = await agent.ainvoke(ASK) if way == "ainvoke" else agent.invoke(ASK)
    (message,) = answers(result)
    assert message.content == FACTS[0]
    assert [len(sent) for sent in model.seen] == [2, 4, 6]
    assert [bool(bound.get("tools")) for bound in model.bound] == [True, False, False]
    assert no_metadata(prompts(model))


def test_a_structured_answer_is_examined_too():
    class Power(BaseModel):
        """The power of a reactor."""

        sentence: str

    def agent(sentence):
        model = scripted(calling("Power", {"sentence": sentence}))
        return agent_of(model, response_format=ToolStrategy(Power), **HALTING)

    assert agent(FACTS[0]).invoke(ASK)["structured_response"] == Power(sentence=FACTS[0])
    with pytest.raises(SafetyHalt):
        agent(WRONG).invoke(ASK)


def test_blocks_of_a_system_message_stay_as_they_are():
    model = scripted(FACTS[0])
    block = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    agent_of(model, system_prompt=SystemMessage([block])).invoke(ASK)
    first, added = model.seen[0][0].content
    assert first == block
    assert FACTS[0] in added["text"] and "Be brief." not in added["text"]


def test_pictures_of_the_user_reach_the_model():
    model = scripted(FACTS[0])
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    content = [{"type": "text", "text": QUESTION}, picture]
    agent_of(model).invoke({"messages": [HumanMessage(content)]})
    assert model.seen[0][1].content == content


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_errors_of_a_model_go_on_unchanged_and_are_sealed(way):
    class Down(Exception):
        pass

    relay = opened()
    agent = agent_of(scripted(Down("no")), relay)
    with pytest.raises(Down):
        await agent.ainvoke(ASK) if way == "ainvoke" else agent.invoke(ASK)
    assert relay.verify().windows == 1
    retrying = create_agent(
        scripted(ModelError("once"), FACTS[0]),
        [],
        middleware=[ModelRetryMiddleware(initial_delay=0.0, jitter=False), CRPMiddleware(relay)],
    )
    assert answers(retrying.invoke(ASK))[-1].content == FACTS[0]


async def test_a_cancelled_run_is_sealed():
    relay = opened()
    started = asyncio.Event()

    class Slow(Chat):
        async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
            started.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(agent_of(Slow(reply=str), relay).ainvoke(ASK))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert relay.verify().windows == 1


async def test_an_agent_in_a_graph_of_langgraph():
    relay = opened()
    agent = agent_of(scripted(FACTS[0]), relay)
    graph = StateGraph(MessagesState)
    graph.add_node("reactor", agent)
    graph.add_edge(START, "reactor")
    graph.add_edge("reactor", END)
    compiled = graph.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    (message,) = answers(compiled.invoke(ASK, config))
    told = message.response_metadata["crp_agent"]
    assert (told["depth"], told["turn"]) == (0, 1), "a graph around an agent is no agent"
    halted = StateGraph(MessagesState)
    halted.add_node("reactor", agent_of(scripted(WRONG), relay, **HALTING))
    halted.add_edge(START, "reactor")
    options = {"stream_mode": "messages", "subgraphs": True}
    heard, error = await overheard(halted.compile(), ASK, "astream", **options)
    assert isinstance(error, SafetyHalt)
    assert not leaked(heard)


@pytest.mark.parametrize("mode", ["messages", "updates", "values"])
@pytest.mark.parametrize("own", [False, True], ids=["relay", "llm"])
async def test_the_turn_as_a_node_of_a_graph_leaks_nothing(mode, own):
    def graph(answer):
        if own:
            crp = CRPRunnable(opened(), llm=scripted(answer), **HALTING)
        else:
            relay = opened(models=ScriptedModel(answer))
            crp = CRPRunnable(relay, model="gpt-4o", **HALTING)
        made = StateGraph(MessagesState)
        made.add_node("answer", lambda state: {"messages": [crp.invoke(state["messages"])]})
        made.add_edge(START, "answer")
        return made.compile()

    heard, error = await overheard(graph(WRONG), ASK, "stream", stream_mode=mode)
    assert isinstance(error, SafetyHalt)
    assert not leaked(heard)
    heard, error = await overheard(graph(FACTS[0]), ASK, "stream", stream_mode=mode)
    assert error is None and "412" in repr(heard)


@pytest.mark.requirement("CARD-25")
@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
async def test_the_callback_reports_each_step_of_an_agent(way):
    listed = Listed(documents=[Document(text) for text in FACTS])
    search = create_retriever_tool(listed, "search", "Finds facts.")
    model = scripted(
        calling("search", {"query": QUESTION}, text="I look it up."),
        calling("search", {"query": "again"}, text=FACTS[1]),
        WRONG,
    )
    heard = []
    agent = create_agent(model, [search])
    config = {"callbacks": [DPECallbackHandler(on_report=heard.append)]}
    match way:
        case "invoke":
            agent.invoke(ASK, config)
        case "ainvoke":
            await agent.ainvoke(ASK, config)
        case _:
            parts, error = await overheard(agent, ASK, way, stream_mode="messages", config=config)
            assert error is None and len(parts) > 3
    assert ["not-examined" in one["flags"] for one in heard] == [True, False, False]
    assert [one.get("risk_level") == "LOW" for one in heard[1:]] == [True, False]
    assert heard[2]["distortion_types"] == ["NUMBER_CHANGED"]


@pytest.mark.parametrize("change", ["", "add", "withdraw"])
def test_later_steps_select_again_only_if_the_facts_have_changed(change):
    embedder = Recording()
    relay = opened(embedder=embedder)
    added = "The Meridian reactor delivers its power to the city of Norden."

    @tool
    def look(x: str) -> str:
        """Look up."""
        if change == "add":
            relay.fabric.add([added])
        elif change == "withdraw":
            relay.fabric.erase(shown.source_id)
        return "Nothing."

    shown = relay.turn(QUESTION).preview().facts[0]
    embedder.texts.clear()
    model = scripted(calling("look", {"x": "y"}), calling("look", {"x": "z"}), FACTS[1])
    agent_of(model, relay, [look]).invoke(ASK)
    first, second, third = (messages[0].text for messages in model.seen)
    assert FACTS[0] in first
    assert embedder.texts.count(QUESTION) <= 1 or change
    assert (second == first) is (third == first) is (not change)
    assert (added in second) is (change == "add")
    assert (FACTS[0] in third) is (change != "withdraw")


@pytest.mark.parametrize("seconds", [30, 90])
def test_a_later_step_reuses_no_candidates_over_the_end_of_a_ttl(monkeypatch, seconds):
    clock, ages = FixedClock(), []
    relay = opened(clock=clock)
    relay.fabric.put([Fact(content=f"The Meridian reactor has {seconds} tall towers.", ttl="PT1M")])
    assembled = WindowEnvelope._assembled

    def noted(self, *args):
        envelope = assembled(self, *args)
        ages.append({fact.stale for fact in self.made.candidates.facts if "towers" in fact.content})
        return envelope

    @tool
    def look(x: str) -> str:
        """Look up."""
        clock.moment += timedelta(seconds=seconds)
        return "Nothing."

    monkeypatch.setattr(WindowEnvelope, "_assembled", noted)
    agent_of(scripted(calling("look", {"x": "y"}), FACTS[1]), relay, [look]).invoke(ASK)
    assert ages == [{False}, {seconds > 60}]


def test_what_does_not_go_with_an_agent_is_refused():
    relay = opened()
    for options, words in (
        ({"history": ()}, "'history'"),
        ({"budget": 1}, "'budget'"),
        ({"strategy": "fan-out"}, "strategy"),
        ({"max_turns": 0}, "max_turns"),
    ):
        with pytest.raises(RequestError, match=words):
            CRPMiddleware(relay, **options)
    with pytest.raises(PolicySyntaxError):
        agent_of(scripted(FACTS[0]), policy="halt").invoke(ASK)
    with pytest.raises(RequestError, match="no user question"):
        agent_of(scripted(FACTS[0])).invoke({"messages": [("ai", "Hello")]})

"""A window's span in an agent's trace, and a tracer's run with the report, by the tracers' own code.

Everything stays in memory: exporters of OpenTelemetry, and a client of LangSmith without a network.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra observability is not installed")
pytest.importorskip("langchain", reason="the extra langgraph is not installed")

from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough
from langchain_core.tools import tool
from langchain_core.tracers import BaseTracer, LangChainTracer
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langsmith import Client
from langsmith.run_helpers import tracing_context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from crp_integrations import Relay
from crp_integrations.errors import SafetyHalt
from crp_integrations.langchain import CRPMiddleware, DPECallbackHandler
from crp_integrations.observability.otel import OpenTelemetry
from crp_integrations.stores.memory import MemoryStore
from tests.adapters.langchain_doubles import FACTS, scripted
from tests.doubles import HashEmbedder

QUESTION = "How much power does the Meridian reactor deliver?"
ASK = {"messages": [("user", QUESTION)]}
WRONG = FACTS[0].replace("412", "512")
WINDOW = "crp.window"
WAYS = ("invoke", "ainvoke")


class Traces:
    """The spans of one test, in memory."""

    def __init__(self) -> None:
        self.kept = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))
        self.mine = self.provider.get_tracer("mine")

    @property
    def windows(self) -> list[ReadableSpan]:
        """The windows' spans, in the order of their seals."""
        return [span for span in self.kept.get_finished_spans() if span.name == WINDOW]

    def path(self, span: ReadableSpan) -> list[str]:
        """Names of the spans around one, inmost first."""
        spans = {one.context.span_id: one for one in self.kept.get_finished_spans()}
        names = []
        while span.parent is not None:
            span = spans[span.parent.span_id]
            names.append(span.name)
        return names

    def one_trace(self) -> None:
        """Every window is in the trace of the outermost agent."""
        assert len({span.context.trace_id for span in self.windows}) == 1


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture
def relay(traces: Traces) -> Iterator[Relay]:
    observed = OpenTelemetry(traces.provider)
    with Relay.open(MemoryStore(), embedder=HashEmbedder(), tracer=observed) as opened:
        opened.fabric.add(list(FACTS))
        yield opened


def calling(name: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": {}, "id": "1", "type": "tool_call"}])


async def asked(runnable: Any, given: Any, way: str, **config: Any) -> Any:
    """What a runnable says in one of LangChain's four ways, called in a thread where it blocks."""
    match way:
        case "invoke":
            return await asyncio.to_thread(runnable.invoke, given, config)
        case "ainvoke":
            return await runnable.ainvoke(given, config)
        case "stream":
            return await asyncio.to_thread(lambda: list(runnable.stream(given, config)))
        case _:
            return [part async for part in runnable.astream(given, config)]


def agents(relay: Relay, around: Callable[[], Any] | None = None) -> Any:
    """An agent that asks an agent in its tool, and then says something wrong."""
    inner = create_agent(
        scripted(FACTS[0]), [], middleware=[CRPMiddleware(relay)], name="researcher"
    )

    def research() -> str:
        """Ask another agent."""
        if around is None:
            return inner.invoke(ASK)["messages"][-1].text
        with around():
            return inner.invoke(ASK)["messages"][-1].text

    async def aresearch() -> str:
        """Ask another agent."""
        return (await inner.ainvoke(ASK))["messages"][-1].text

    research_tool = tool("research", description="asks")(research)
    if around is None:
        research_tool.coroutine = aresearch
    model = scripted(calling("research"), WRONG)
    return create_agent(model, [research_tool], middleware=[CRPMiddleware(relay)], name="boss")


def check_windows(traces: Traces) -> None:
    """The three windows of `agents`: the boss's call of its tool, the researcher's, the boss's."""
    first, inner, last = (dict(span.attributes or {}) for span in traces.windows)
    assert [(one["crp.agent.depth"], one["crp.agent.turn"]) for one in (first, inner, last)] == [
        (0, 1),
        (1, 1),
        (0, 2),
    ]
    assert inner["crp.session.parent"] == first["session.id"] == last["session.id"]
    assert first["crp.session.parent"] == last["crp.session.parent"] == ""
    # A step that only calls tools has no answer, and no level.
    assert "crp.risk.level" not in first
    assert (inner["crp.risk.level"], inner["crp.claims.flagged"], inner["crp.distortions"]) == (
        "LOW",
        0,
        0,
    )
    assert last["crp.risk.level"] in ("HIGH", "CRITICAL")
    assert last["crp.claims.flagged"] == last["crp.distortions"] == 1
    assert len({one["crp.window.id"] for one in (first, inner, last)}) == 3
    traces.one_trace()


# --- OpenTelemetry alone -------------------------------------------------------------------------


def test_windows_are_nested_in_your_own_spans(traces: Traces, relay: Relay) -> None:
    def around() -> Any:
        return traces.mine.start_as_current_span("my tool")

    agent = agents(relay, around)
    with traces.mine.start_as_current_span("my agent"):
        agent.invoke(ASK)
    check_windows(traces)
    first, inner, last = map(traces.path, traces.windows)
    assert first == last == ["my agent"]
    assert inner == ["my tool", "my agent"]
    # The pack and the evaluation of a window are within its span.
    for span in traces.kept.get_finished_spans():
        if span.name.endswith("context_pack"):
            assert traces.path(span)[0] == WINDOW
    for window in traces.windows:
        assert window.end_time - window.start_time > 1_000_000


def test_a_question_has_one_span_a_window(traces: Traces, relay: Relay) -> None:
    answer = relay.ask(QUESTION)
    again = relay.ask(QUESTION, session_id=answer.session_id)
    first, second = traces.windows
    assert [traces.path(one) for one in (first, second)] == [["crp.ask"], ["crp.ask"]]
    assert first.attributes["crp.window.id"] == answer.window_id
    assert second.attributes["crp.window.id"] == again.window_id
    assert second.attributes["crp.window.number"] == 2
    assert second.attributes["crp.risk.level"] == again.report.risk_level.value


def test_a_window_that_failed_is_an_error_by_its_class(traces: Traces, relay: Relay) -> None:
    failing = scripted(RuntimeError(QUESTION))
    agent = create_agent(failing, [], middleware=[CRPMiddleware(relay)])
    with pytest.raises(RuntimeError):
        agent.invoke(ASK)
    (window,) = traces.windows
    assert traces.path(window) == []
    assert window.status.status_code is StatusCode.ERROR
    assert window.attributes["error.type"] == window.status.description == "RuntimeError"
    assert "crp.risk.level" not in window.attributes
    assert QUESTION not in window.to_json()


# --- OpenInference: Phoenix ----------------------------------------------------------------------


@pytest.fixture
def openinference(traces: Traces) -> Iterator[None]:
    name = "openinference.instrumentation.langchain"
    instrumentor = pytest.importorskip(name).LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=traces.provider)
    try:
        yield
    finally:
        instrumentor.uninstrument()


@pytest.mark.usefixtures("openinference")
@pytest.mark.parametrize("way", WAYS)
async def test_windows_are_nested_in_openinference_traces(
    way: str, traces: Traces, relay: Relay
) -> None:
    await asked(agents(relay), ASK, way)
    check_windows(traces)
    first, inner, last = map(traces.path, traces.windows)
    assert first == last == ["model", "boss"]
    assert inner == ["model", "researcher", "research", "tools", "boss"]


@pytest.mark.usefixtures("openinference")
def test_of_a_framework_s_span_and_your_own_the_inner_one_is_around(
    traces: Traces, relay: Relay
) -> None:
    @tool
    def look_up() -> str:
        """Look something up."""
        relay.ask(QUESTION)
        with traces.mine.start_as_current_span("my work"):
            return relay.ask(QUESTION).text

    with traces.mine.start_as_current_span("my server"):
        look_up.invoke({})
    assert [traces.path(one) for one in traces.windows] == [
        ["crp.ask", "look_up", "my server"],
        ["crp.ask", "my work", "my server"],
    ]


@pytest.mark.usefixtures("openinference")
@pytest.mark.parametrize("way", WAYS)
async def test_a_handler_s_window_is_below_its_model_call(
    way: str, traces: Traces, relay: Relay
) -> None:
    handler = DPECallbackHandler(relay=relay)
    await asked(chain(WRONG), QUESTION, way, callbacks=[handler])
    (window,) = traces.windows
    assert traces.path(window) == ["Chat", "RunnableSequence"]
    assert (window.attributes["crp.agent.depth"], window.attributes["crp.agent.turn"]) == (0, 1)
    assert window.attributes["crp.distortions"] == 1
    # The instrumentation's own span of the call has the report in its output.
    (call,) = [one for one in traces.kept.get_finished_spans() if one.name == "Chat"]
    assert level_of(json.loads(str(call.attributes["output.value"]))) == "HIGH"


async def test_windows_are_nested_in_llama_index_traces(traces: Traces, relay: Relay) -> None:
    name = "openinference.instrumentation.llama_index"
    instrumentor = pytest.importorskip(name).LlamaIndexInstrumentor()
    from llama_index.core.tools import FunctionTool

    from crp_integrations.llama_index import CRPAgentLLM
    from tests.adapters import llama_index_doubles as doubles

    def made(name: str, *script: Any, tools: Any = ()) -> Any:
        llm = CRPAgentLLM(llm=doubles.scripted(*script), relay=relay)
        return doubles.agent(llm, tools, name=name)

    inner = made("researcher", FACTS[0])

    async def research(topic: str) -> str:
        """Ask another agent."""
        return str(await inner.run(QUESTION))

    asks = FunctionTool.from_defaults(async_fn=research)
    instrumentor.instrument(tracer_provider=traces.provider)
    try:
        await made("boss", [("research", {"topic": "M"})], WRONG, tools=[asks]).run(QUESTION)
    finally:
        instrumentor.uninstrument()
    check_windows(traces)
    first, below, last = map(traces.path, traces.windows)
    assert first == last
    # A stream is played after the span of the call that began it: the window lies in the step.
    assert first[0] in ("CRPAgentLLM.achat", "BaseWorkflowAgent.run_agent_step")
    assert first[-1] == "FunctionAgent.run" and first.count("FunctionAgent.run") == 1
    assert below[: len(first)] == first
    assert below[len(first)] == "FunctionTool.acall"


# --- Langfuse ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_windows_are_nested_in_langfuse_traces(
    way: str, traces: Traces, relay: Relay
) -> None:
    langfuse = pytest.importorskip("langfuse")
    from langfuse.langchain import CallbackHandler

    sent = InMemorySpanExporter()
    client = langfuse.Langfuse(
        public_key=f"pk-lf-{way}",
        secret_key="sk-lf-test",
        base_url="http://127.0.0.1:9",
        tracer_provider=traces.provider,
        span_exporter=sent,
    )
    try:
        handler = CallbackHandler(public_key=f"pk-lf-{way}")
        await asked(agents(relay), ASK, way, callbacks=[handler])
        client.flush()
        check_windows(traces)
        first, inner, last = map(traces.path, traces.windows)
        assert first == last == ["model", "boss"]
        assert inner == ["model", "researcher", "research", "tools", "boss"]
        # Langfuse leaves out what is no span of a model's, such as `crp.close`; not these.
        names = [span.name for span in sent.get_finished_spans()]
        assert names.count(WINDOW) == names.count("retrieval context_pack") == 3
        assert names.count("evaluation context_pack") == 2
        assert "crp.close" not in names
    finally:
        client.shutdown()


# --- the run of a model call, and who is told of it first ----------------------------------------


class Documents(BaseRetriever):
    """A retriever that finds every fact."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(text) for text in FACTS]


def chain(answer: str) -> Any:
    prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
    return {"context": Documents(), "question": RunnablePassthrough()} | prompt | scripted(answer)


def level_of(outputs: Any) -> str:
    """The risk level that a run's outputs hold, wherever LangChain writes the message's metadata."""
    if isinstance(outputs, dict):
        told = outputs.get("crp")
        if isinstance(told, dict):
            return str(told.get("risk_level") or told["level"])
        outputs = list(outputs.values())
    found = map(level_of, outputs) if isinstance(outputs, list | tuple) else ()
    return next((one for one in found if one), "")


class Tracer(BaseTracer):
    """Keeps what a run of a model call held when it ended, as a tracer that sends it would."""

    def __init__(self, *, inline: bool) -> None:
        super().__init__()
        self.run_inline = inline
        self.calls: list[Any] = []

    def _persist_run(self, run: Any) -> None:
        pass

    def on_chat_model_start(self, *given: Any, **named: Any) -> Any:
        return LangChainTracer.on_chat_model_start(self, *given, **named)

    def _on_llm_end(self, run: Any) -> None:
        self.calls.append(json.loads(json.dumps(run.outputs)))


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "threads"])
@pytest.mark.parametrize("handler_first", [True, False], ids=["handler", "tracer"])
@pytest.mark.parametrize("way", [*WAYS, "stream", "astream"])
async def test_a_tracer_s_run_has_the_report_whichever_stands_first(
    way: str, handler_first: bool, inline: bool
) -> None:
    tracer, handler = Tracer(inline=inline), DPECallbackHandler()
    callbacks = [handler, tracer] if handler_first else [tracer, handler]
    await asked(chain(WRONG), QUESTION, way, callbacks=callbacks)
    (outputs,) = tracer.calls
    assert handler.last_report is not None
    assert level_of(outputs) == level_of({"crp": handler.last_report}) == "HIGH"


def test_a_run_collector_has_the_report() -> None:
    collector = RunCollectorCallbackHandler()
    chain(FACTS[0]).invoke(QUESTION, {"callbacks": [collector, DPECallbackHandler()]})
    (root,) = collector.traced_runs
    (call,) = [run for run in root.child_runs if run.run_type in ("llm", "chat_model")]
    assert level_of(call.outputs) == "LOW"


@pytest.mark.parametrize("way", WAYS)
async def test_a_withheld_answer_ends_its_run_with_the_report(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call whose end nobody is told of stays open in a trace for ever."""
    tracer = Tracer(inline=False)
    halt = SafetyHalt("withheld", reason="CRITICAL_RISK")
    handler = DPECallbackHandler(on_critical="raise")
    examined = handler._examined
    monkeypatch.setattr(handler, "_examined", lambda *given: (*examined(*given)[:2], halt))
    with pytest.raises(SafetyHalt):
        await asked(chain(WRONG), QUESTION, way, callbacks=[handler, tracer])
    (outputs,) = tracer.calls
    assert level_of(outputs) == "HIGH"


# --- LangSmith -----------------------------------------------------------------------------------


class Session:
    """What LangSmith's client sends, read instead."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}

    def request(self, method: str, url: str, **sent: Any) -> Any:
        if "/runs" in url:
            body = json.loads(sent["data"])
            told = self.runs.setdefault(str(body.get("id") or url.rpartition("/")[2]), {})
            told.update({name: value for name, value in body.items() if value is not None})
        return Reply()

    def mount(self, *given: Any) -> None:
        pass

    def close(self) -> None:
        pass

    def named(self, name: str) -> list[dict[str, Any]]:
        return [run for run in self.runs.values() if run.get("name") == name]


class Reply:
    """An empty answer of LangSmith's service."""

    status_code = 200
    text = "{}"
    content = b"{}"

    def json(self) -> dict[str, Any]:
        return {}

    def raise_for_status(self) -> None:
        pass


@pytest.fixture
def langsmith() -> tuple[Session, Client]:
    session = Session()
    return session, Client(
        api_url="http://127.0.0.1:9",
        api_key="test",
        session=session,
        auto_batch_tracing=False,
        info={},
    )


@pytest.mark.parametrize("way", WAYS)
async def test_langsmith_has_the_report_on_the_model_call_of_a_chain(
    way: str, langsmith: tuple[Session, Client]
) -> None:
    session, client = langsmith
    with tracing_context(enabled=True, client=client):
        await asked(chain(WRONG), QUESTION, way, callbacks=[DPECallbackHandler()])
    (call,) = session.named("Chat")
    assert call["run_type"] == "llm"
    assert level_of(call["outputs"]) == "HIGH"


@pytest.mark.parametrize("way", WAYS)
async def test_langsmith_has_an_agent_s_reports_on_its_steps(
    way: str, relay: Relay, langsmith: tuple[Session, Client]
) -> None:
    session, client = langsmith
    with tracing_context(enabled=True, client=client):
        result = await asked(agents(relay), ASK, way)
    last = result["messages"][-1].response_metadata["crp_agent"]
    (boss,) = session.named("boss")
    (inner,) = session.named("researcher")
    steps = session.named("model")
    assert len(steps) == 3
    (step,) = [one for one in steps if last["window_id"] in json.dumps(one["outputs"])]
    assert level_of(step["outputs"]) in ("HIGH", "CRITICAL")
    assert level_of(inner["outputs"]) == "LOW"
    # The calls within have ended before their answers are examined.
    assert [level_of(call["outputs"]) for call in session.named("Chat")] == [""] * 3
    # The researcher is below the boss's tool.
    (research,) = session.named("research")
    assert inner["parent_run_id"] == research["id"]
    assert research["trace_id"] == boss["trace_id"]

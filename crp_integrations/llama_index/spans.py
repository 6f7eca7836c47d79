"""LlamaIndex's spans with agent positions and sessions, and the events of this package."""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_index.core.instrumentation.dispatcher import active_instrument_tags
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.agent import AgentToolCallEvent
from llama_index.core.instrumentation.events.llm import LLMChatEndEvent
from llama_index.core.instrumentation.events.query import QueryStartEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.instrumentation.span import active_span_id
from llama_index.core.schema import MetadataMode, NodeWithScore

from crp_integrations.adapters.arguments import check_emitter
from crp_integrations.adapters.conversations import context_value
from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.errors import FactRejected
from crp_integrations.governance.memory_writer import Emitter
from crp_integrations.ports import share_in_copies
from crp_integrations.session.records import session_id_of


@dataclass(frozen=True, slots=True)
class SpanEvidence:
    """Evidence found in one span: a retriever's nodes, or a tool's result.

    Attributes:
        query: the query of the retriever.
        asked: the arguments of the tool.
    """

    nodes: tuple[NodeWithScore, ...] = ()
    query: str = ""
    tool: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def ids(self) -> set[str]:
        """Ids of the nodes."""
        return {scored.node.node_id for scored in self.nodes}


# Key in `Span.own` of the whole report, for a model call that was a window.
WHOLE_REPORT: Final = "report"


# Spans compare by identity.
@dataclass(slots=True, eq=False)
class Span:
    """One span in progress, or one that a model call in progress runs in.

    Attributes:
        agent: name of the agent whose run or step the span is; empty for other spans.
        runs: True if the span is an agent's run.
        tool: name of the tool if the span is a tool call; else empty.
        covered: True if answers of model calls inside are examined by a component of this package.
        turn: number of a model call in the agent's run.
        turns: number of model calls in an agent's run so far.
        last: `id()` of each message of the last model call in an agent's run.
        tag: session in `instrument_tags` when an agent's run began.
        results: texts of tool results in an agent's run.
        rejected: claims flagged in answers of sub-agents of an agent's run.
        unfounded: call id and text of the tool results that are errors or handovers to an agent.
        evidence: evidence found inside the span, by the id of the span that found it.
        report: metadata attached to the last answer inside.
        response: weak reference to the response of a query or chat engine; may be a stream.
        own: values that other modules keep for the span, by their own keys.
        at_end: functions called when the span has ended.
        children: spans started inside, until this span ends.
    """

    id: str
    parent: Span | None
    agent: str = ""
    runs: bool = False
    tool: str = ""
    covered: bool = False
    turn: int = 0
    turns: int = 0
    last: tuple[int, ...] = ()
    tag: Any = None
    results: set[str] = field(default_factory=set)
    rejected: tuple[RejectedClaim, ...] = ()
    unfounded: set[tuple[str, str]] = field(default_factory=set)
    evidence: dict[str, SpanEvidence] = field(default_factory=dict)
    report: dict[str, Any] | None = None
    response: weakref.ref[Any] | None = None
    own: dict[Any, Any] = field(default_factory=dict)
    at_end: list[Callable[[], object]] = field(default_factory=list)
    children: list[Span] = field(default_factory=list)

    def path(self) -> list[Span]:
        """The span and all spans around it, innermost first."""
        made: list[Span] = []
        span: Span | None = self
        while span is not None:
            made.append(span)
            span = span.parent
        return made

    def scope(self) -> list[Span]:
        """The span and the spans around it, up to the tool or agent that it runs in."""
        made: list[Span] = []
        for span in self.path():
            made.append(span)
            if span.runs or span.tool:
                break
        return made


@dataclass(frozen=True, slots=True)
class AgentPosition:
    """Position of a model call among agents.

    Attributes:
        agent: name of the agent, empty outside of agents.
        depth: number of agents around that agent, 0 for the root and outside of agents.
        turn: number of model calls in the agent's run so far, including this one; 0 outside of
            agents.
        tool: name of the tool in which the call is made; empty for the agent's own calls.
        run, parent: span ids of the agent's run and of the outer agent's run; empty for none.
    """

    agent: str = ""
    depth: int = 0
    turn: int = 0
    tool: str = ""
    run: str = ""
    parent: str = ""

    def as_json(self) -> dict[str, Any]:
        """The position as plain JSON."""
        return {name: getattr(self, name) for name in self.__slots__}

    def on_message(self) -> dict[str, Any]:
        """The position for a message's metadata, which has no room for the ids of spans."""
        return {name: getattr(self, name) for name in ("agent", "depth", "turn", "tool")}


def agent_position(span: Span | None) -> AgentPosition:
    """Position of a model call in this span."""
    if span is None:
        return AgentPosition()
    path = span.path()
    runs = [enclosing for enclosing in path if enclosing.runs]
    if not runs:
        return AgentPosition(
            tool=next((enclosing.tool for enclosing in path if enclosing.tool), "")
        )
    run = runs[0]
    inside = path[: path.index(run)]
    return AgentPosition(
        agent=next((enclosing.agent for enclosing in inside if enclosing.agent), run.agent),
        depth=len(runs) - 1,
        turn=next((enclosing.turn for enclosing in inside if enclosing.turn), run.turns),
        tool=next((enclosing.tool for enclosing in inside if enclosing.tool), ""),
        run=run.id,
        parent=runs[1].id if len(runs) > 1 else "",
    )


def agent_run(span: Span | None) -> Span | None:
    """The run of the agent that makes this call itself; None inside its tools or outside agents."""
    inmost = span.scope()[-1] if span is not None else None
    return inmost if inmost is not None and inmost.runs else None


def attach_metadata(response: Any, metadata: Mapping[str, Any]) -> None:
    """Add metadata about an answer to a response's metadata."""
    response.metadata = {**(getattr(response, "metadata", None) or {}), **metadata}


# Marks the end of a stream.
_END: Final[Any] = object()
STREAMS: Final = (StreamingResponse, AsyncStreamingResponse, StreamingAgentChatResponse)


def read_in_span(response: Any, span_id: str, done: Callable[[], None]) -> None:
    """Make a stream's model calls run in the given span, even if that has ended.

    Streams of chat engines are read in their own threads and tasks, which already have the span.
    """
    if isinstance(response, StreamingResponse):
        response.response_gen = _read(response.response_gen, span_id, done)
    elif isinstance(response, AsyncStreamingResponse):
        response.response_gen = _aread(response.response_gen, span_id, done)


def _read(response: Any, span_id: str, done: Callable[[], None]) -> Generator[str, None, None]:
    pieces = iter(response)
    try:
        while True:
            with context_value(active_span_id, span_id):
                piece = next(pieces, _END)
            if piece is _END:
                return
            yield piece
    finally:
        if isinstance(pieces, Generator):
            pieces.close()
        done()


async def _aread(
    response: Any, span_id: str, done: Callable[[], None]
) -> AsyncGenerator[str, None]:
    pieces = aiter(response)
    try:
        while True:
            with context_value(active_span_id, span_id):
                piece = await anext(pieces, _END)
            if piece is _END:
                return
            yield piece
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
        done()


TAG: Final = "session_id"


def session_of(tags: Mapping[str, Any] | None = None) -> str:
    """The session id in LlamaIndex's `instrument_tags`; empty for none."""
    name = (active_instrument_tags.get() if tags is None else tags).get(TAG)
    return "" if name is None or name == "" else session_id_of(name)


class EnvelopeEvent(BaseEvent):
    """An envelope was packed.

    Spec: CRP-SPEC-003 §3

    Attributes:
        envelope: the envelope as plain JSON, with the reason for each dropped fact.
    """

    envelope: dict[str, Any]

    @classmethod
    def class_name(cls) -> str:
        """The event's name."""
        return "EnvelopeEvent"


class ReportEvent(BaseEvent):
    """An answer was examined, or could not be.

    Spec: CRP-SPEC-005 §2

    Attributes:
        report: the report as plain JSON; its risk level is UNKNOWN if there was no examination.
        agent: fields of `AgentPosition`: agent, depth, turn, tool, run and parent.
    """

    report: dict[str, Any]
    agent: dict[str, Any]

    @classmethod
    def class_name(cls) -> str:
        """The event's name."""
        return "ReportEvent"


log = logging.getLogger("crp_integrations.llama_index")


class EmittingHandler(BaseEventHandler):
    """Emits memory items from LlamaIndex's events; add it to a dispatcher.

    A question (user-action) and a model's answer (transcript) become `episodic` items, a tool call
    a `procedural` one (tool-recipe), and a retrieved passage a `semantic` one (document). An item
    that the fabric refuses, such as a text of two words, is logged and skipped.

    Spec: Summit §Backlog Write 3

    Args:
        emitter: creates the items and passes them on.

    Raises:
        RequestError: `emitter` is not an Emitter.
    """

    _emitter: Emitter = PrivateAttr()

    __deepcopy__ = share_in_copies

    def __init__(self, emitter: Emitter) -> None:
        check_emitter(emitter, "EmittingHandler")
        super().__init__()
        self._emitter = emitter

    @classmethod
    def class_name(cls) -> str:
        """The handler's name."""
        return "EmittingHandler"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Emit the items of one event."""
        emitter = self._emitter
        if isinstance(event, QueryStartEvent):
            asked = event.query if isinstance(event.query, str) else event.query.query_str
            self._emit(emitter.episodic, asked, "user-action")
        elif isinstance(event, LLMChatEndEvent):
            if event.response is not None:
                self._emit(emitter.episodic, event.response.message.content or "", "transcript")
        elif isinstance(event, AgentToolCallEvent):
            try:
                arguments = json.loads(event.arguments)
            except ValueError:
                arguments = event.arguments
            recipe = {"tool": event.tool.name or "", "arguments": arguments}
            self._emit(emitter.procedural, recipe, "tool-recipe")
        elif isinstance(event, RetrievalEndEvent):
            for scored in event.nodes:
                text = scored.node.get_content(metadata_mode=MetadataMode.NONE)
                self._emit(emitter.semantic, text, "document")

    def _emit(self, emit: Callable[..., Any], content: Any, category: str) -> None:
        try:
            emit(content, category)
        except FactRejected as error:
            log.info("a memory of category %s was not kept: %s", category, type(error).__name__)

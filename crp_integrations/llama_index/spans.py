"""Spans of LlamaIndex with agents' positions and sessions, and the events of its dispatcher."""

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
from crp_integrations.session.records import session_id_of


@dataclass(frozen=True, slots=True)
class SpanEvidence:
    """What was found in one span: a retriever's nodes, or a tool's answer.

    Attributes:
        query: what the retriever was asked.
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


# The whole report of an answer, kept of the span of the model call that was a window.
WHOLE_REPORT: Final = "report"


# Equal to itself alone.
@dataclass(slots=True, eq=False)
class Span:
    """One span in progress, or one that a model call in progress runs in.

    Attributes:
        agent: name of the agent whose run it is, or in whose step it is; empty for neither.
        runs: it is an agent's run.
        tool: name of the tool whose call it is; empty for none.
        covered: whoever runs in it examines the answers of the model calls within.
        turn: of a model call, its number in the agent's run.
        turns: model calls of an agent's run so far.
        last: the messages of its last model call, by identity.
        tag: the session that `instrument_tags` named when an agent's run began.
        results: texts that tools of an agent's run answered.
        rejected: claims that reports on sub-agents of an agent's run flag.
        unfounded: of those, with the call's id, errors and what hands over to another agent.
        report: what was attached to the last answer within.
        response: of a query or chat engine, while somebody has it; it may be a stream.
        own: what others keep of the span, by their own keys.
        at_end: called when it has ended.
        children: spans that began in it, until it ends.
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
    shelf: dict[str, SpanEvidence] = field(default_factory=dict)
    report: dict[str, Any] | None = None
    response: weakref.ref[Any] | None = None
    own: dict[Any, Any] = field(default_factory=dict)
    at_end: list[Callable[[], object]] = field(default_factory=list)
    children: list[Span] = field(default_factory=list)

    def path(self) -> list[Span]:
        """The span and everything around it, inmost first."""
        made: list[Span] = []
        span: Span | None = self
        while span is not None:
            made.append(span)
            span = span.parent
        return made

    def scope(self) -> list[Span]:
        """The span and what is around it up to the tool or agent that it runs in."""
        made: list[Span] = []
        for span in self.path():
            made.append(span)
            if span.runs or span.tool:
                break
        return made


@dataclass(frozen=True, slots=True)
class AgentPosition:
    """Where a model call stands.

    Attributes:
        agent: name of the agent, empty outside of agents.
        depth: agents around that agent, 0 for the root and outside of agents.
        turn: model calls in the agent's run so far, this one among them; 0 outside of agents.
        tool: the agent's tool in which the call is made, by whatever runs in it; empty for the
            agent's own calls.
        run, parent: spans of the agent's run and of the one around it; empty for none.
    """

    agent: str = ""
    depth: int = 0
    turn: int = 0
    tool: str = ""
    run: str = ""
    parent: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON about it."""
        return {name: getattr(self, name) for name in self.__slots__}


def agent_position(span: Span | None) -> AgentPosition:
    """Where a model call in this span stands."""
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
    """The agent's run that a span is in, as the agent's own; None outside of agents."""
    inmost = span.scope()[-1] if span is not None else None
    return inmost if inmost is not None and inmost.runs else None


def attach_metadata(response: Any, metadata: Mapping[str, Any]) -> None:
    """Put what was found about an answer into a response's metadata."""
    response.metadata = {**(getattr(response, "metadata", None) or {}), **metadata}


# Behind the last piece of a stream.
_END: Final[Any] = object()
STREAMS: Final = (StreamingResponse, AsyncStreamingResponse, StreamingAgentChatResponse)


def read_in_span(response: Any, span_id: str, done: Callable[[], None]) -> None:
    """Let a response be read in a span that has ended, however late.

    Chat engines read theirs in threads and tasks of their own, which have the span by themselves.
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
    """The session that LlamaIndex's `instrument_tags` name by `session_id`; empty for none."""
    name = (active_instrument_tags.get() if tags is None else tags).get(TAG)
    return "" if name is None or name == "" else session_id_of(name)


class EnvelopeEvent(BaseEvent):
    """An envelope was packed.

    Spec: CRP-SPEC-003 §3

    Attributes:
        envelope: the envelope as plain JSON, with everything dropped and why.
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
        report: the report as plain JSON, or `{"checked": "NOT_CHECKED", "reason": …}`.
        agent: where the call stands: agent, depth, turn, tool, run and parent.
    """

    report: dict[str, Any]
    agent: dict[str, Any]

    @classmethod
    def class_name(cls) -> str:
        """The event's name."""
        return "ReportEvent"


log = logging.getLogger("crp_integrations.llama_index")


class EmittingHandler(BaseEventHandler):
    """Memory items from LlamaIndex's events; add it to a dispatcher.

    A question is `episodic` (user-action), a model's answer (transcript) too; a tool's call is
    `procedural` (tool-recipe), a passage that was found `semantic` (document). What the fabric
    refuses, such as a text of two words, is logged and left out.

    Spec: Summit §Backlog Write 3

    Args:
        emitter: makes the items and hands them on.

    Raises:
        RequestError: it is none.
    """

    _emitter: Emitter = PrivateAttr()

    def __init__(self, emitter: Emitter) -> None:
        check_emitter(emitter, "EmittingHandler")
        super().__init__()
        self._emitter = emitter

    @classmethod
    def class_name(cls) -> str:
        """The handler's name."""
        return "EmittingHandler"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Write down one event."""
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

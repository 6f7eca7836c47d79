"""The tree of LlamaIndex's spans, and the evidence found in each.

Retriever and model spans are cousins in the tree. Nodes of a retriever, and the result of a tool
that retrieved nothing, are stored under every span around them. A model call uses those of the
nearest surrounding span that has any, up to the tool or agent that it runs in, so concurrent calls
each find their own. The number of agent runs around a call is its depth.
"""

from __future__ import annotations

import inspect
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any, Final

from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.agent.workflow.workflow_events import AgentOutput, ToolCallResult
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.chat_engine.types import BaseChatEngine
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.dispatcher import active_instrument_tags
from llama_index.core.instrumentation.span import active_span_id
from llama_index.core.instrumentation.span.base import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.llms.llm import LLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.tools import BaseTool, ToolOutput
from llama_index.core.workflow import Event, StopEvent

from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.dpe.rejections import unique_claims
from crp_integrations.llama_index.nodes import hide_own_metadata
from crp_integrations.llama_index.spans import (
    STREAMS,
    TAG,
    Span,
    SpanEvidence,
    agent_run,
    attach_metadata,
    read_in_span,
    session_of,
)
from crp_integrations.ports import share_in_copies
from crp_integrations.session.records import session_id_of

# In case LlamaIndex never reports the end of a root, the oldest tree is dropped for the newest; a
# call still active in a dropped tree is not checked.
MAX_TREES: Final = 4_096
# Length of the hyphen and the UUID at the end of a span's id.
_UUID_SUFFIX: Final = 37
_AGENTS: Final = (BaseWorkflowAgent, AgentWorkflow)
_ENGINES: Final = (BaseQueryEngine, BaseChatEngine)
_CALLS: Final = frozenset(
    f"{way}{kind}" for way in ("", "a", "stream_", "astream_") for kind in ("chat", "complete")
)
# The tool that hands over to another agent of a workflow; its result is not evidence.
HANDOFF: Final = "handoff"


class SpanTree:
    """The spans in progress; a tree is dropped when its root ends. Thread-safe."""

    def __init__(self) -> None:
        self.lock = RLock()
        self._spans: dict[str, Span] = {}
        self._roots: dict[str, Span] = {}
        # Number of unread streams by root, and roots that ended before their streams.
        self._awaited: Counter[str] = Counter()
        self._ended: set[str] = set()

    def __len__(self) -> int:
        with self.lock:
            return len(self._spans)

    def span(self, id_: str | None) -> Span | None:
        """The span in progress with this id; None if unknown."""
        with self.lock:
            return self._spans.get(id_ or "")

    def enter(
        self, id_: str, parent: str | None, instance: Any, arguments: Mapping[str, Any]
    ) -> None:
        """Record the start of a span."""
        with self.lock:
            above = self._spans.get(parent or "")
            span = Span(id_, above)
            # Registered first, so that inner spans find it even if the rest fails.
            self._spans[id_] = span
            if above is not None:
                above.children.append(span)
            else:
                self._roots[id_] = span
                if len(self._roots) > MAX_TREES:
                    self._forget(next(iter(self._roots.values())))
            self._classify(span, instance, arguments)

    def _classify(self, span: Span, instance: Any, arguments: Mapping[str, Any]) -> None:
        """Record whether a span is an agent's run, a model call, a tool or a step."""
        kind = method_name(span.id)
        if isinstance(instance, _AGENTS) and kind == "run":
            span.runs = True
            span.agent = str(
                getattr(instance, "root_agent", None) or getattr(instance, "name", "") or ""
            )
            span.tag = active_instrument_tags.get().get(TAG)
        elif isinstance(instance, LLM) and kind in _CALLS:
            self._count_turn(span, arguments.get("messages"))
        elif isinstance(instance, BaseTool) and kind in ("acall", "call", "__call__"):
            span.tool = "tool"
            span.tool = instance.metadata.name or span.tool
        elif isinstance(instance, BaseSynthesizer) and kind in ("synthesize", "asynthesize"):
            nodes = _nodes(arguments.get("nodes"))
            self._narrow(span, nodes, nodes)
        else:
            events = [event for event in arguments.values() if isinstance(event, Event)]
            named = (getattr(event, "current_agent_name", None) for event in events)
            span.agent = next((name for name in named if isinstance(name, str)), "")

    def exit(self, id_: str, instance: Any, arguments: Mapping[str, Any], result: Any) -> None:
        """Record the result and end of a span."""
        try:
            with self.lock:
                span = self._spans.get(id_)
                if span is not None:
                    self._record_result(span, instance, arguments, result)
        finally:
            self.end(id_)

    def _record_result(
        self, span: Span, instance: Any, arguments: Mapping[str, Any], result: Any
    ) -> None:
        """Store a span's result as evidence, or attach the report on its answer to it."""
        kind = method_name(span.id)
        if isinstance(instance, BaseRetriever) and kind in ("retrieve", "aretrieve"):
            asked = arguments.get("str_or_query_bundle")
            query = asked.query_str if isinstance(asked, QueryBundle) else str(asked or "")
            nodes = _nodes(result)
            hide_own_metadata(nodes)
            self._add_evidence(span, SpanEvidence(tuple(nodes), query))
        elif isinstance(instance, BaseNodePostprocessor) and kind == "_postprocess_nodes":
            self._narrow(span, _nodes(arguments.get("nodes")), _nodes(result))
        elif isinstance(result, ToolOutput) and span.tool:
            self._tool_answered(span, result)
        elif isinstance(result, ToolCallResult):
            self._record_tool_result(span, result)
        elif isinstance(instance, _ENGINES) and (
            # A chat engine's stream has no `metadata` attribute until some is attached.
            hasattr(result, "metadata") or isinstance(result, STREAMS)
        ):
            span.response = weakref.ref(result)
            if isinstance(result, STREAMS) and not span.covered:
                self._await(span, result)
            if span.report is not None:
                attach_metadata(result, span.report)
        else:
            output = result.result if isinstance(result, StopEvent) else result
            # An output made from an earlier answer, such as a parsed object, already has metadata.
            new = isinstance(output, AgentOutput) and not getattr(output, "metadata", None)
            if new:
                span.response = weakref.ref(output)
            if new and span.report is not None:
                attach_metadata(output, span.report)

    def end(self, id_: str) -> None:
        """Record the end or failure of a span; the end of a root drops its tree."""
        with self.lock:
            span = self._spans.get(id_)
            if span is None:
                return
            root = span.path()[-1]
            if not self._awaited.get(root.id):
                # Inner spans are no longer needed, and the tree may live for days.
                self._forget_children(span)
                if span is root:
                    self._forget(root)
            elif span is root:
                self._ended.add(root.id)
            last, span.at_end = span.at_end, []
        for done in last:
            done()

    def evidence_of(self, span: Span) -> tuple[SpanEvidence, ...]:
        """Evidence for a model call in this span: that of the nearest span with any."""
        with self.lock:
            for around in span.scope():
                if around.evidence:
                    return tuple(around.evidence.values())
            return ()

    def record_answer(self, span: Span, metadata: dict[str, Any]) -> None:
        """Record the metadata of an answer in this span, and attach it to the response."""
        with self.lock:
            for around in span.scope():
                around.report = metadata
                response = around.response() if around.response is not None else None
                if response is not None:
                    attach_metadata(response, metadata)

    def reject(self, span: Span, claims: Sequence[RejectedClaim]) -> None:
        """Add flagged claims of an answer inside a tool to the agent that called the tool."""
        with self.lock:
            path = span.path()
            tool = next((place for place, around in enumerate(path) if around.tool), len(path))
            above = next((around for around in path[tool:] if around.runs), None)
            if above is not None:
                above.rejected = unique_claims(above.rejected, claims)

    def record_turn(
        self, span: Span, nodes: Sequence[NodeWithScore], query: str, metadata: dict[str, Any]
    ) -> None:
        """Record the facts and the answer's metadata of a whole turn in this span."""
        with self.lock:
            self._add_evidence(span, SpanEvidence(tuple(nodes), query))
        self.record_answer(span, metadata)

    def _count_turn(self, span: Span, messages: Any) -> None:
        run = agent_run(span)
        if run is None or any(around.turn for around in span.scope()):
            return
        # Only lists are read: reading an iterator would consume it before the model does.
        listed = messages if isinstance(messages, list | tuple) else ()
        sent = tuple(id(message) for message in listed)
        # A call with the same message objects is the same turn, such as a retry.
        if not sent or sent != run.last:
            run.turns += 1
            run.last = sent
        span.turn = run.turns

    def _add_evidence(self, span: Span, evidence: SpanEvidence) -> None:
        above = span.path()[1:]
        for around in above:
            # The engine gets the wrapper's nodes, a selection of the wrapped retriever's.
            for inner in [inner for inner in around.evidence if self._runs_in(inner, span)]:
                del around.evidence[inner]
            if evidence.nodes:
                around.evidence[span.id] = evidence

    def _narrow(
        self, span: Span, before: Sequence[NodeWithScore], after: Sequence[NodeWithScore]
    ) -> None:
        """Replace the nodes found around a span by the selection that is used further."""
        if span.parent is None:
            if after:
                span.evidence[span.id] = SpanEvidence(tuple(after))
            return
        ids = {scored.node.node_id for scored in before}
        nearest = next((outer.evidence for outer in span.parent.scope() if outer.evidence), {})
        hit = {origin: evidence for origin, evidence in nearest.items() if evidence.ids & ids}
        if not hit and nearest:
            # These nodes were made from the evidence, such as answers to parts of the question.
            return
        query = next((evidence.query for evidence in hit.values() if evidence.query), "")
        for around in span.path()[1:]:
            for origin in hit:
                around.evidence.pop(origin, None)
            if after:
                around.evidence[span.id] = SpanEvidence(tuple(after), query)

    def _tool_answered(self, span: Span, output: ToolOutput) -> None:
        above = span.path()[1:]
        if span.evidence or output.is_error or span.tool == HANDOFF or not output.content.strip():
            return
        asked = output.raw_input.get("kwargs", output.raw_input)
        evidence = SpanEvidence(
            tool=span.tool, asked=asked if isinstance(asked, Mapping) else {}, text=output.content
        )
        for around in above:
            around.evidence[span.id] = evidence

    def _record_tool_result(self, span: Span, result: ToolCallResult) -> None:
        run = agent_run(span)
        if run is None:
            return
        content = result.tool_output.content
        run.results.add(content)
        if result.tool_output.is_error or result.tool_name == HANDOFF:
            run.unfounded.add((result.tool_id, content))

    def _runs_in(self, id_: str, span: Span) -> bool:
        inner = self._spans.get(id_)
        return inner is not None and inner is not span and span in inner.path()

    def _await(self, span: Span, response: Any) -> None:
        """Keep a tree until its stream is read, since the model may be called only then."""
        root = span.path()[-1]
        self._awaited[root.id] += 1
        read: list[bool] = []

        def done() -> None:
            with self.lock:
                if read:
                    return
                read.append(True)
                self._awaited[root.id] -= 1
                if self._awaited[root.id] <= 0:
                    self._awaited.pop(root.id, None)
                    if root.id in self._ended:
                        self._forget(root)

        read_in_span(response, span.id, done)
        weakref.finalize(response, done).atexit = False

    def _forget_children(self, span: Span) -> None:
        """Drop all spans inside a span."""
        within = span.children
        span.children = []
        while within:
            inner = within.pop()
            within.extend(inner.children)
            inner.children = []
            self._spans.pop(inner.id, None)

    def _forget(self, root: Span) -> None:
        self._ended.discard(root.id)
        self._forget_children(root)
        self._spans.pop(root.id, None)
        self._roots.pop(root.id, None)


def method_name(id_: str) -> str:
    """The method's name in a span's id, which is `CLASS.METHOD-UUID`."""
    return id_[:-_UUID_SUFFIX].rpartition(".")[2]


def _nodes(nodes: Any) -> Sequence[NodeWithScore]:
    """Nodes, if reading them does not consume them; else an empty sequence."""
    return nodes if isinstance(nodes, list | tuple) else ()


class DPESpanHandler(BaseSpanHandler[BaseSpan]):
    """Records every span with its parent and the evidence found in it; see `SpanTree`.

    `process_tree()` adds it to the dispatcher. A tree is dropped when its root ends.
    """

    _tree: SpanTree = PrivateAttr(default_factory=SpanTree)

    __deepcopy__ = share_in_copies

    @classmethod
    def class_name(cls) -> str:
        """The handler's name."""
        return "DPESpanHandler"

    @property
    def tree(self) -> SpanTree:
        """The spans in progress."""
        return self._tree

    def span_enter(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        parent_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record the span's parent and kind."""
        self._tree.enter(id_, parent_id, instance, bound_args.arguments)

    def span_exit(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        result: Any | None = None,
        **kwargs: Any,
    ) -> None:
        """Store the span's evidence for model calls; drop the tree when its root ends."""
        self._tree.exit(id_, instance, bound_args.arguments, result)

    def span_drop(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        """Drop the tree when its root fails."""
        self._tree.end(id_)

    def new_span(self, *args: Any, **kwargs: Any) -> BaseSpan | None:
        """Return None: no spans of LlamaIndex's class are kept."""
        return None

    def prepare_to_exit_span(self, *args: Any, **kwargs: Any) -> BaseSpan | None:
        """Return None: no spans of LlamaIndex's class are kept."""
        return None

    def prepare_to_drop_span(self, *args: Any, **kwargs: Any) -> BaseSpan | None:
        """Return None: no spans of LlamaIndex's class are kept."""
        return None


_HANDLER: Final = DPESpanHandler()


def process_tree() -> SpanTree:
    """The process's tree; adds its handler to LlamaIndex's root dispatcher if missing."""
    root = get_dispatcher()
    if all(handler is not _HANDLER for handler in root.span_handlers):
        root.add_span_handler(_HANDLER)
    return _HANDLER.tree


def current_span() -> Span | None:
    """The span in which the caller runs; None if unknown."""
    return process_tree().span(active_span_id.get())


def span_session(span: Span | None) -> str:
    """The session in `instrument_tags`, here or at the start of the agent's run; or empty."""
    session = session_of()
    if session or span is None:
        return session
    # Workflows run their steps with other tags.
    tag = next(
        (enclosing.tag for enclosing in span.path() if enclosing.runs and enclosing.tag), None
    )
    return "" if tag is None else session_id_of(tag)

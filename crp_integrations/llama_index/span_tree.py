"""The tree of LlamaIndex's spans, and the evidence that was found in each.

Retriever and model are cousins in the tree. What a retriever finds, and what a tool answers in
which nothing was retrieved, is shelved under every span around it; a model call climbs to the
first span that has some, and no further than the tool or agent that it runs in. So calls side by
side each find their own. Agents' runs on the way up are the depth.
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
from crp_integrations.session.records import session_id_of

# Should LlamaIndex never tell that a root has ended, the oldest tree is given up for the newest;
# whoever still runs in it is then not checked.
MOST_TREES: Final = 4_096
# Behind a span's name.
_UUID: Final = 37
_AGENTS: Final = (BaseWorkflowAgent, AgentWorkflow)
_ENGINES: Final = (BaseQueryEngine, BaseChatEngine)
_CALLS: Final = frozenset(
    f"{way}{kind}" for way in ("", "a", "stream_", "astream_") for kind in ("chat", "complete")
)
# What hands over to another agent of the same workflow says nothing about the world.
_HANDOFF: Final = "handoff"


class SpanTree:
    """The spans in progress; a tree is forgotten when its root ends. Safe under threads."""

    def __init__(self) -> None:
        self.lock = RLock()
        self._spans: dict[str, Span] = {}
        self._roots: dict[str, Span] = {}
        # Streams that are still to be read, by root, and roots that have ended before theirs.
        self._awaited: Counter[str] = Counter()
        self._ended: set[str] = set()

    def __len__(self) -> int:
        with self.lock:
            return len(self._spans)

    def span(self, id_: str | None) -> Span | None:
        """A span in progress; None for one that is not known."""
        with self.lock:
            return self._spans.get(id_ or "")

    def enter(
        self, id_: str, parent: str | None, instance: Any, arguments: Mapping[str, Any]
    ) -> None:
        """A span began."""
        with self.lock:
            above = self._spans.get(parent or "")
            span = Span(id_, above)
            # First of all, so that what runs in it has its place whatever else goes wrong.
            self._spans[id_] = span
            if above is not None:
                above.children.append(span)
            else:
                self._roots[id_] = span
                if len(self._roots) > MOST_TREES:
                    self._forget(next(iter(self._roots.values())))
            self._classify(span, instance, arguments)

    def _classify(self, span: Span, instance: Any, arguments: Mapping[str, Any]) -> None:
        """Note whose run, call, tool or step a span is."""
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
        """A span ended well."""
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
        """Shelve what a span came to, or attach to it what was found about its answer."""
        kind = method_name(span.id)
        if isinstance(instance, BaseRetriever) and kind in ("retrieve", "aretrieve"):
            asked = arguments.get("str_or_query_bundle")
            query = asked.query_str if isinstance(asked, QueryBundle) else str(asked or "")
            nodes = _nodes(result)
            hide_own_metadata(nodes)
            self._shelve(span, SpanEvidence(tuple(nodes), query))
        elif isinstance(instance, BaseNodePostprocessor) and kind == "_postprocess_nodes":
            self._narrow(span, _nodes(arguments.get("nodes")), _nodes(result))
        elif isinstance(result, ToolOutput) and span.tool:
            self._tool_answered(span, result)
        elif isinstance(result, ToolCallResult):
            self._record_tool_result(span, result)
        elif isinstance(instance, _ENGINES) and (
            # A chat engine's stream has no metadata of its own until there is something to tell.
            hasattr(result, "metadata") or isinstance(result, STREAMS)
        ):
            span.response = weakref.ref(result)
            if isinstance(result, STREAMS) and not span.covered:
                self._await(span, result)
            if span.report is not None:
                attach_metadata(result, span.report)
        else:
            output = result.result if isinstance(result, StopEvent) else result
            # What is made of the answer afterwards, such as a structure, is not the answer.
            new = isinstance(output, AgentOutput) and not getattr(output, "metadata", None)
            if new and span.report is not None:
                attach_metadata(output, span.report)

    def end(self, id_: str) -> None:
        """A span ended, well or not; the end of a root forgets its tree."""
        with self.lock:
            span = self._spans.get(id_)
            if span is None:
                return
            root = span.path()[-1]
            if not self._awaited.get(root.id):
                # What ran in it has no more to say, whose tree may go on for days.
                self._forget_children(span)
                if span is root:
                    self._forget(root)
            elif span is root:
                self._ended.add(root.id)
            last, span.at_end = span.at_end, []
        for done in last:
            done()

    def evidence_of(self, span: Span) -> tuple[SpanEvidence, ...]:
        """What a model call in this span was given: the shelf of the first span that has one."""
        with self.lock:
            for around in span.scope():
                if around.shelf:
                    return tuple(around.shelf.values())
            return ()

    def record_answer(self, span: Span, metadata: dict[str, Any]) -> None:
        """An answer was given in this span: note what is attached to it, and attach it."""
        with self.lock:
            for around in span.scope():
                around.report = metadata
                response = around.response() if around.response is not None else None
                if response is not None:
                    attach_metadata(response, metadata)

    def reject(self, span: Span, claims: Sequence[RejectedClaim]) -> None:
        """The report on an answer within a tool flags claims: the agent that calls it is told."""
        with self.lock:
            path = span.path()
            tool = next((place for place, around in enumerate(path) if around.tool), len(path))
            above = next((around for around in path[tool:] if around.runs), None)
            if above is not None:
                above.rejected = unique_claims(above.rejected, claims)

    def record_turn(
        self, span: Span, nodes: Sequence[NodeWithScore], query: str, metadata: dict[str, Any]
    ) -> None:
        """A whole turn was played in this span: its facts, and what is attached to its answer."""
        with self.lock:
            self._shelve(span, SpanEvidence(tuple(nodes), query))
        self.record_answer(span, metadata)

    def _count_turn(self, span: Span, messages: Any) -> None:
        run = agent_run(span)
        if run is None or any(around.turn for around in span.scope()):
            return
        # Only looked at: reading an iterator would take its messages away from the model.
        listed = messages if isinstance(messages, list | tuple) else ()
        sent = tuple(id(message) for message in listed)
        # The same messages again are the same turn: called another way, or tried again.
        if not sent or sent != run.last:
            run.turns += 1
            run.last = sent
        span.turn = run.turns

    def _shelve(self, span: Span, evidence: SpanEvidence) -> None:
        above = span.path()[1:]
        for around in above:
            # A wrapper's nodes are what goes on; the wrapped ones were narrowed.
            for inner in [inner for inner in around.shelf if self._runs_in(inner, span)]:
                del around.shelf[inner]
            if evidence.nodes:
                around.shelf[span.id] = evidence

    def _narrow(
        self, span: Span, before: Sequence[NodeWithScore], after: Sequence[NodeWithScore]
    ) -> None:
        """Narrow the nodes that were found around a span to those that go on."""
        if span.parent is None:
            if after:
                span.shelf[span.id] = SpanEvidence(tuple(after))
            return
        ids = {scored.node.node_id for scored in before}
        shelf = next((enclosing.shelf for enclosing in span.parent.scope() if enclosing.shelf), {})
        hit = {origin: evidence for origin, evidence in shelf.items() if evidence.ids & ids}
        if not hit and shelf:
            # These nodes were made from what was found, as from answers to parts of the question.
            return
        query = next((evidence.query for evidence in hit.values() if evidence.query), "")
        for around in span.path()[1:]:
            for origin in hit:
                around.shelf.pop(origin, None)
            if after:
                around.shelf[span.id] = SpanEvidence(tuple(after), query)

    def _tool_answered(self, span: Span, output: ToolOutput) -> None:
        above = span.path()[1:]
        if span.shelf or output.is_error or span.tool == _HANDOFF or not output.content.strip():
            return
        asked = output.raw_input.get("kwargs", output.raw_input)
        evidence = SpanEvidence(
            tool=span.tool, asked=asked if isinstance(asked, Mapping) else {}, text=output.content
        )
        for around in above:
            around.shelf[span.id] = evidence

    def _record_tool_result(self, span: Span, result: ToolCallResult) -> None:
        run = agent_run(span)
        if run is None:
            return
        content = result.tool_output.content
        run.results.add(content)
        if result.tool_output.is_error or result.tool_name == _HANDOFF:
            run.unfounded.add((result.tool_id, content))

    def _runs_in(self, id_: str, span: Span) -> bool:
        inner = self._spans.get(id_)
        return inner is not None and inner is not span and span in inner.path()

    def _await(self, span: Span, response: Any) -> None:
        """Keep a tree until a stream of it is read, whose model may be called by then only."""
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
        """Forget what ran in a span."""
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
    return id_[:-_UUID].rpartition(".")[2]


def _nodes(nodes: Any) -> Sequence[NodeWithScore]:
    """Nodes that can be looked at without reading them away."""
    return nodes if isinstance(nodes, list | tuple) else ()


class DPESpanHandler(BaseSpanHandler[BaseSpan]):
    """Notes every span with what is around it, and what was found in it; see `SpanTree`.

    `process_tree()` adds it to the dispatcher. It keeps nothing of a tree whose root has ended.
    """

    _tree: SpanTree = PrivateAttr(default_factory=SpanTree)

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
        """Note the span's parent, and whose run, step or tool it is."""
        self._tree.enter(id_, parent_id, instance, bound_args.arguments)

    def span_exit(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        result: Any | None = None,
        **kwargs: Any,
    ) -> None:
        """Shelve what was found for the model calls around it; forget the tree with its root."""
        self._tree.exit(id_, instance, bound_args.arguments, result)

    def span_drop(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        """Forget the tree when its root fails."""
        self._tree.end(id_)

    def new_span(self, *args: Any, **kwargs: Any) -> BaseSpan | None:
        """No span of LlamaIndex's own kind is kept."""
        return None

    def prepare_to_exit_span(self, *args: Any, **kwargs: Any) -> BaseSpan | None:
        """No span of LlamaIndex's own kind is kept."""
        return None

    def prepare_to_drop_span(self, *args: Any, **kwargs: Any) -> BaseSpan | None:
        """No span of LlamaIndex's own kind is kept."""
        return None


_HANDLER: Final = DPESpanHandler()


def process_tree() -> SpanTree:
    """The process's tree, whose handler is on LlamaIndex's root dispatcher from now on."""
    root = get_dispatcher()
    if all(handler is not _HANDLER for handler in root.span_handlers):
        root.add_span_handler(_HANDLER)
    return _HANDLER.tree


def current_span() -> Span | None:
    """The span in which this runs; None where it is not known."""
    return process_tree().span(active_span_id.get())


def span_session(span: Span | None) -> str:
    """The session that `instrument_tags` name here or named for the agent around; or empty."""
    session = session_of()
    if session or span is None:
        return session
    # Workflows run their steps under tags of their own.
    tag = next(
        (enclosing.tag for enclosing in span.path() if enclosing.runs and enclosing.tag), None
    )
    return "" if tag is None else session_id_of(tag)

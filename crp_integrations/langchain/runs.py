"""The tree of LangChain runs: documents, messages and session of each model call.

Retriever and model are cousins in the tree. Documents are shelved under every ancestor of the
retriever's run; a model's run climbs to the first ancestor that has some. So concurrent
inputs of one batch each find their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.callbacks.manager import BaseRunManager
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import ensure_config, var_child_runnable_config

from crp_integrations.adapters.conversations import context_value, hold_rejections
from crp_integrations.dpe.records import RejectedClaim, Report
from crp_integrations.dpe.rejections import unique_claims
from crp_integrations.errors import RequestError
from crp_integrations.langchain.messages import attach_rejected, message_of, rejected_in
from crp_integrations.messages import Message
from crp_integrations.observability.observers import RUN_SPANS
from crp_integrations.relay.relay import Relay
from crp_integrations.session.records import session_id_of

# LangChain tells nobody when a model or retriever that is itself the root gets cancelled, so the
# oldest tree is given up for the newest; whoever still runs in it is then not checked.
MOST_TREES: Final = 4_096


@dataclass(frozen=True, slots=True)
class RetrieverResult:
    """What one retriever run returned."""

    query: str
    documents: tuple[Document, ...]


@dataclass(slots=True)
class _Run:
    parent: UUID | None
    root: UUID
    query: str = ""
    shelf: dict[UUID, RetrieverResult] = field(default_factory=dict)
    tool: bool = False
    # Of a tool's run what reports within it flag; of any other what tools' runs within it came to.
    rejected: tuple[RejectedClaim, ...] = ()


class RunTree:
    """The runs in progress; a tree is forgotten when its root ends. Safe under threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: dict[UUID, _Run] = {}
        self._trees: dict[UUID, list[UUID]] = {}

    def start(
        self, run_id: UUID, parent: UUID | None, *, query: str = "", tool: bool = False
    ) -> None:
        """A run began; `query` is what a retriever was asked."""
        with self._lock:
            above = self._runs.get(parent) if parent is not None else None
            root = above.root if above is not None else run_id
            own = parent if above is not None else None
            self._runs[run_id] = _Run(own, root, query, tool=tool)
            self._trees.setdefault(root, []).append(run_id)
            if len(self._trees) > MOST_TREES:
                self._forget(next(iter(self._trees)))

    def add_documents(self, run_id: UUID, documents: Sequence[Document]) -> None:
        """A retriever ended: shelve its documents in place of what its own children found."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return
            result = RetrieverResult(run.query, tuple(documents))
            for ancestor in self._ancestors(run_id):
                shelf = self._runs[ancestor].shelf
                for inner in [other for other in shelf if run_id in self._ancestors(other)]:
                    # A wrapper's documents are what goes on; the wrapped ones were narrowed.
                    del shelf[inner]
                shelf[run_id] = result

    def context_of(self, run_id: UUID) -> tuple[RetrieverResult, ...] | None:
        """What a model call saw: the shelf of its first ancestor that has one, else None."""
        with self._lock:
            for ancestor in self._ancestors(run_id):
                shelf = self._runs[ancestor].shelf
                if shelf:
                    return tuple(shelf.values())
            return None

    def reject(self, run_id: UUID, claims: Sequence[RejectedClaim]) -> None:
        """The report on a model call's answer flags claims: the tool around it gives them on."""
        with self._lock:
            runs = (self._runs[ancestor] for ancestor in self._ancestors(run_id))
            tool = next((run for run in runs if run.tool), None)
            if tool is not None:
                tool.rejected = unique_claims(tool.rejected, claims)

    def tool_rejected(self, run_id: UUID) -> tuple[RejectedClaim, ...]:
        """A tool ended: what reports within it flag, which holds for the runs around it."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or not run.rejected:
                return ()
            for ancestor in self._ancestors(run_id):
                above = self._runs[ancestor]
                if not above.tool:
                    above.rejected = unique_claims(above.rejected, run.rejected)
            return run.rejected

    def rejected_of(self, run_id: UUID) -> tuple[RejectedClaim, ...]:
        """What reports flag on answers that a model call got by tools."""
        with self._lock:
            runs = (self._runs[ancestor] for ancestor in self._ancestors(run_id))
            return unique_claims(*(run.rejected for run in runs if not run.tool))

    def end(self, run_id: UUID) -> None:
        """A run ended, well or not; the end of a root forgets its tree."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is not None and run.root == run_id:
                self._forget(run_id)

    def __len__(self) -> int:
        with self._lock:
            return len(self._runs)

    def _forget(self, root: UUID) -> None:
        for member in self._trees.pop(root, ()):
            self._runs.pop(member, None)

    def _ancestors(self, run_id: UUID) -> list[UUID]:
        path: list[UUID] = []
        run = self._runs.get(run_id)
        while run is not None and run.parent is not None:
            path.append(run.parent)
            run = self._runs.get(run.parent)
        return path


class RunTreeHandler(BaseCallbackHandler):
    """Notes every run with its parent, and shelves what retrievers return; see `RunTree`."""

    def __init__(self) -> None:
        self._runs = RunTree()

    def on_chain_start(
        self, *args: Any, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Note the run's parent."""
        self._runs.start(run_id, parent_run_id)

    def on_tool_start(
        self, *args: Any, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Note the run's parent."""
        self._runs.start(run_id, parent_run_id, tool=True)

    on_llm_start: Any = on_chain_start
    on_chat_model_start: Any = on_chain_start

    def on_retriever_start(
        self,
        serialized: dict[str, Any],
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the run's parent and what was asked."""
        self._runs.start(run_id, parent_run_id, query=query)

    def on_retriever_end(
        self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Shelve the documents for the model calls that descend from the same runs."""
        self._runs.add_documents(run_id, documents)
        self._runs.end(run_id)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the tree when its root ends."""
        self._runs.end(run_id)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Write on the message what reports within the tool flag; forget a tree with its root."""
        attach_rejected(output, self._runs.tool_rejected(run_id))
        self._runs.end(run_id)

    on_llm_end: Any = on_chain_end

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the tree when its root fails."""
        self._runs.end(run_id)

    on_tool_error = on_llm_error = on_retriever_error = on_chain_error


# Handlers that heard a model call of a window, whose report is the window's; None outside of one.
_HEARD: Final[ContextVar[list[Any] | None]] = ContextVar("crp_langchain_heard", default=None)


def inside_window(handlers: list[Any]) -> AbstractContextManager[None]:
    """Model calls inside are of a window that is examined and sealed as a whole."""
    return context_value(_HEARD, handlers)


def leave_to_window(handler: Any) -> bool:
    """Whether a window around the model call examines its answer, and tells the handler then."""
    handlers = _HEARD.get()
    if handlers is None:
        return False
    if not any(other is handler for other in handlers):
        handlers.append(handler)
    return True


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent in a call; nothing where it was not seen.

    Attributes:
        structured: LangChain makes an object of the answer, which may be a tool call.
    """

    messages: tuple[Message, ...] = ()
    rejected: tuple[RejectedClaim, ...] = ()
    structured: bool = False


# The run of a model call, while handlers that examine answers hear of its end.
_ENDING: Final[ContextVar[BaseRunManager | None]] = ContextVar("crp_langchain_ending", default=None)


def at_end_of(run: BaseRunManager) -> AbstractContextManager[None]:
    """What runs inside examines the answer of this run."""
    return context_value(_ENDING, run)


def run_span() -> Any:
    """The OpenTelemetry span of the run around what runs now, as a tracer of LangChain's keeps it.

    OpenInference and Langfuse know it by the run's id; None without one of them.
    """
    ending = _ENDING.get()
    config = var_child_runnable_config.get() or {}
    manager: Any = config.get("callbacks") if ending is None else ending
    run_id = getattr(manager, "parent_run_id" if ending is None else "run_id", None)
    for handler in getattr(manager, "handlers", ()):
        if hasattr(handler, "get_span"):
            span = handler.get_span(run_id)
        else:
            runs = getattr(handler, "_runs", None)
            span = runs.get(run_id) if isinstance(runs, dict) else None
            span = getattr(span, "_otel_span", None)
        if span is not None:
            return span
    return None


RUN_SPANS.append(run_span)


class SentMessages:
    """Messages of calls in progress. Bounded: nobody is told of a call that is cancelled."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._messages: OrderedDict[UUID, Sent] = OrderedDict()

    def note(
        self, run_id: UUID, messages: Sequence[Sequence[BaseMessage]], *, structured: bool = False
    ) -> None:
        """Note what is sent.

        Nothing is noted for several conversations in one call, nor for an unknown role.
        """
        if len(messages) != 1:
            return
        try:
            converted = tuple(map(message_of, messages[0]))
            read = Sent(converted, rejected_in(messages[0]), structured)
        except RequestError:
            return
        with self._lock:
            self._messages[run_id] = read
            while len(self._messages) > MOST_TREES:
                self._messages.popitem(last=False)

    def pop(self, run_id: UUID) -> Sent:
        """What was sent in a call, once."""
        with self._lock:
            return self._messages.pop(run_id, Sent())


# LangChain's word, then LangGraph's.
_KEYS: Final = ("session_id", "thread_id")


def session_of(config: Mapping[str, Any] | None) -> str:
    """The session that a config names, by `session_id` or else `thread_id`; empty for none.

    An id of ours is taken as it is, and any other name is hashed (`session_id_of`).
    """
    configurable = (config or {}).get("configurable") or {}
    for key in _KEYS:
        name = configurable.get(key)
        if name is None or name == "":
            continue
        return session_id_of(name, f"configurable {key}")
    return ""


# Of LangGraph's namespace: a graph within a node within a graph.
_BETWEEN: Final = "|"
_BEHIND_NAME: Final = ":"
# The node in which an agent of LangChain runs its tools.
_TOOLS: Final = "tools"


@dataclass(frozen=True, slots=True)
class OuterAgent:
    """The agent whose tool call is running.

    Attributes:
        depth: agents around that agent, 0 for the root.
        judge: fields of a question by which agents below it are judged that have no judge.
    """

    relay: Relay
    session_id: str
    depth: int
    judge: Mapping[str, Any] = field(default_factory=dict)


_OUTER: Final[ContextVar[OuterAgent | None]] = ContextVar("crp_langchain_outer", default=None)


def outer_agent() -> OuterAgent | None:
    """The agent around this one; None for the root."""
    return _OUTER.get()


def inside_agent(agent: OuterAgent) -> AbstractContextManager[None]:
    """What runs inside runs in a tool call of this agent."""
    return context_value(_OUTER, agent)


def hold_outside(relay: Relay | None, report: Report) -> None:
    """Hold the flagged claims of an answer for the agent around it, where that has another relay.

    Within one relay they go up with the rest of what a sub-agent hands back.
    """
    around = outer_agent()
    if around is not None and around.relay is not relay and around.session_id:
        hold_rejections(around.relay, around.session_id, report)


def agent_depth(config: Mapping[str, Any] | None = None) -> int:
    """How many agents are around the one that runs here, 0 for the root.

    Agents without the middleware count too, by the tool nodes of LangGraph's namespace.
    """
    around = outer_agent()
    known = 0 if around is None else around.depth + 1
    configurable = (ensure_config() if config is None else config).get("configurable") or {}
    namespace = str(configurable.get("checkpoint_ns") or "")
    above = namespace.split(_BETWEEN)[:-1]
    named = sum(part.partition(_BEHIND_NAME)[0] == _TOOLS for part in above)
    return max(known, named)

"""The tree of LangChain runs: documents, messages and session of each model call.

Retriever and model runs are cousins in the tree. Documents are stored under every ancestor of the
retriever's run, and a model's run uses those of its nearest ancestor that has any. So concurrent
inputs of one batch each find their own documents.
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
from crp_integrations.ports import share_in_copies
from crp_integrations.relay.relay import Relay
from crp_integrations.session.records import session_id_of

# LangChain sends no event when a cancelled model or retriever is itself the root, so the oldest
# tree is dropped for the newest; a run still active in a dropped tree is not checked.
MAX_TREES: Final = 4_096


@dataclass(frozen=True, slots=True)
class RetrieverResult:
    """The query and documents of one retriever run."""

    query: str
    documents: tuple[Document, ...]


@dataclass(slots=True)
class _Run:
    parent: UUID | None
    root: UUID
    query: str = ""
    results: dict[UUID, RetrieverResult] = field(default_factory=dict)
    tool: bool = False
    # For a tool's run: claims flagged inside it. For other runs: those of the tool runs inside it.
    rejected: tuple[RejectedClaim, ...] = ()


class RunTree:
    """The runs in progress; a tree is dropped when its root ends. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: dict[UUID, _Run] = {}
        self._trees: dict[UUID, list[UUID]] = {}

    def start(
        self, run_id: UUID, parent: UUID | None, *, query: str = "", tool: bool = False
    ) -> None:
        """Record the start of a run; `query` is the query of a retriever."""
        with self._lock:
            above = self._runs.get(parent) if parent is not None else None
            root = above.root if above is not None else run_id
            own = parent if above is not None else None
            self._runs[run_id] = _Run(own, root, query, tool=tool)
            self._trees.setdefault(root, []).append(run_id)
            if len(self._trees) > MAX_TREES:
                self._forget(next(iter(self._trees)))

    def add_documents(self, run_id: UUID, documents: Sequence[Document]) -> None:
        """Store an ended retriever's documents, instead of those of the retrievers it wraps."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return
            result = RetrieverResult(run.query, tuple(documents))
            for ancestor in self._ancestors(run_id):
                results = self._runs[ancestor].results
                for inner in [other for other in results if run_id in self._ancestors(other)]:
                    # The chain gets the wrapper's documents, a selection of the wrapped ones.
                    del results[inner]
                results[run_id] = result

    def context_of(self, run_id: UUID) -> tuple[RetrieverResult, ...] | None:
        """Retriever results of the nearest ancestor of a model call that has any, else None."""
        with self._lock:
            for ancestor in self._ancestors(run_id):
                results = self._runs[ancestor].results
                if results:
                    return tuple(results.values())
            return None

    def reject(self, run_id: UUID, claims: Sequence[RejectedClaim]) -> None:
        """Add flagged claims of a model call's answer to the tool run around it."""
        with self._lock:
            runs = (self._runs[ancestor] for ancestor in self._ancestors(run_id))
            tool = next((run for run in runs if run.tool), None)
            if tool is not None:
                tool.rejected = unique_claims(tool.rejected, claims)

    def tool_rejected(self, run_id: UUID) -> tuple[RejectedClaim, ...]:
        """The claims flagged inside an ended tool run; adds them to the runs around it."""
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
        """Flagged claims in the tool results that a model call received."""
        with self._lock:
            runs = (self._runs[ancestor] for ancestor in self._ancestors(run_id))
            return unique_claims(*(run.rejected for run in runs if not run.tool))

    def end(self, run_id: UUID) -> None:
        """Record the end or failure of a run; the end of a root drops its tree."""
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
    """Records every run with its parent, and the documents of retrievers; see `RunTree`."""

    __deepcopy__ = share_in_copies

    def __init__(self) -> None:
        self._runs = RunTree()

    def on_chain_start(
        self, *args: Any, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Record the run's parent."""
        self._runs.start(run_id, parent_run_id)

    def on_tool_start(
        self, *args: Any, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Record the run's parent."""
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
        """Record the run's parent and the query."""
        self._runs.start(run_id, parent_run_id, query=query)

    def on_retriever_end(
        self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Store the documents for model calls that have an ancestor in common."""
        self._runs.add_documents(run_id, documents)
        self._runs.end(run_id)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Drop the tree when its root ends."""
        self._runs.end(run_id)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Attach claims flagged inside the tool to its message; end the run."""
        attach_rejected(output, self._runs.tool_rejected(run_id))
        self._runs.end(run_id)

    on_llm_end: Any = on_chain_end

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Drop the tree when its root fails."""
        self._runs.end(run_id)

    on_tool_error = on_llm_error = on_retriever_error = on_chain_error


# Handlers that observed model calls of the current window and get its report; None outside one.
_OBSERVERS: Final[ContextVar[list[Any] | None]] = ContextVar("crp_langchain_heard", default=None)


def inside_window(handlers: list[Any]) -> AbstractContextManager[None]:
    """Mark model calls in the `with` block as part of a window that is examined as a whole."""
    return context_value(_OBSERVERS, handlers)


def leave_to_window(handler: Any) -> bool:
    """Whether a window examines the model call's answer; if so, register the handler for it."""
    handlers = _OBSERVERS.get()
    if handlers is None:
        return False
    if not any(other is handler for other in handlers):
        handlers.append(handler)
    return True


@dataclass(frozen=True, slots=True)
class SentCall:
    """The messages sent in a model call; empty if they were not observed.

    Attributes:
        structured: True if LangChain parses the answer, which may be a tool call, into an object.
    """

    messages: tuple[Message, ...] = ()
    rejected: tuple[RejectedClaim, ...] = ()
    structured: bool = False


# The run of a model call while examining handlers run at its end.
_ENDING: Final[ContextVar[BaseRunManager | None]] = ContextVar("crp_langchain_ending", default=None)


def examining(run: BaseRunManager) -> AbstractContextManager[None]:
    """Mark the `with` block as the examination of this run's answer."""
    return context_value(_ENDING, run)


def run_span() -> Any:
    """The OpenTelemetry span of the current run, from a tracer among LangChain's handlers.

    OpenInference and Langfuse find it by the run's id; None without one of them.
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
    """Messages of calls in progress; limited in number, since a cancelled call sends no event."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._messages: OrderedDict[UUID, SentCall] = OrderedDict()

    def note(
        self, run_id: UUID, messages: Sequence[Sequence[BaseMessage]], *, structured: bool = False
    ) -> None:
        """Record the messages of a call.

        A call with several conversations, or with an unknown role, is not recorded.
        """
        if len(messages) != 1:
            return
        try:
            converted = tuple(map(message_of, messages[0]))
            read = SentCall(converted, rejected_in(messages[0]), structured)
        except RequestError:
            return
        with self._lock:
            self._messages[run_id] = read
            while len(self._messages) > MAX_TREES:
                self._messages.popitem(last=False)

    def pop(self, run_id: UUID) -> SentCall:
        """Return and remove the messages of a call."""
        with self._lock:
            return self._messages.pop(run_id, SentCall())


# LangChain's key for a session, then LangGraph's.
_KEYS: Final = ("session_id", "thread_id")


def session_of(config: Mapping[str, Any] | None) -> str:
    """The session id in a config, from `session_id` or else `thread_id`; empty for none.

    An id made by this package is used unchanged; any other name is hashed (`session_id_of`).
    """
    configurable = (config or {}).get("configurable") or {}
    for key in _KEYS:
        name = configurable.get(key)
        if name is None or name == "":
            continue
        return session_id_of(name, f"configurable {key}")
    return ""


# Separators in LangGraph's checkpoint namespace, `node:task|node:task` for nested graphs.
_BETWEEN_LEVELS: Final = "|"
_AFTER_NAME: Final = ":"
# The node in which a LangChain agent runs its tools.
_TOOLS_NODE: Final = "tools"


@dataclass(frozen=True, slots=True)
class OuterAgent:
    """The agent whose tool call is running.

    Attributes:
        depth: number of agents around that agent, 0 for the root.
        judge: judge fields for inner agents without a judge.
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
    """Mark the `with` block as a tool call of this agent."""
    return context_value(_OUTER, agent)


def keep_for_outer(relay: Relay | None, report: Report) -> None:
    """Keep an answer's flagged claims for the outer agent if that uses another relay.

    Within one relay, they are part of the result that a sub-agent hands back.
    """
    around = outer_agent()
    if around is not None and around.relay is not relay and around.session_id:
        hold_rejections(around.relay, around.session_id, report)


def agent_depth(config: Mapping[str, Any] | None = None) -> int:
    """Number of agents around the current one, 0 for the root.

    Agents without the middleware count too, by the tool nodes of LangGraph's namespace.
    """
    around = outer_agent()
    known = 0 if around is None else around.depth + 1
    configurable = (ensure_config() if config is None else config).get("configurable") or {}
    namespace = str(configurable.get("checkpoint_ns") or "")
    above = namespace.split(_BETWEEN_LEVELS)[:-1]
    named = sum(part.partition(_AFTER_NAME)[0] == _TOOLS_NODE for part in above)
    return max(known, named)

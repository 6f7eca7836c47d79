"""The span handler that keeps the process's tree of spans."""

from __future__ import annotations

import inspect
from typing import Any, Final

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.span import active_span_id
from llama_index.core.instrumentation.span.base import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler

from crp_integrations.llama_index.sessions import named_session, session_of
from crp_integrations.llama_index.spans import Span
from crp_integrations.llama_index.tree import Tree


class DPESpanHandler(BaseSpanHandler[BaseSpan]):
    """Notes every span with what is around it, and what was found in it; see `tree.py`.

    Whoever needs the tree listens by `listen()`; it keeps nothing of a tree whose root has ended.
    """

    _tree: Tree = PrivateAttr(default_factory=Tree)

    @classmethod
    def class_name(cls) -> str:
        """The handler's name."""
        return "DPESpanHandler"

    @property
    def tree(self) -> Tree:
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


def listen() -> Tree:
    """The process's tree, whose handler is on LlamaIndex's root dispatcher from now on."""
    root = get_dispatcher()
    if all(handler is not _HANDLER for handler in root.span_handlers):
        root.add_span_handler(_HANDLER)
    return _HANDLER.tree


def here() -> Span | None:
    """The span in which this runs; None where it is not known."""
    return listen().span(active_span_id.get())


def session_in(span: Span | None) -> str:
    """The session that `instrument_tags` name here, or named when the agent around began; or empty.

    Raises:
        RequestError: the id is no text or number.
    """
    found = session_of()
    if found or span is None:
        return found
    # Workflows run their steps under tags of their own.
    tag = next((one.tag for one in span.path() if one.runs and one.tag), None)
    return "" if tag is None else named_session(tag)

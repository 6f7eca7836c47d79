"""Envelope and report events of LlamaIndex's dispatcher, and memory items from its events."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.agent import AgentToolCallEvent
from llama_index.core.instrumentation.events.llm import LLMChatEndEvent
from llama_index.core.instrumentation.events.query import QueryStartEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.schema import MetadataMode

from crp_integrations.adapters.arguments import check_emitter
from crp_integrations.errors import FactRejected
from crp_integrations.governance.memory_emitter import Emitter


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
            for found in event.nodes:
                text = found.node.get_content(metadata_mode=MetadataMode.NONE)
                self._emit(emitter.semantic, text, "document")

    def _emit(self, emit: Callable[..., Any], content: Any, category: str) -> None:
        try:
            emit(content, category)
        except FactRejected as error:
            log.info("a memory of category %s was not kept: %s", category, type(error).__name__)

"""The event with which an envelope is published on LlamaIndex's dispatcher."""

from __future__ import annotations

from typing import Any

from llama_index.core.instrumentation.events import BaseEvent


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

"""The agentic strategy within one window: the model may search the fabric before it answers.

What it finds enters the envelope like any other fact, so the answer is examined against all of it.
The relay runs this one tool; calls of other tools are passed on to the caller.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from crp_integrations.dpe import remedies
from crp_integrations.dpe.records import Report
from crp_integrations.messages import Reply, ToolCall
from crp_integrations.relay.ending import Note
from crp_integrations.relay.settings_dispatch import DispatchSettings
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import EventType

SEARCH: Final = "search_context"
LONGEST: Final = 500
TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": SEARCH,
        "description": (
            "Search the knowledge base for facts that the context does not hold yet. What is "
            "found is added to the context."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "what is looked for, in plain words"}
            },
            "required": ["query"],
        },
    },
}
SEARCHED: Final = "You have searched for:\n{queries}\nThe context holds what was found."


@dataclass(slots=True)
class Searching:
    """How far an agentic answer is.

    Spec: related facts §7

    Attributes:
        iterations: model calls so far.
        tool_calls: searches so far.
        queries: what was searched for, in order, each once.
    """

    settings: DispatchSettings
    iterations: int = 0
    tool_calls: int = 0
    queries: list[str] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether another call may be made."""
        return self.iterations < self.settings.agentic_iterations

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """The tool, while a further search may be made and its result be answered to."""
        room = self.iterations + 1 < self.settings.agentic_iterations
        return (TOOL,) if room and self.tool_calls < self.settings.agentic_tool_calls else ()

    def searches(self, reply: Reply) -> tuple[list[str], list[Note]]:
        """What a reply wants to be looked up; nothing where it answers or calls other tools.

        Searches beyond the most that are allowed are not made.

        Returns:
            Queries that are new, and a note for each call.
        """
        wanted = [call for call in reply.tool_calls if call.name == SEARCH]
        if not wanted or len(wanted) < len(reply.tool_calls):
            return [], []
        new: list[str] = []
        notes: list[Note] = []
        for call in wanted[: self.settings.agentic_tool_calls - self.tool_calls]:
            query = _query(call)
            self.tool_calls += 1
            notes.append(
                (
                    EventType.TOOL_CALL,
                    {
                        "tool": sha256(SEARCH),
                        "arguments_hash": sha256(call.arguments),
                        "number": self.tool_calls,
                        "failed": not query,
                    },
                )
            )
            if query and query not in self.queries:
                self.queries.append(query)
                new.append(query)
        return new, notes

    def told(self) -> tuple[str, ...]:
        """What is added to the system message once something was searched for."""
        if not self.queries:
            return ()
        return (SEARCHED.format(queries="\n".join(f"- {query}" for query in self.queries)),)

    def unfinished(self, report: Report, safety_budget: float) -> str:
        """Words that ask for what is missing; empty when the answer is done or must be.

        Args:
            safety_budget: of the session; at the floor nothing more is tried.
        """
        found = report.quality.completeness
        if not self.open or safety_budget <= self.settings.agentic_floor:
            return ""
        if found.score >= self.settings.agentic_completion or not found.uncovered:
            return ""
        return remedies.towards_completeness(found.covered, found.uncovered)


def _query(call: ToolCall) -> str:
    """The query of a call; empty for arguments that are not what the tool takes."""
    try:
        told = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return ""
    query = told.get("query") if isinstance(told, dict) else None
    return " ".join(query.split())[:LONGEST] if isinstance(query, str) else ""

"""The calls within one window: draft and refinement (reflexive), and searches (agentic).

The last answer is examined and delivered as the model wrote it. Search results enter the envelope
like other facts, so the answer is checked against all of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from crp_integrations.dpe.records import Report
from crp_integrations.messages import Message, ModelCall, Reply, ToolCall
from crp_integrations.relay.settings import DispatchSettings
from crp_integrations.relay.window_records import Note
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import EventType, Purpose, Strategy

VERIFY: Final = (
    "Check every statement of your answer against the context. List each statement that the "
    "context does not support, with what the context says in its place, one to a line. "
    "If the context supports all of them, reply with NONE and nothing else."
)
REFINE: Final = (
    "Write the answer to the question again. Mend what you have listed: state what the context "
    "says, and leave out what it does not. Reply with the answer alone."
)
_NONE = re.compile(r"\W*none\W*", re.IGNORECASE)


@dataclass(slots=True)
class AnswerPasses:
    """The calls of one answer.

    Spec: related facts §7

    Attributes:
        objections: whether the verification found unsupported statements.
        further: the calls after the first, in order.
    """

    strategy: Strategy
    settings: DispatchSettings
    done: int = 0
    answer: Reply | None = None
    objections: bool = False
    further: list[ModelCall] = field(default_factory=list)

    def after(self, call: ModelCall, reply: Reply) -> ModelCall | None:
        """The next call after a reply, recorded in `further`; None when the answer is complete."""
        next_call = self._after(call, reply)
        if next_call is not None:
            self.further.append(next_call)
        return next_call

    def _after(self, call: ModelCall, reply: Reply) -> ModelCall | None:
        """The next call after a reply; None when the answer is complete."""
        self.done += 1
        if self.strategy is not Strategy.REFLEXIVE or (self.done == 1 and reply.tool_calls):
            self.answer = reply
            return None
        if self.done == 1:
            self.answer = reply
            messages = (*call.messages, Message(role="assistant", content=reply.text))
            return call.changed(
                messages=(*messages, Message(role="user", content=VERIFY)),
                purpose=Purpose.CRITIQUE,
                temperature=self.settings.verify_temperature,
                tools=(),
            )
        if self.done == 2 and self.answer is not None:
            self.objections = not _NONE.fullmatch(reply.text)
            if not self.objections:
                return None
            messages = (
                *call.messages,
                Message(role="assistant", content=self.answer.text),
                Message(role="user", content=VERIFY),
                Message(role="assistant", content=reply.text),
                Message(role="user", content=REFINE),
            )
            return call.changed(
                messages=messages, temperature=self.settings.refine_temperature, tools=()
            )
        # If the refinement is empty, the draft is the answer.
        if reply.text.strip():
            self.answer = reply
        return None

    @property
    def round(self) -> tuple[int, int]:
        """Number of revisions, and of all passes: `(1, 2)` or `(2, 3)` when reflexive."""
        return (max(0, self.done - 1), max(1, self.done))


SEARCH: Final = "search_context"
MAX_QUERY_CHARACTERS: Final = 500
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
UNREAD: Final = f'A search could not be read. Call {SEARCH} with {{"query": "what you look for"}}.'
OPEN: Final = (
    "Your last answer left open: {needs}. Look for what is missing, then answer the whole question "
    "again."
)
STOP: Final = (
    "You cannot search any more. Answer now with what the context holds, and say what it does not "
    "hold."
)


@dataclass(slots=True)
class FactSearches:
    """The state of an agentic answer: searches made and limits reached.

    Spec: related facts §7

    Attributes:
        safety_budget: safety budget of the session; at the floor no further call is made.
        queries: search queries in order, without duplicates.
        unread: whether a search in the last reply had no readable query.
        stopped: whether a limit ended the search and was journalled.
        open_needs: needs that were uncovered when the model was last asked for more.
    """

    settings: DispatchSettings
    safety_budget: float = 1.0
    iterations: int = 0
    tool_calls: int = 0
    queries: list[str] = field(default_factory=list)
    unread: bool = False
    stopped: bool = False
    open_needs: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        """Whether another call may be made."""
        return self.iterations < self.settings.agentic_iterations and not self._spent

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """The search tool, while both another search and a call to use its result are allowed."""
        room = self.iterations + 1 < self.settings.agentic_iterations and not self._spent
        return (TOOL,) if room and self.tool_calls < self.settings.agentic_tool_calls else ()

    def searches(self, reply: Reply) -> tuple[list[str], list[Note]]:
        """New search queries in a reply, and journal notes on its searches.

        Searches beyond the maximum are ignored.
        """
        wanted = [call for call in reply.tool_calls if call.name == SEARCH]
        new: list[str] = []
        notes: list[Note] = []
        self.unread = False
        for call in wanted[: max(0, self.settings.agentic_tool_calls - self.tool_calls)]:
            query = _query(call)
            self.unread = self.unread or not query
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

    def instructions(self) -> tuple[str, ...]:
        """The instructions that are added to the system message after a search."""
        words = []
        if self.queries:
            words.append(SEARCHED.format(queries="\n".join(f"- {query}" for query in self.queries)))
        if self.iterations and not self.tools:
            words.append(STOP)
        elif self.unread:
            words.append(UNREAD)
        return tuple(words)

    def unfinished(self, report: Report) -> str:
        """An instruction to answer uncovered needs; empty if none, or if it was given before."""
        completeness = report.quality.completeness
        done = completeness.score is None or completeness.score >= self.settings.agentic_completion
        if self.stopped or done or not completeness.uncovered:
            return ""
        before, self.open_needs = self.open_needs, tuple(completeness.uncovered)
        # After one request the model covered nothing more, so a second one is useless.
        if before == self.open_needs:
            return ""
        return OPEN.format(needs=", ".join(completeness.uncovered))

    def limit(self) -> Note | None:
        """A journal note, the first time that a limit ends the search."""
        if self.stopped or self.tools:
            return None
        self.stopped = True
        reason = "budget" if self._spent else "limit"
        return (EventType.STOP_INJECT, {"reason": reason, "iteration": self.iterations})

    @property
    def _spent(self) -> bool:
        return self.safety_budget <= self.settings.agentic_floor


def wants_search(reply: Reply) -> bool:
    """Whether a reply asks for a search."""
    return any(call.name == SEARCH for call in reply.tool_calls)


def without_searches(reply: Reply) -> Reply:
    """A reply without search calls, which only the relay can execute."""
    if not wants_search(reply):
        return reply
    return reply.changed(tool_calls=tuple(c for c in reply.tool_calls if c.name != SEARCH))


def _query(call: ToolCall) -> str:
    """The query of a call; empty for invalid arguments."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return ""
    query = arguments.get("query") if isinstance(arguments, dict) else None
    return " ".join(query.split())[:MAX_QUERY_CHARACTERS] if isinstance(query, str) else ""

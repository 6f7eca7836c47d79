"""The calls of one window together: what they cost, and what happened between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from crp_integrations.messages import Reply, Usage
from crp_integrations.relay.ending import Note
from crp_integrations.vocabulary import EventType


@dataclass(slots=True)
class Attempts:
    """What a window's model calls come to.

    Spec: CRP-SPEC-005 §19.3

    Attributes:
        calls: replies received, of every purpose.
        redispatches: times that the question was asked again.
        remedies: what was used against findings: `prompt-augmented`, `stitched`.
        notes: for the journal, in order.
    """

    calls: int = 0
    redispatches: int = 0
    tool_calls: int = 0
    remedies: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    _prompt: int = 0
    _completion: int = 0
    _costs: list[float | None] = field(default_factory=list)

    def add(self, reply: Reply) -> None:
        """Count a reply."""
        self.calls += 1
        self.tool_calls += len(reply.tool_calls)
        self._prompt += reply.usage.prompt_tokens
        self._completion += reply.usage.completion_tokens
        self._costs.append(reply.usage.cost_usd)

    def note(self, event_type: EventType, **data: object) -> None:
        """Remember something for the journal: ids, hashes, counts and closed words only."""
        self.notes.append((event_type, data))

    @property
    def usage(self) -> Usage:
        """Of all calls together; the cost is known only when every call's is."""
        known = [cost for cost in self._costs if cost is not None]
        return Usage(
            prompt_tokens=self._prompt,
            completion_tokens=self._completion,
            cost_usd=sum(known) if known and len(known) == len(self._costs) else None,
        )

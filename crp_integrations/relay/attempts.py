"""The calls of one window together: what they cost, and what happened between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from crp_integrations.messages import Reply, Usage
from crp_integrations.relay.sealing.ending import Note
from crp_integrations.relay.usage import total
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
        flags: for the report.
    """

    calls: int = 0
    redispatches: int = 0
    tool_calls: int = 0
    remedies: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    _usages: list[Usage] = field(default_factory=list)

    def add(self, reply: Reply) -> None:
        """Count a reply."""
        self.calls += 1
        self.tool_calls += len(reply.tool_calls)
        self._usages.append(reply.usage)

    def note(self, event_type: EventType, **data: object) -> None:
        """Remember something for the journal: ids, hashes, counts and closed words only."""
        self.notes.append((event_type, data))

    @property
    def usage(self) -> Usage:
        """Of all calls together; the cost is known only when every call's is."""
        return total(self._usages)

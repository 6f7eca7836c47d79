"""The hand-overs between the roles of a run: each asks the guard and is told to the journal.

`examples/governed_agent.py` is a workflow of planner, retriever, compactor, sentinel, synthesizer
and verifier over this gate and the checks of `pack_checks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from crp_integrations.audit.drafts import EventDraft, non_empty
from crp_integrations.errors import AccessDenied
from crp_integrations.fabric.records import Moment
from crp_integrations.governance.context_pack import ContextItem
from crp_integrations.governance.pack_selection import GIVEN
from crp_integrations.guard.decisions import Guard, PolicyDecisionRef, Subject
from crp_integrations.ports import Clock
from crp_integrations.records import Record
from crp_integrations.seals import digest
from crp_integrations.vocabulary import AgentRole, EventType, RotSignal

ROLE = "role:"
# Joins the labels of an item in its pack.
_JOINED = "+"


def is_given(item: ContextItem) -> bool:
    """Whether the caller gave it with the question: no store holds it, and no label guards it."""
    return item.evidence.filters == dict(GIVEN)


def labels_of(item: ContextItem) -> tuple[str, ...]:
    """The labels of an item, ascending."""
    return tuple(sorted(item.security_label.split(_JOINED)))


class Handover(Record):
    """The trace of one hand-over; ids and hashes alone.

    Spec: Summit §Backlog Isolate 15

    Attributes:
        number: within the run, from 1.
        record: schema of what is handed over.
        record_hash: `sha256:` of its canonical JSON.
        items: ids of the items in it.
        tokens: of the context in it; 0 for none.
        decisions: what the gate asked the guard, once for each set of labels.
    """

    SCHEMA = "role-handover/1"

    run: str
    number: int = Field(ge=1)
    giver: AgentRole
    taker: AgentRole
    record: str
    record_hash: str
    items: tuple[str, ...] = ()
    tokens: int = Field(default=0, ge=0)
    decisions: tuple[PolicyDecisionRef, ...] = ()
    allowed: bool
    signals: tuple[RotSignal, ...] = ()
    at: Moment


@dataclass(slots=True)
class HandoverGate:
    """The hand-overs of one run. Not safe under threads.

    Each role acts as the run's subject with one more role of its own, such as `role:verifier`, so
    a policy can let the synthesizer read less than the retriever.

    Attributes:
        run: id of the run.
        tell: writes an event to the tenant's journal; when it raises, nothing is handed over.
        done: the traces so far.
    """

    run: str
    subject: Subject
    guard: Guard
    clock: Clock
    tell: Callable[[EventDraft], object]
    session_id: str = ""
    done: list[Handover] = field(default_factory=list)

    def acting(self, role: AgentRole) -> Subject:
        """The subject that a role acts as."""
        roles = (*self.subject.roles, f"{ROLE}{role.value}")
        return self.subject.model_copy(update={"roles": roles})

    def pass_on(
        self,
        giver: AgentRole,
        taker: AgentRole,
        record: Record,
        *,
        items: Sequence[ContextItem] = (),
        tokens: int = 0,
        signals: Sequence[RotSignal] = (),
    ) -> Handover:
        """Hand a record over when the guard lets its taker read all that is in it.

        Spec: Summit §Backlog Isolate 15

        Raises:
            AccessDenied: it does not; the refusal is in the journal too.
        """
        subject = self.acting(taker)
        labels = sorted({labels_of(item) for item in items if not is_given(item)})
        decisions = [self.guard.decide(subject, "read", each) for each in labels]
        allowed = bool(subject.tenant.strip()) and all(each.allowed for each in decisions)
        trace = Handover(
            run=self.run,
            number=len(self.done) + 1,
            giver=giver,
            taker=taker,
            record=record.SCHEMA,
            record_hash=digest(record.model_dump(mode="json")),
            items=tuple(item.id for item in items),
            tokens=tokens,
            decisions=tuple(
                PolicyDecisionRef(
                    id=each.id or each.guard, allowed=each.allowed, reason=each.reason
                )
                for each in decisions
            ),
            allowed=allowed,
            signals=tuple(signals),
            at=self.clock.now(),
        )
        self.tell(self._event(trace))
        self.done.append(trace)
        if not allowed:
            raise AccessDenied(
                f"the guard does not let the {taker.value} read what the {giver.value} hands over"
            )
        return trace

    def _event(self, trace: Handover) -> EventDraft:
        data = non_empty(
            run=trace.run,
            number=trace.number,
            giver=trace.giver,
            taker=trace.taker,
            record=trace.record,
            record_hash=trace.record_hash,
            items=list(trace.items),
            tokens=trace.tokens or None,
            decisions=[decision.id for decision in trace.decisions],
            allowed=trace.allowed,
            signals=[signal.value for signal in trace.signals],
        )
        return EventDraft(EventType.ROLE_HANDOVER, data, self.session_id)

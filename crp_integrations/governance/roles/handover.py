"""The gate between two roles: the guard decides for the taker, and the journal records it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from crp_integrations.audit.drafts import EventDraft, non_empty
from crp_integrations.errors import AccessDenied
from crp_integrations.governance.context_pack import ContextItem
from crp_integrations.governance.item_evidence import GIVEN
from crp_integrations.governance.roles.records import Handover
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
        signals: Iterable[RotSignal] = (),
    ) -> Handover:
        """Hand a record over when the guard lets its taker read all that is in it.

        Spec: Summit §Backlog Isolate 15
        """
        subject = self.acting(taker)
        asked = sorted({labels_of(item) for item in items if not is_given(item)})
        decisions = [self.guard.decide(subject, "read", labels) for labels in asked]
        allowed = bool(subject.tenant.strip()) and all(one.allowed for one in decisions)
        handed = Handover(
            run=self.run,
            number=len(self.done) + 1,
            giver=giver,
            taker=taker,
            record=record.SCHEMA,
            record_hash=digest(record.model_dump(mode="json")),
            items=tuple(item.id for item in items),
            tokens=tokens,
            decisions=tuple(
                PolicyDecisionRef(id=one.id or one.guard, allowed=one.allowed, reason=one.reason)
                for one in decisions
            ),
            allowed=allowed,
            signals=tuple(signals),
            at=self.clock.now(),
        )
        self.tell(self._event(handed))
        self.done.append(handed)
        if not allowed:
            raise AccessDenied(
                f"the guard does not let the {taker.value} read what the {giver.value} hands over"
            )
        return handed

    def _event(self, handed: Handover) -> EventDraft:
        data = non_empty(
            run=handed.run,
            number=handed.number,
            giver=handed.giver,
            taker=handed.taker,
            record=handed.record,
            record_hash=handed.record_hash,
            items=list(handed.items),
            tokens=handed.tokens or None,
            decisions=[one.id for one in handed.decisions],
            allowed=handed.allowed,
            signals=[one.value for one in handed.signals],
        )
        return EventDraft(EventType.ROLE_HANDOVER, data, self.session_id)

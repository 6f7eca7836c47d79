"""The contracts of the roles, the records they exchange, and the gate between two roles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pydantic import Field

from crp_integrations.audit.drafts import EventDraft, non_empty
from crp_integrations.errors import AccessDenied
from crp_integrations.fabric.records import Moment
from crp_integrations.governance.compaction.records import CompactPack
from crp_integrations.governance.context_pack import ContextItem, ContextPack, DropReport
from crp_integrations.governance.pack_selection import GIVEN
from crp_integrations.governance.runtime_state import RuntimeState, Snippet
from crp_integrations.guard.decisions import Guard, PolicyDecisionRef, Subject
from crp_integrations.messages import Usage
from crp_integrations.ports import Clock
from crp_integrations.records import Part, Record
from crp_integrations.seals import digest
from crp_integrations.vocabulary import AgentRole, EventType, RotSignal


class GoalPlan(Record):
    """A question and the goals that it comes to.

    Spec: Summit §Isolation Strategy
    """

    SCHEMA = "role-plan/1"

    question: str = Field(min_length=1)
    goals: tuple[str, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Material:
    """A pack with its texts, within a run; only the pack is handed over and traced.

    Attributes:
        texts: what the items refer to, by reference.
        stale: ids of items that are STALE, or older than they should be.
        reports: of everything that was left out so far.
        compact: the compaction that this came of; None for none.
    """

    pack: ContextPack
    texts: Mapping[str, str]
    stale: frozenset[str] = frozenset()
    reports: tuple[DropReport, ...] = ()
    compact: CompactPack | None = None


class CitedSpan(Part):
    """A stretch of an answer and the items that it names.

    Attributes:
        start, end: characters of the answer, half-open.
    """

    start: int = Field(ge=0)
    end: int = Field(ge=0)
    item_ids: tuple[str, ...] = Field(min_length=1)


class AnswerDraft(Record):
    """An answer before it is checked.

    Attributes:
        text: exactly as the model wrote it.
        cited: its stretches with what they cite; a mark that names no item is `""`.
        abstains: it says that the context holds no answer.
    """

    SCHEMA = "role-draft/1"

    text: str
    cited: tuple[CitedSpan, ...] = ()
    abstains: bool = False
    usage: Usage = Usage()


class DraftCheck(Part):
    """One look of the verifier.

    Attributes:
        rule: `policy`, `provenance`, `citations`, `drops` or `tools`.
        item_ids: what speaks against it; empty for a check that passed.
        reason: one sentence without a word of any text.
    """

    rule: str
    passed: bool
    item_ids: tuple[str, ...] = ()
    reason: str = ""


class DraftVerdict(Record):
    """What the verifier says of a draft; one failed check withholds it."""

    SCHEMA = "role-verdict/1"

    passed: bool
    checks: tuple[DraftCheck, ...]


class RotFinding(Part):
    """A sign of an anomaly or of context rot.

    Attributes:
        value, limit: what was measured and from where on it counts.
        blocks: the run stops here.
    """

    signal: RotSignal
    value: float
    limit: float
    item_ids: tuple[str, ...] = ()
    blocks: bool = False


class SentinelReport(Record):
    """What the sentinel noticed at one point of a run."""

    SCHEMA = "role-watch/1"

    noticed: tuple[RotFinding, ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether the run stops."""
        return any(one.blocks for one in self.noticed)


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


class Planner(Protocol):
    """Decomposes goals. It sees the question and the exposed fields."""

    def plan(self, question: str, state: RuntimeState) -> GoalPlan:
        """The goals that a question comes to."""
        ...


class Retriever(Protocol):
    """Fetches by keyword, vector and graph, under the subject's guard."""

    def retrieve(self, plan: GoalPlan, state: RuntimeState) -> Material:
        """A pack for a plan, with its texts."""
        ...


class Compactor(Protocol):
    """Trims a pack to its budget with a report of everything that it leaves out."""

    def compact(self, plan: GoalPlan, material: Material) -> Material:
        """The pack within its budget."""
        ...


class Synthesizer(Protocol):
    """Writes the response. It sees the payload: exposed fields, sanitised snippets, handles."""

    def write(
        self, plan: GoalPlan, state: RuntimeState, snippets: Sequence[Snippet]
    ) -> AnswerDraft:
        """An answer with citations."""
        ...


class DraftVerifier(Protocol):
    """Checks policy and provenance of what was shown, and the citations of what was written."""

    def verify(
        self, before: Material, shown: Material, snippets: Sequence[Snippet], draft: AnswerDraft
    ) -> DraftVerdict:
        """Look at a draft."""
        ...


class Sentinel(Protocol):
    """Detects anomalies and context rot."""

    def watch(
        self, material: Material, draft: AnswerDraft | None, verdict: DraftVerdict | None
    ) -> SentinelReport:
        """Look at a run."""
        ...


@dataclass(frozen=True, slots=True)
class Roles:
    """Who plays which role in a run."""

    planner: Planner
    retriever: Retriever
    compactor: Compactor
    synthesizer: Synthesizer
    verifier: DraftVerifier
    sentinel: Sentinel

    def but(self, **played: Any) -> Roles:
        """The same with some roles played by others."""
        return replace(self, **played)


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

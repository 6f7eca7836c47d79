"""What one role hands to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field

from crp_integrations.fabric.records import Moment
from crp_integrations.governance.compaction.records import CompactPack
from crp_integrations.governance.packs import ContextPack, DropReport
from crp_integrations.guard.decisions import PolicyDecisionRef
from crp_integrations.messages import Usage
from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import AgentRole, RotSignal


class Plan(Record):
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


class Cited(Part):
    """A stretch of an answer and the items that it names.

    Attributes:
        start, end: characters of the answer, half-open.
    """

    start: int = Field(ge=0)
    end: int = Field(ge=0)
    item_ids: tuple[str, ...] = Field(min_length=1)


class Draft(Record):
    """An answer before it is checked.

    Attributes:
        text: exactly as the model wrote it.
        cited: its stretches with what they cite; a mark that names no item is `""`.
        abstains: it says that the context holds no answer.
    """

    SCHEMA = "role-draft/1"

    text: str
    cited: tuple[Cited, ...] = ()
    abstains: bool = False
    usage: Usage = Usage()


class Check(Part):
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


class Verdict(Record):
    """What the verifier says of a draft; one failed check withholds it."""

    SCHEMA = "role-verdict/1"

    passed: bool
    checks: tuple[Check, ...]


class Noticed(Part):
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


class Watch(Record):
    """What the sentinel noticed at one point of a run."""

    SCHEMA = "role-watch/1"

    noticed: tuple[Noticed, ...] = ()

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

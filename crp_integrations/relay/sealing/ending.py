"""How a window ended: everything that its close is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from crp_integrations.audit.records import WindowSeal
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.records import Envelope
from crp_integrations.governance.run_steps import StepMeasurement
from crp_integrations.messages import Usage
from crp_integrations.receipt.records import Draft
from crp_integrations.session.transfer import Transfer
from crp_integrations.vocabulary import EventType, Strategy

# Something that happened within a window: ids, hashes, counts and words of closed lists.
Note: TypeAlias = tuple[EventType, Mapping[str, Any]]
# What the receipt on a window is to hold, once it has its seal and its finished report.
Drafting: TypeAlias = Callable[[WindowSeal, Report], Draft]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a window ended.

    Attributes:
        outcome: `released`, `failed`, `cancelled`, `refused` or `halted`.
        envelope: None when the window ended before there was one.
        text: the model's text, empty for a window without a reply.
        report: as examined, without identity.
        model: the model that was asked last.
        strategy: how the question was dispatched in the end.
        tokens: of all model calls, prompt and completion.
        tool_calls: that the model asked for.
        error: class name of the error that ended the window, empty when none did.
        reason: why the answer is withheld, empty when it is not.
        notes: what happened on the way, in order.
        sibling: place among the windows of one fan-out, from 1; 0 for a window on its own.
        keep: whether anything that was said may be kept on disk; not under `no-store`.
        outdated: earlier windows whose sources have changed since.
        transfer: what the window was given of those before; None for nothing.
        born: fields of the session, should it begin with this window.
        draft: makes what its receipt holds; None for no receipt.
        candidates: ids of the facts that its receipt names, shown or not.
        labels: access labels of the envelope's facts, by id.
        hashes: `sha256:…` of what is shown of the envelope's facts, by id, as far as known.
        decisions: ids of the guard's decisions that let them be read, by id of the fact.
        invocation_hash: of the call that the envelope was made for; empty for none.
        assembly_us: microseconds that the envelope took, by the relay's clock.
        usage: of all model calls.
        steps: what the four steps came to for the last call; empty where none was packed.
    """

    outcome: str
    envelope: Envelope | None
    text: str
    report: Report
    model: str
    strategy: Strategy = Strategy.PUSH
    tokens: int = 0
    tool_calls: int = 0
    error: str = ""
    reason: str = ""
    notes: tuple[Note, ...] = ()
    sibling: int = 0
    keep: bool = True
    outdated: tuple[str, ...] = ()
    transfer: Transfer | None = None
    born: Mapping[str, Any] = field(default_factory=dict)
    draft: Drafting | None = None
    candidates: tuple[str, ...] = ()
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    decisions: Mapping[str, str] = field(default_factory=dict)
    invocation_hash: str = ""
    assembly_us: int = 0
    usage: Usage = field(default_factory=Usage)
    steps: tuple[StepMeasurement, ...] = ()

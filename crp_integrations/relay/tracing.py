"""A sealed window as a trace: for the journal, and for whoever observes the relay."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from datetime import datetime, timedelta
from typing import Any

from crp_integrations.audit.records import WindowSeal
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.records import Envelope
from crp_integrations.governance.evaluating import evaluated
from crp_integrations.governance.tracing import (
    PackTrace,
    WindowTrace,
    security_label,
    traced_drops,
    traced_items,
)
from crp_integrations.messages import Usage
from crp_integrations.relay.ending import Ending
from crp_integrations.relay.world import World

_LOG = logging.getLogger("crp_integrations.relay")


def trace_of(
    seal: WindowSeal, ending: Ending, envelope: Envelope, stored: Set[str], hmac: str = ""
) -> PackTrace:
    """The trace of a window's pack; facts that are not on disk are counted and not named.

    Spec: Summit §Evaluation & Observability

    Args:
        hmac: of the journal's event that holds it; empty before that is written.
    """
    shown = [fact for fact in envelope.facts if fact.fact_id in stored]
    labels, decisions = ending.labels, ending.decisions
    # Few classes of labels, many items.
    named: dict[tuple[str, ...], str] = {}
    for of in labels.values():
        if of not in named:
            named[of] = security_label(of)
    unlabelled = security_label(())
    return PackTrace(
        session_id=seal.session_id,
        window_id=seal.window_id,
        timestamp=seal.timestamp,
        etag=envelope.etag,
        state_hash=envelope.state_hash,
        model=ending.model,
        invocation_hash=ending.invocation_hash,
        token_budget=envelope.token_budget,
        token_count=envelope.token_count,
        available=envelope.total_facts_available,
        held=len(envelope.facts) - len(shown),
        assembly_us=ending.assembly_us,
        items=traced_items(
            {
                "id": fact.fact_id,
                "source": fact.source_id,
                "label": named[labels[fact.fact_id]] if fact.fact_id in labels else unlabelled,
                "tokens": fact.token_count,
                "score": fact.composite_score,
                "decision": decisions.get(fact.fact_id, ""),
            }
            for fact in shown
        ),
        drops=traced_drops(envelope.dropped),
        ledger_hmac=hmac,
    )


def spent(usage: Usage) -> Mapping[str, Any]:
    """The journal's fields on what the model calls took; what was not told is left out."""
    if not usage.total_tokens:
        return {}
    said: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
    }
    if usage.cost_usd is not None:
        said["cost_microusd"] = round(usage.cost_usd * 1_000_000)
    return said


def microseconds(began: datetime, ended: datetime) -> int:
    """From one moment to another; 0 where the clock was set back."""
    return max(0, (ended - began) // timedelta(microseconds=1))


def observe(
    world: World,
    ending: Ending,
    seal: WindowSeal,
    report: Report,
    pack: PackTrace | None,
    receipt_id: str,
) -> None:
    """Tell whoever observes of a sealed window; no answer depends on what becomes of it.

    Nothing is told of a window under `no-store`.
    """
    if world.observer is None or not ending.keep:
        return
    examined = seal.outcome in ("released", "halted") and ending.envelope is not None
    try:
        world.observer.sealed(
            WindowTrace(
                session_id=seal.session_id,
                window_id=seal.window_id,
                outcome=seal.outcome,
                strategy=ending.strategy.value,
                model=ending.model,
                error=ending.error,
                report_hash=seal.report_hash,
                window_hmac=seal.hmac,
                receipt_id=receipt_id,
                pack=pack,
                evaluated=evaluated(report, ending.envelope, ending.usage)
                if examined and ending.envelope is not None
                else None,
            )
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, the window is sealed and stays so
        why = type(error).__name__
        _LOG.warning("the trace of window %s was not taken: %s", seal.window_id, why)

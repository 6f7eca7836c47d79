"""A sealed window as a trace: for the journal, and for whoever observes the relay."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from datetime import datetime, timedelta
from typing import Any

from crp_integrations.audit.records import WindowSeal
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.records import Envelope
from crp_integrations.governance.window_evaluation import evaluate_window
from crp_integrations.governance.window_trace import (
    JudgeTrace,
    PackColumns,
    PackTrace,
    WindowTrace,
    drops_by_reason,
    security_label,
    traced_drops,
    traced_items,
)
from crp_integrations.messages import Usage
from crp_integrations.relay.sealing.ending import Ending
from crp_integrations.relay.world import World

_LOG = logging.getLogger("crp_integrations.relay")


def trace_of(
    seal: WindowSeal, ending: Ending, envelope: Envelope, columns: PackColumns, hmac: str = ""
) -> PackTrace:
    """The trace of a window's pack.

    Spec: Summit §Evaluation & Observability

    Args:
        columns: what the journal says of the pack.
        hmac: of the journal's event that holds it; empty before that is written.
    """
    rows = zip(
        columns.ids, columns.sources, columns.labels, columns.tokens, columns.scores,
        columns.decisions, strict=True,
    )  # fmt: skip
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
        held=columns.held,
        assembly_us=ending.assembly_us,
        items=traced_items(
            {
                "id": id_,
                "source": source,
                "label": label,
                "tokens": tokens,
                "score": score,
                "decision": decision,
            }
            for id_, source, label, tokens, score, decision in rows
        ),
        drops=traced_drops(envelope.dropped),
        ledger_hmac=hmac,
    )


def packed(ending: Ending, envelope: Envelope, stored: Set[str]) -> PackColumns:
    """What the journal says of a window's pack; facts that are not on disk are not named."""
    shown = [fact for fact in envelope.facts if fact.fact_id in stored]
    ids = [fact.fact_id for fact in shown]
    labels, decisions = ending.labels, ending.decisions
    # Few classes of labels, many items.
    named = {of: security_label(of) for of in {*labels.values()}}
    unlabelled = security_label(())
    return PackColumns(
        {
            "etag": envelope.etag,
            "state_hash": envelope.state_hash,
            "budget_tokens": envelope.token_budget,
            "tokens": envelope.token_count,
            "available": envelope.total_facts_available,
            "assembly_us": ending.assembly_us,
        },
        ids=ids,
        sources=[fact.source_id for fact in shown],
        labels=[named[labels[id_]] if id_ in labels else unlabelled for id_ in ids],
        tokens=[fact.token_count for fact in shown],
        scores=[fact.composite_score for fact in shown],
        decisions=[decisions.get(id_, "") for id_ in ids],
        drops=drops_by_reason(envelope.dropped),
        held=len(envelope.facts) - len(shown),
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
    pack: Callable[[], PackTrace] | None,
    receipt_id: str,
) -> None:
    """Tell whoever observes of a sealed window; no answer depends on what becomes of it.

    Nothing is told of a window under `no-store`.

    Args:
        pack: makes the trace of its pack; None for a window that ended before there was one.
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
                pack=pack() if pack else None,
                evaluated=evaluate_window(report, ending.envelope, ending.usage)
                if examined and ending.envelope is not None
                else None,
                judged=JudgeTrace.of(report.judge) if report.judge is not None else None,
            )
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, the window is sealed and stays so
        why = type(error).__name__
        _LOG.warning("the trace of window %s was not taken: %s", seal.window_id, why)

"""What the four steps came to for one call, from numbers that were counted on the way."""

from __future__ import annotations

from crp_integrations.envelope.fit import Fit
from crp_integrations.envelope.records import Envelope
from crp_integrations.fabric.view import View
from crp_integrations.governance.run_steps import RunStep, StepMeasurement
from crp_integrations.relay.records import Request


def measured(
    given: Request, sent: Request, made: Fit | None, envelope: Envelope, view: View
) -> tuple[StepMeasurement, ...]:
    """The steps of a call that is packed and not yet made.

    Spec: Summit §Principles

    Args:
        given: as the caller gave it; `sent` is as its model is asked.
        made: what the envelope was made of; None for one that a caller has already.
        view: what was read.
    """
    facts = made.candidates.facts if made is not None else ()
    shown = len(envelope.facts)
    offered = sum([one.tokens for one in facts]) if facts else envelope.token_count
    room = made.room if made is not None else None
    around = room.around + room.question if room is not None else 0
    account = sent.compaction
    before, after = len(given.history), len(sent.history)
    told = (account.tokens_before, account.tokens_after) if account else (around, around)
    return (
        StepMeasurement(step=RunStep.WRITE, items_after=len(view.held())),
        StepMeasurement(
            step=RunStep.SELECT,
            items_before=len(facts) or shown,
            items_after=shown,
            tokens_before=offered,
            tokens_after=envelope.token_count,
        ),
        StepMeasurement(
            step=RunStep.COMPRESS,
            items_before=before,
            items_after=after,
            tokens_before=told[0],
            tokens_after=told[1],
        ),
        StepMeasurement(
            step=RunStep.ISOLATE,
            items_before=(len(facts) or shown) + before,
            items_after=shown + after,
            tokens_before=offered + told[0],
            tokens_after=envelope.token_count + around,
        ),
    )

"""Stage 5: the base risk of the answer.

Spec: CRP-SPEC-005 §7
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crp_integrations.dpe.records import Finding, StageRun
from crp_integrations.dpe.risk import Counts, Risk, assess, calibrated, composite, level, signals
from crp_integrations.dpe.state import State, with_findings
from crp_integrations.dpe.verifier.trees import probability
from crp_integrations.vocabulary import Attribution, GroundingMode

RUN = StageRun(number=5, name="risk classification", engine="weighted-sum@1")
PARAMETRIC = "parametric"


def classify_risk(state: State) -> State:
    """Put the four signals together; under `context-strict` a PARAMETRIC claim is a finding.

    Spec: CRP-SPEC-005 §7.2, CRP-SPEC-003 §13.2 (decision E21)
    """
    mode = state.dossier.grounding
    if mode is GroundingMode.STRICT:
        found = [
            Finding(stage=5, kind=PARAMETRIC, claim_id=c.claim_id, start=c.start, end=c.end)
            for c in state.factual
            if c.attribution is Attribution.PARAMETRIC
        ]
        state = replace(state, claims=with_findings(state.claims, found))
    counts = Counts(
        factual=len(state.factual),
        grounded=state.count(Attribution.CONTEXT_GROUNDED),
        parametric=state.count(Attribution.PARAMETRIC),
        unverifiable=state.count(Attribution.UNVERIFIABLE),
        fidelity=state.fidelity,
        entailment=state.weakest[0],
    )
    if state.reading is None:
        risk = assess(counts, mode, state.tools.settings)
        return replace(state, risk=risk, stages=(*state.stages, RUN))
    printed = signals(counts, mode)
    mapped = calibrated(printed, evidence(state), state.reading.maps)
    score = composite(mapped, state.tools.settings)
    risk = Risk(mapped, score, level(score))
    run = RUN.model_copy(update={"engine": f"{RUN.engine}, maps of {state.reading.maps.name}"})
    return replace(state, risk=risk, stages=(*state.stages, run))


def evidence(state: State) -> float:
    """How surely an answer holds an unsupported claim when half of all answers do, [0, 1].

    Under `open` PARAMETRIC claims are left out and can only lower it; under `context-strict`
    they raise it (decision E21).

    Spec: CRP-SPEC-005 §7.2, CRP-SPEC-003 §13.2
    """
    reading, mode = state.reading, state.dossier.grounding
    assert reading is not None
    odds = reading.evidence
    parametric = [claim.attribution is Attribution.PARAMETRIC for claim in state.claims]
    if mode is GroundingMode.OPEN and any(parametric):
        odds = min(odds, reading.over([not word for word in parametric]))
    elif mode is GroundingMode.STRICT:
        share = sum(parametric) / max(1, len(state.factual))
        odds += state.tools.settings.parametric_odds * share
    return float(probability(np.array([odds]))[0])

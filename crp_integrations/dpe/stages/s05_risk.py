"""Stage 5: the base risk of the answer.

Spec: CRP-SPEC-005 §7
"""

from __future__ import annotations

from dataclasses import replace

from crp_integrations.dpe.records import Finding, StageRun
from crp_integrations.dpe.risk import Counts, assess
from crp_integrations.dpe.state import State, with_findings
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
    risk = assess(counts, mode, state.tools.settings)
    return replace(state, risk=risk, stages=(*state.stages, RUN))

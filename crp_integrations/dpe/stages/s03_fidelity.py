"""Stage 3: whether claims say what their sources say.

Spec: CRP-SPEC-005 §5
"""

from __future__ import annotations

from dataclasses import replace

from crp_integrations.dpe.records import StageRun
from crp_integrations.dpe.risk import fidelity_score
from crp_integrations.dpe.stages.s03a_fabrication import fabrications
from crp_integrations.dpe.stages.s03b_distortion import distortions
from crp_integrations.dpe.stages.s03c_contradiction import contradictions, cut
from crp_integrations.dpe.state import State, with_findings
from crp_integrations.dpe.verifier.alignment import IDENTITY
from crp_integrations.vocabulary import ClaimType, DistortionType

RUN = StageRun(number=3, name="fidelity verification", engine=f"typed values, {IDENTITY}")


def verify_fidelity(state: State) -> State:
    """Find fabrications, distortions and contradictions, and score fidelity.

    One defect is one finding: a value that stands where the source has another one is a
    distortion, and a value that no source has and that replaces none is a fabrication.

    Spec: CRP-SPEC-005 §5.2 to §5.5
    """
    for substage in (fabrications, distortions):
        state = replace(state, claims=with_findings(state.claims, substage(state)))
    opposed, pairs_cut = contradictions(state), cut(state)
    state = replace(state, claims=with_findings(state.claims, opposed), pairs_cut=pairs_cut)
    fabricated, distorted, contradicted = counted(state)
    fidelity = fidelity_score(
        fabrications=fabricated,
        distortions=distorted,
        contradictions=contradicted,
        factual=len(state.factual),
        settings=state.tools.settings,
    )
    return replace(state, fidelity=fidelity, stages=(*state.stages, RUN))


def counted(state: State) -> tuple[int, int, int]:
    """Fabrications, distortions and contradictions that enter the scores; opinions do not.

    Spec: CRP-SPEC-005 §3.3
    """
    kinds = [
        finding.kind
        for claim in state.claims
        if claim.claim_type is not ClaimType.OPINION
        for finding in claim.findings
    ]
    distorted = sum(kind in DistortionType.__members__ for kind in kinds)
    return kinds.count("fabrication"), distorted, kinds.count("contradiction")

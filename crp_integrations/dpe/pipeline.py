"""The whole engine on one screen: an answer goes through the stages, a report comes out.

Spec: CRP-SPEC-005 §2
"""

from __future__ import annotations

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.s01_claims import segment_claims
from crp_integrations.dpe.stages.s02_attribution import attribute
from crp_integrations.dpe.stages.s03_fidelity import verify_fidelity
from crp_integrations.dpe.stages.s04_entailment import score_entailment
from crp_integrations.dpe.stages.s05_risk import classify_risk
from crp_integrations.dpe.stages.s13_report import write_report
from crp_integrations.dpe.state import Stage, State, Tools
from crp_integrations.dpe.verifier.context import Context
from crp_integrations.ports import Embedder, Silent, Tracer

STAGES: tuple[tuple[str, Stage], ...] = (
    ("dpe.1.claims", segment_claims),
    ("dpe.2.attribution", attribute),
    ("dpe.3.fidelity", verify_fidelity),
    ("dpe.4.entailment", score_entailment),
    ("dpe.5.risk", classify_risk),
)


def examine(
    dossier: Dossier,
    *,
    embedder: Embedder | None,
    verifier: Verifier,
    settings: DpeSettings,
    tracer: Tracer | None = None,
) -> Report:
    """Examine an answer against its context.

    Spec: CRP-SPEC-005 §2

    Args:
        embedder: the fabric's; None for purely lexical work, which the report then names.
        tracer: opens a step around each stage; None for none.

    Returns:
        The report of stages 1 to 5, without identity and hash: see `s13_report.finish`.

    Raises:
        ConfigError: the settings ask for an embedder and there is none.
        EngineError: the dossier's vectors do not fit the embedder, or an engine failed.
    """
    steps = tracer or Silent()
    with steps.step("dpe.index"):
        context = Context([text for _, text in dossier.passages])
    state = State(dossier, Tools(embedder, verifier, settings), context)
    for name, stage in STAGES:
        with steps.step(name):
            state = stage(state)
    with steps.step("dpe.13.report"):
        return write_report(state)

"""The whole engine on one screen: an answer goes through the stages, a report comes out.

Spec: CRP-SPEC-005 §2
"""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.engine_signals import Live, Signals
from crp_integrations.dpe.ports import Recogniser, Verifier
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.session_texts import SessionSentences
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.attribution import attribute, segment_claims
from crp_integrations.dpe.stages.coherence import check_coherence, detect_repetition
from crp_integrations.dpe.stages.completeness import verify_completeness
from crp_integrations.dpe.stages.compliance import classify, find_omissions, find_personal
from crp_integrations.dpe.stages.entailment import classify_risk, score_entailment
from crp_integrations.dpe.stages.fidelity import verify_fidelity
from crp_integrations.dpe.stages.flow import analyse_flow
from crp_integrations.dpe.stages.report import write_report
from crp_integrations.dpe.state import Stage, State, Tools
from crp_integrations.dpe.verifier.context import Context
from crp_integrations.guard.ports import PolicyEngine
from crp_integrations.ports import Embedder, Silent, Tracer

STAGES: tuple[tuple[str, Stage], ...] = (
    ("dpe.1.claims", segment_claims),
    ("dpe.2.attribution", attribute),
    ("dpe.3.fidelity", verify_fidelity),
    ("dpe.4.entailment", score_entailment),
    ("dpe.5.risk", classify_risk),
    ("dpe.6.coherence", check_coherence),
    ("dpe.7.repetition", detect_repetition),
    ("dpe.8.completeness", verify_completeness),
    ("dpe.9.flow", analyse_flow),
    ("dpe.10.omission", find_omissions),
    ("dpe.11.personal", find_personal),
    ("dpe.12.regulatory", classify),
)


def examine(
    dossier: Dossier,
    *,
    embedder: Embedder | None,
    verifier: Verifier,
    settings: DpeSettings,
    tracer: Tracer | None = None,
    policy: PolicyEngine | None = None,
    recognisers: Sequence[Recogniser] = (),
    signals: Signals | None = None,
) -> Report:
    """Examine an answer against its context.

    Spec: CRP-SPEC-005 §2

    Args:
        embedder: the fabric's; None for purely lexical work, which the report then names.
        tracer: opens a step around each stage; None for none.
        policy: evaluates the control catalogue; None leaves stage 12 out.
        recognisers: look for personal data beside the package's own (§13.2).
        signals: the door through which engines are asked; None for one that forgets.

    Returns:
        The report of all stages, without identity and hash: see `stages.report.finish`.

    Raises:
        ConfigError: the settings ask for an embedder and there is none.
        EngineError: the dossier's vectors do not fit the embedder, or an engine failed.
    """
    steps = tracer or Silent()
    with steps.step("dpe.index"):
        context = Context([text for _, text in dossier.passages])
    heard = signals or Live()
    tools = Tools(embedder, verifier, settings, policy, tuple(recognisers), heard)
    state = State(dossier, tools, context, told=SessionSentences(dossier, embedder, heard))
    for name, stage in STAGES:
        with steps.step(name):
            state = stage(state)
    with steps.step("dpe.13.report"):
        return write_report(state)

"""The whole engine on one screen: an answer goes through the stages, a report comes out.

Spec: CRP-SPEC-005 §2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, NoReturn

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.engine_signals import Live, Remembered, SignalEntry, Signals
from crp_integrations.dpe.ports import Recogniser, Verifier
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.report_parts import JudgeRun
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.attribution import attribute, segment_claims
from crp_integrations.dpe.stages.coherence import check_coherence, detect_repetition
from crp_integrations.dpe.stages.completeness import verify_completeness
from crp_integrations.dpe.stages.compliance import classify, find_omissions, find_personal
from crp_integrations.dpe.stages.entailment import (
    classify_risk,
    compare_with_evidence,
    read_with_verifier,
    score_entailment,
)
from crp_integrations.dpe.stages.fidelity import verify_fidelity
from crp_integrations.dpe.stages.flow import analyse_flow
from crp_integrations.dpe.stages.report import write_report
from crp_integrations.dpe.state import SessionSentences, Stage, StageTools, State
from crp_integrations.dpe.verifier.context import PassageContext
from crp_integrations.errors import EngineError
from crp_integrations.guard.ports import PolicyEngine
from crp_integrations.ports import Embedder, Silent, Tracer
from crp_integrations.vocabulary import PersonalCategory

# What the claims rest on: read and compared exactly, or by the document's own arithmetic.
READING: tuple[tuple[str, Stage], ...] = (
    ("dpe.1.claims", segment_claims),
    ("dpe.2.comparison", compare_with_evidence),
    ("dpe.4.verifier", read_with_verifier),
)
ARITHMETIC: tuple[tuple[str, Stage], ...] = (
    ("dpe.1.claims", segment_claims),
    ("dpe.2.attribution", attribute),
    ("dpe.3.fidelity", verify_fidelity),
    ("dpe.4.entailment", score_entailment),
    ("dpe.5.risk", classify_risk),
)
FURTHER: tuple[tuple[str, Stage], ...] = (
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
    verifier: Verifier | None,
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
        verifier: reads each claim; None for an exact comparison alone.
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
    door = signals or Live()
    tools = StageTools(embedder, verifier, settings, policy, tuple(recognisers), door)
    index = cache(lambda: PassageContext([text for _, text in dossier.passages]))
    state = State(
        dossier, tools, index, session_sentences=SessionSentences(dossier, embedder, door)
    )
    first = READING if settings.decides == "claims" else ARITHMETIC
    for name, stage in (*first, *FURTHER):
        with steps.step(name):
            state = stage(state)
    with steps.step("dpe.13.report"):
        return write_report(state)


@dataclass(frozen=True, slots=True)
class Engines:
    """What the engines of an examination were, without them."""

    embedder: str | None
    embedder_thresholds: Mapping[str, float]
    dimensions: int
    verifier: str
    verifier_thresholds: Mapping[str, float]
    passage: int
    recognisers: tuple[tuple[str, Mapping[str, PersonalCategory]], ...] = ()
    policy: str = ""

    @classmethod
    def of(
        cls,
        embedder: Embedder | None,
        verifier: Verifier | None,
        policy: PolicyEngine | None = None,
        recognisers: Sequence[Recogniser] = (),
    ) -> Engines:
        """The identities and thresholds of these engines."""
        return cls(
            embedder=embedder.identity if embedder else None,
            embedder_thresholds=dict(embedder.thresholds) if embedder else {},
            dimensions=embedder.dimensions if embedder else 0,
            verifier=verifier.identity if verifier else "",
            verifier_thresholds=dict(verifier.thresholds) if verifier else {},
            passage=verifier.passage if verifier else 0,
            recognisers=tuple(
                (recogniser.identity, dict(recogniser.kinds)) for recogniser in recognisers
            ),
            policy=policy.identity if policy else "",
        )


@dataclass(frozen=True, slots=True)
class Examination:
    """An answer and its context, what engines said of them, and what they were.

    Attributes:
        judged: what a judge was asked and replied; None where none was configured.
    """

    dossier: Dossier
    entries: tuple[SignalEntry, ...]
    engines: Engines
    judged: JudgeRun | None = None


def again(
    examination: Examination, settings: DpeSettings, signals: Signals | None = None
) -> Report:
    """Examine an answer once more, from what engines said then.

    Spec: CRP-SPEC-005 §15.4
    """
    return examine(
        examination.dossier,
        settings=settings,
        signals=signals or Remembered(examination.entries),
        **stand_ins(examination.engines),
    )


def stand_ins(engines: Engines) -> Any:
    """Arguments of `examine` that bear the engines' names and cannot be asked."""
    embedder = verifier = policy = None
    if engines.embedder is not None:
        embedder = _named(
            engines.embedder,
            "embed_passages",
            "embed_query",
            dimensions=engines.dimensions,
            thresholds=engines.embedder_thresholds,
        )
    if engines.verifier:
        verifier = _named(
            engines.verifier,
            "judge",
            passage=engines.passage,
            thresholds=engines.verifier_thresholds,
        )
    if engines.policy:
        policy = _named(engines.policy, "decide")
    return {
        "embedder": embedder,
        "verifier": verifier,
        "policy": policy,
        "recognisers": tuple(
            _named(name, "find", kinds=kinds) for name, kinds in engines.recognisers
        ),
    }


def _named(identity: str, *questions: str, **known: object) -> SimpleNamespace:
    """An engine by its name and what is known of it, which refuses every question."""

    def absent(*_: object, **__: object) -> NoReturn:
        raise EngineError("an engine was asked that only its name is known of", engine=identity)

    return SimpleNamespace(identity=identity, **known, **dict.fromkeys(questions, absent))

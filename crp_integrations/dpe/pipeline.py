"""The whole engine on one screen: runs an answer through the stages and returns a report.

Spec: CRP-SPEC-005 §2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, NoReturn

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.engine_signals import Live, RecordedSignals, SignalEntry, Signals
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

# First stages: exact comparison and a verifier, or the specification's own arithmetic (`literal`).
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
        embedder: the fabric's embedder; None for purely lexical work, as the report then says.
        verifier: reads each claim; None for the exact comparison alone.
        tracer: opens a step around each stage; None for no tracing.
        policy: evaluates the control catalogue; None skips stage 12.
        recognisers: recognisers of personal data besides the package's own (§13.2).
        signals: access to the engines; None to ask them without keeping a record.

    Returns:
        The report of all stages, without identity and hash: see `stages.report.finish`.

    Raises:
        ConfigError: the settings need an embedder and there is none.
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
    """The identities and thresholds of an examination's engines, without the engines."""

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
    """The record of an examination: answer, context, and the engines' results and identities.

    Attributes:
        judged: the judge's calls and replies; None if no judge was configured.
    """

    dossier: Dossier
    entries: tuple[SignalEntry, ...]
    engines: Engines
    judged: JudgeRun | None = None


def again(
    examination: Examination, settings: DpeSettings, signals: Signals | None = None
) -> Report:
    """Repeat an examination with the recorded results of the engines.

    Spec: CRP-SPEC-005 §15.4
    """
    return examine(
        examination.dossier,
        settings=settings,
        signals=signals or RecordedSignals(examination.entries),
        **stand_ins(examination.engines),
    )


def stand_ins(engines: Engines) -> Any:
    """Arguments of `examine` with the engines' identities, which fail when they are called."""
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
    """A stand-in with an engine's identity and attributes, whose methods raise an error."""

    def absent(*_: object, **__: object) -> NoReturn:
        raise EngineError("an engine was called in a replay without engines", engine=identity)

    return SimpleNamespace(identity=identity, **known, **dict.fromkeys(questions, absent))

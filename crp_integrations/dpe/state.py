"""What the stages hand on: the dossier, what it is read with, and what was found so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.engine_signals import Live, Signals
from crp_integrations.dpe.ports import Recogniser, Verifier
from crp_integrations.dpe.records import (
    Claim,
    Classification,
    Coherence,
    Completeness,
    Finding,
    Flow,
    Omission,
    PersonalData,
    Repetition,
    StageRun,
)
from crp_integrations.dpe.risk import Risk
from crp_integrations.dpe.session_texts import SessionSentences
from crp_integrations.dpe.settings import DpeSettings, QualitySettings
from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.features import Alignment
from crp_integrations.dpe.verifier.features_verifier import Heard
from crp_integrations.guard.ports import PolicyEngine
from crp_integrations.ports import Embedder
from crp_integrations.vocabulary import Attribution, Checked, ClaimType


@dataclass(frozen=True, slots=True)
class Tools:
    """What a pipeline runs with.

    Attributes:
        embedder: None for purely lexical work.
        policy: evaluates the control catalogue; None leaves stage 12 out.
        recognisers: look for personal data beside the package's own.
        signals: the door through which all of these are asked.
    """

    embedder: Embedder | None
    verifier: Verifier
    settings: DpeSettings
    policy: PolicyEngine | None = None
    recognisers: tuple[Recogniser, ...] = ()
    signals: Signals = field(default_factory=Live)

    @property
    def quality(self) -> QualitySettings:
        """The settings of stages 6 to 9, with this embedder's thresholds (decision D14)."""
        return self.settings.quality.in_force(self.embedder.thresholds if self.embedder else {})


@dataclass(frozen=True, slots=True)
class State:
    """What is known after a stage; each stage answers with a new one.

    Attributes:
        context: the passages, indexed once.
        claims: in order of the answer.
        sentences: for each claim the answer's sentence around it and the next one.
        alignments: for each claim, None for one that is not checked.
        reading: the answer by the fitted model, None where another verifier was chosen.
        vectors: unit rows of claims embedded so far, by claim id.
        pairs_cut: claims that were not compared with every earlier one about the same thing.
        weakest: entailment, contradiction and neutral of the weakest claim.
        coherence, repetition, completeness, flow: words of stages 6 to 9.
        omissions, personal, classification: words of stages 10 to 12.
        stages: which stages ran.
        told: sentences of the answer and of earlier windows; stages 6 to 9 need it.
    """

    dossier: Dossier
    tools: Tools
    context: Context
    claims: tuple[Claim, ...] = ()
    sentences: tuple[str, ...] = ()
    alignments: tuple[Alignment | None, ...] = ()
    reading: Heard | None = None
    fidelity: float = 1.0
    pairs_cut: int = 0
    weakest: tuple[float, float, float] = (1.0, 0.0, 0.0)
    risk: Risk | None = None
    coherence: Coherence = field(default_factory=Coherence)
    repetition: Repetition = field(default_factory=Repetition)
    completeness: Completeness = field(default_factory=Completeness)
    flow: Flow = field(default_factory=Flow)
    omissions: tuple[Omission, ...] = ()
    personal: PersonalData = field(default_factory=PersonalData)
    classification: Classification = field(default_factory=Classification)
    stages: tuple[StageRun, ...] = field(default=())
    told: SessionSentences | None = None

    @property
    def session(self) -> SessionSentences:
        """What the session has said; the pipeline hands it in, so that it is read once."""
        assert self.told is not None
        return self.told

    @property
    def factual(self) -> list[Claim]:
        """The claims that scores are counted over."""
        return [claim for claim in self.claims if claim.claim_type is ClaimType.FACTUAL]

    @property
    def findings(self) -> list[Finding]:
        """All findings so far in order of the answer."""
        return [finding for claim in self.claims for finding in claim.findings]

    def count(self, attribution: Attribution) -> int:
        """Factual claims of one attribution."""
        return sum(claim.attribution is attribution for claim in self.factual)


Stage = Callable[[State], State]


def is_open(claim: Claim) -> bool:
    """Whether a claim is one that is checked: factual or procedural, and within the limits."""
    return claim.checked is Checked.CHECKED


def checked_share(state: State) -> float:
    """Characters of checked claims over characters of checkable ones, 1.0 when there are none.

    Spec: CRP-SPEC-005 §6.2 (decision D6)
    """
    sizes = {
        word: sum(c.end - c.start for c in state.claims if c.checked is word) for word in Checked
    }
    checkable = sizes[Checked.CHECKED] + sizes[Checked.NOT_CHECKED]
    return sizes[Checked.CHECKED] / checkable if checkable else 1.0


def with_findings(claims: tuple[Claim, ...], found: list[Finding]) -> tuple[Claim, ...]:
    """The claims with findings added, in order of place; one defect is one finding."""
    taken = {(f.start, f.end) for claim in claims for f in claim.findings}
    added: dict[str, list[Finding]] = {}
    for finding in found:
        if (finding.start, finding.end) in taken:
            continue
        taken.add((finding.start, finding.end))
        added.setdefault(finding.claim_id, []).append(finding)
    return tuple(
        claim.model_copy(
            update={
                "findings": tuple(
                    sorted(
                        [*claim.findings, *added[claim.claim_id]], key=lambda f: (f.start, f.end)
                    )
                )
            }
        )
        if claim.claim_id in added
        else claim
        for claim in claims
    )

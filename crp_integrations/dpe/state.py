"""What the stages hand on: the dossier, what it is read with, and what was found so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import Claim, Finding, StageRun
from crp_integrations.dpe.risk import Risk
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.features import Alignment
from crp_integrations.ports import Embedder
from crp_integrations.vocabulary import Attribution, Checked, ClaimType


@dataclass(frozen=True, slots=True)
class Tools:
    """What a pipeline runs with.

    Attributes:
        embedder: None for purely lexical work.
    """

    embedder: Embedder | None
    verifier: Verifier
    settings: DpeSettings


@dataclass(frozen=True, slots=True)
class State:
    """What is known after a stage; each stage answers with a new one.

    Attributes:
        context: the passages, indexed once.
        claims: in order of the answer.
        sentences: for each claim the answer's sentence around it and the next one.
        alignments: for each claim, None for one that is not checked.
        vectors: unit rows of claims embedded so far, by claim id.
        weakest: entailment, contradiction and neutral of the weakest claim.
        stages: which stages ran.
    """

    dossier: Dossier
    tools: Tools
    context: Context
    claims: tuple[Claim, ...] = ()
    sentences: tuple[str, ...] = ()
    alignments: tuple[Alignment | None, ...] = ()
    fidelity: float = 1.0
    weakest: tuple[float, float, float] = (1.0, 0.0, 0.0)
    risk: Risk | None = None
    stages: tuple[StageRun, ...] = field(default=())

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

"""Stages 2 to 4 of the default: what is compared word for word, and what a verifier reads.

Nothing is guessed: a claim that neither settles stays NOT_CHECKED. What the report says of
attribution, fidelity, entailment and risk follows from the statuses (`dpe/derivation.py`).

Spec: CRP-SPEC-005 §4 to §6 (decision D13)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from crp_integrations.dpe.comparison import compare_claims
from crp_integrations.dpe.judge.statuses import with_rejection
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import (
    COMPARISON,
    HIDDEN_TEXT,
    LONGEST,
    Claim,
    Finding,
    StageRun,
)
from crp_integrations.dpe.rejections import find_repeats, with_repeats
from crp_integrations.dpe.stages.entailment import first_pieces, windows, word_on
from crp_integrations.dpe.state import State
from crp_integrations.language.hidden_text import hidden_text
from crp_integrations.language.languages import differs
from crp_integrations.vocabulary import ClaimStatus, ErrorKind

NAMES: Final = ((2, "attribution"), (3, "fidelity verification"), (4, "entailment scoring"))
RISK: Final = StageRun(number=5, name="risk classification", engine="statuses@1")
# Probability from which a verifier's word counts.
DECIDED: Final = 0.5


def compare_with_evidence(state: State) -> State:
    """Give each claim the status that a comparison of words alone can give.

    Spec: CRP-SPEC-005 §5.2, §5.3
    """
    dossier = state.dossier
    claims = compare_claims(
        dossier.answer, state.claims, dossier.passages, dossier.question, numbered=dossier.numbered
    )
    language = differs(dossier.answer, "\n".join(text for _, text in dossier.passages))
    if language:
        # Its names may be ordinary words: figures alone can be looked up.
        claims = tuple(map(_without_names, claims))
    state = replace(state, claims=claims, language=language)
    repeated = find_repeats(state)
    if repeated:
        claims = tuple(map(with_rejection, with_repeats(claims, repeated)))
    return replace(state, claims=_with_hidden_text(claims, dossier.answer))


def _without_names(claim: Claim) -> Claim:
    hints = tuple(hint for hint in claim.hints if hint.kind != "name")
    return claim.model_copy(update={"hints": hints}) if hints != claim.hints else claim


def _with_hidden_text(claims: tuple[Claim, ...], answer: str) -> tuple[Claim, ...]:
    """The claims with a finding for each stretch of the answer that a reader does not see.

    A stretch belongs to the claim around it, else to the claim before it.

    Spec: CRP-SPEC-005 §5.2
    """
    hidden = hidden_text(answer)
    if not hidden or not claims:
        return claims
    findings: dict[str, list[Finding]] = {}
    for stretch in hidden:
        before = [claim for claim in claims if claim.start < stretch.end]
        claim = before[-1] if before else claims[0]
        reason = f"hidden text ({stretch.kind})" + (
            f": {stretch.decoded}" if stretch.decoded else ""
        )
        findings.setdefault(claim.claim_id, []).append(
            Finding(
                stage=3,
                kind=HIDDEN_TEXT,
                claim_id=claim.claim_id,
                start=stretch.start,
                end=stretch.end,
                reason=reason[:LONGEST],
            )
        )
    return tuple(
        claim.model_copy(
            update={"findings": (*claim.findings, *findings[claim.claim_id])} | _doubted(claim)
        )
        if claim.claim_id in findings
        else claim
        for claim in claims
    )


def _doubted(claim: Claim) -> dict[str, object]:
    """What hides text asserts something, whatever it shows."""
    if claim.status in (ClaimStatus.SUPPORTED, ClaimStatus.NOT_CHECKABLE):
        return {"status": ClaimStatus.NOT_CHECKED, "quotations": ()}
    return {}


def read_with_verifier(state: State) -> State:
    """Give each claim that a comparison leaves open the status that a verifier gives it.

    Spec: CRP-SPEC-005 §6.2
    """
    verifier = state.tools.verifier
    engine = COMPARISON if verifier is None else verifier.identity
    if verifier is not None:
        claims = tuple(
            _read(state, verifier, claim) if claim.status is ClaimStatus.NOT_CHECKED else claim
            for claim in state.claims
        )
        state = replace(state, claims=claims)
    runs = (StageRun(number=number, name=name, engine=engine) for number, name in NAMES)
    return replace(state, stages=(*state.stages, *runs, RISK))


def _read(state: State, verifier: Verifier, claim: Claim) -> Claim:
    """A claim with the status that follows from a verifier's probabilities."""
    if not state.dossier.passages or claim.end - claim.start > state.tools.settings.longest_claim:
        return claim
    texts = windows(state, verifier, claim) or first_pieces(state, verifier)
    if not texts:
        return claim
    word = word_on(state, "entailment.judgement", claim.reads_as, texts)
    status = ClaimStatus.UNSUPPORTED
    if word.entailment >= DECIDED:
        status = ClaimStatus.SUPPORTED
    elif word.contradiction >= DECIDED:
        status = ClaimStatus.CONTRADICTED
    return claim.model_copy(
        update={
            "status": status,
            "error": ErrorKind.OVERREACH if status is ClaimStatus.UNSUPPORTED else None,
            "entailment": word.entailment,
            "contradiction": word.contradiction,
            "neutral": word.neutral,
        }
    )

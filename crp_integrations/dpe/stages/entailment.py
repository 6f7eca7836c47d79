"""Stages 2 to 5 of the default, and stages 4 and 5 of `literal`.

By default each claim is compared word for word, and a verifier, if there is one, reads the others.
A claim that neither settles stays NOT_CHECKED; `dpe/derivation.py` derives all else from the
statuses. `literal` scores the probability that the context entails each claim.

Spec: CRP-SPEC-005 §4 to §7 (decision D13)
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Final

from crp_integrations.dpe.comparison import compare_claims, compare_with_each_other
from crp_integrations.dpe.engine_signals import Near, near
from crp_integrations.dpe.ports import Judgement, Verifier
from crp_integrations.dpe.records import (
    COMPARISON,
    CONTRADICTION,
    HIDDEN_TEXT,
    LONGEST,
    Claim,
    Finding,
    StageRun,
)
from crp_integrations.dpe.rejections import find_repeats, with_rejection, with_repeats
from crp_integrations.dpe.state import State, is_open, with_findings
from crp_integrations.dpe.verifier.alignment import Alignment
from crp_integrations.language.hidden_text import hidden_text
from crp_integrations.language.languages import differs
from crp_integrations.vocabulary import (
    Attribution,
    Checked,
    ClaimStatus,
    ClaimType,
    ErrorKind,
    GroundingMode,
)

NAMES: Final = ((2, "attribution"), (3, "fidelity verification"), (4, "entailment scoring"))
RISK: Final = StageRun(number=5, name="risk classification", engine="statuses@1")
# Minimum probability at which a verifier's result sets the status.
DECIDED: Final = 0.5


def compare_with_evidence(state: State) -> State:
    """Give each claim the status that the exact comparison finds.

    Spec: CRP-SPEC-005 §5.2 to §5.4
    """
    dossier = state.dossier
    claims = compare_claims(
        dossier.answer, state.claims, dossier.passages, dossier.question, numbered=dossier.numbered
    )
    claims = compare_with_each_other(dossier.answer, claims, dossier.passages, dossier.question)
    language = differs(dossier.answer, "\n".join(text for _, text in dossier.passages))
    if language:
        # In another language ordinary words may look like names, so only figures are looked up.
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
    """The claims with a finding for each stretch of the answer that is invisible to a reader.

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
    """The reset to NOT_CHECKED of a claim with hidden text, which may assert anything."""
    if claim.status in (ClaimStatus.SUPPORTED, ClaimStatus.NOT_CHECKABLE):
        return {"status": ClaimStatus.NOT_CHECKED, "quotations": ()}
    return {}


def read_with_verifier(state: State) -> State:
    """Give each claim that the exact comparison leaves open the status that a verifier finds.

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
    """The claim with the status that follows from a verifier's probabilities."""
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


NAME = "entailment scoring"
# Maximum pieces that a verifier reads for a claim that shares no word with the context.
MOST_PIECES = 16
UNSUPPORTED = Judgement(0.0, 0.0, 1.0, 0)
ENTAILED = (1.0, 0.0, 0.0)
UNCHECKED = (0.0, 0.0, 1.0)


def score_entailment(state: State) -> State:
    """Judge every claim that is checked, and record the weakest.

    Spec: CRP-SPEC-005 §6.2
    """
    verifier = verifier_of(state)
    claims = tuple(
        _judged(claim, _judge(state, verifier, place), state) if is_open(claim) else claim
        for place, claim in enumerate(state.claims)
    )
    state = replace(state, claims=claims)
    run = StageRun(number=4, name=NAME, engine=verifier.identity)
    return replace(state, weakest=_weakest(state), stages=(*state.stages, run))


def verifier_of(state: State) -> Verifier:
    """The verifier; only for pipelines whose settings require one."""
    assert state.tools.verifier is not None
    return state.tools.verifier


def windows(
    state: State, verifier: Verifier, claim: Claim, alignment: Alignment | None = None
) -> list[str]:
    """The windows of the context that a claim is judged against, best first; none is truncated.

    Each window is a sentence with its neighbours. A sentence that is too long for the verifier is
    passed completely, in pieces.
    """
    longest = max(1, verifier.passage)
    count = state.tools.settings.windows
    units = list(alignment.units) if alignment is not None else []
    units += [u for u in state.context.nearest(claim.reads_as, count) if u not in units]
    texts: list[str] = []
    for place, unit in enumerate(units):
        if place >= count and (alignment is None or unit not in alignment.units):
            break
        start, end = state.context.span_around(unit, longest)
        text = state.context.passages[unit.passage]
        texts += [text[at : min(end, at + longest)] for at in range(start, end, longest)]
    return list(dict.fromkeys(texts))


def first_pieces(state: State, verifier: Verifier) -> list[str]:
    """The first pieces of the passages, for a claim that shares no word with any passage."""
    longest = max(1, verifier.passage)
    pieces = (
        text[at : at + longest]
        for text in state.context.passages
        for at in range(0, len(text), longest)
    )
    return [piece for piece in islice(pieces, MOST_PIECES) if piece.strip()]


def word_on(state: State, at: str, claim: str, passages: list[str]) -> Judgement:
    """The verifier's scores for one claim, rounded to a millionth."""

    def asked() -> Near:
        word = verifier_of(state).judge(claim, passages)
        return [word.entailment, word.contradiction, word.neutral], [word.passage]

    (entailment, contradiction, neutral), (passage,) = near(state.tools.signals, at, asked)
    return Judgement(entailment, contradiction, neutral, passage)


def _judge(state: State, verifier: Verifier, place: int) -> Judgement:
    claim, alignment = state.claims[place], state.alignments[place]
    texts = windows(state, verifier, claim, alignment)
    if not texts:
        return UNSUPPORTED
    return word_on(state, "entailment.judgement", claim.reads_as, texts)


def _judged(claim: Claim, word: Judgement, state: State) -> Claim:
    """The claim with its three probabilities; a finding limits its entailment.

    A changed value was found by comparison, so a verifier that overlooked it must not overrule
    the finding.
    """
    settings = state.tools.settings
    entailment, contradiction, neutral = word.entailment, word.contradiction, word.neutral
    kinds = {finding.kind for finding in claim.findings if finding.kind != CONTRADICTION}
    if kinds - {"fabrication"} and entailment > settings.conflict_entailment:
        contradiction += entailment - settings.conflict_entailment
        entailment = settings.conflict_entailment
    elif "fabrication" in kinds and entailment > settings.untraced_entailment:
        neutral += entailment - settings.untraced_entailment
        entailment = settings.untraced_entailment
    return claim.model_copy(
        update={"entailment": entailment, "contradiction": contradiction, "neutral": neutral}
    )


def _weakest(state: State) -> tuple[float, float, float]:
    """The three probabilities of the claim with the least entailment.

    A factual claim that was not checked has entailment 0. Under `open` a PARAMETRIC claim is
    allowed and does not count (decision E21).
    """
    rows = []
    for claim in state.claims:
        if claim.checked is Checked.NOT_CHECKED and claim.claim_type is ClaimType.FACTUAL:
            rows.append(UNCHECKED)
        allowed = (
            claim.attribution is Attribution.PARAMETRIC
            and state.dossier.grounding is GroundingMode.OPEN
        )
        if allowed or claim.entailment is None:
            continue
        rows.append((claim.entailment, claim.contradiction or 0.0, claim.neutral or 0.0))
    return min(rows, key=lambda row: (row[0], -row[1]), default=ENTAILED)


RUN = StageRun(number=5, name="risk classification", engine="weighted-sum@1")
PARAMETRIC = "parametric"


def classify_risk(state: State) -> State:
    """Add a finding for each PARAMETRIC claim under `context-strict`; the report scores the risk.

    Spec: CRP-SPEC-005 §7.2, CRP-SPEC-003 §13.2 (decision E21)
    """
    if state.dossier.grounding is GroundingMode.STRICT:
        findings = [
            Finding(stage=5, kind=PARAMETRIC, claim_id=c.claim_id, start=c.start, end=c.end)
            for c in state.factual
            if c.attribution is Attribution.PARAMETRIC
        ]
        state = replace(state, claims=with_findings(state.claims, findings))
    return replace(state, stages=(*state.stages, RUN))

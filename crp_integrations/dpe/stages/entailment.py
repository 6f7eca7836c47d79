"""Stages 4 and 5 of `literal`: how surely the context entails each claim, and the base risk.

Spec: CRP-SPEC-005 §6, §7
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from crp_integrations.dpe.engine_signals import Near, near
from crp_integrations.dpe.ports import Judgement, Verifier
from crp_integrations.dpe.records import Claim, Finding, StageRun
from crp_integrations.dpe.state import State, is_open, with_findings
from crp_integrations.dpe.verifier.alignment import Alignment
from crp_integrations.vocabulary import Attribution, Checked, ClaimType, GroundingMode

NAME = "entailment scoring"
# Pieces that a verifier reads for a claim that shares no word with the context.
MOST_PIECES = 16
UNSUPPORTED = Judgement(0.0, 0.0, 1.0, 0)
ENTAILED = (1.0, 0.0, 0.0)
UNCHECKED = (0.0, 0.0, 1.0)


def score_entailment(state: State) -> State:
    """Judge every claim that is checked, and take the weakest.

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
    """The verifier of a pipeline that needs one; the settings make sure that there is."""
    assert state.tools.verifier is not None
    return state.tools.verifier


def windows(
    state: State, verifier: Verifier, claim: Claim, found: Alignment | None = None
) -> list[str]:
    """The windows of the context that a claim is judged against, best first; none is cut away.

    Each window is a sentence with its neighbours. A sentence longer than the verifier reads is
    given completely, in pieces.
    """
    longest = max(1, verifier.passage)
    count = state.tools.settings.windows
    units = list(found.units) if found is not None else []
    units += [u for u in state.context.nearest(claim.reads_as, count) if u not in units]
    texts: list[str] = []
    for place, unit in enumerate(units):
        if place >= count and (found is None or unit not in found.units):
            break
        start, end = state.context.span_around(unit, longest)
        text = state.context.passages[unit.passage]
        texts += [text[at : min(end, at + longest)] for at in range(start, end, longest)]
    return list(dict.fromkeys(texts))


def first_pieces(state: State, verifier: Verifier) -> list[str]:
    """Pieces of the passages in their order, for a claim that shares no word with any of them."""
    longest = max(1, verifier.passage)
    pieces = (
        text[at : at + longest]
        for text in state.context.passages
        for at in range(0, len(text), longest)
    )
    return [piece for piece in islice(pieces, MOST_PIECES) if piece.strip()]


def word_on(state: State, at: str, claim: str, passages: list[str]) -> Judgement:
    """The verifier's word on one claim, its probabilities to a millionth."""

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
    """The claim with its three probabilities, which a typed finding bounds.

    A changed value is seen by comparison and needs no probability; a verifier that overlooked
    it does not overrule it.
    """
    settings = state.tools.settings
    entailment, contradiction, neutral = word.entailment, word.contradiction, word.neutral
    kinds = {finding.kind for finding in claim.findings if finding.kind != "contradiction"}
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
    """The three probabilities of the claim that is entailed least.

    A factual claim that was not checked counts as not entailed at all. Under `open` a
    PARAMETRIC claim is allowed and does not count (decision E21).
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
    """Under `context-strict` a PARAMETRIC claim is a finding; the report weighs the four signals.

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

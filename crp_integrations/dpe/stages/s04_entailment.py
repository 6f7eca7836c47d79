"""Stage 4: how surely the context entails each claim, and so the whole answer.

The premise is never all facts joined and cut. Each claim is judged against windows of the
context that were found for it; the best window decides for the claim, and the weakest claim for
the answer (decision D6).

Spec: CRP-SPEC-005 §6
"""

from __future__ import annotations

from dataclasses import replace

from crp_integrations.dpe.ports import Judgement
from crp_integrations.dpe.records import Claim, StageRun
from crp_integrations.dpe.state import State, is_open
from crp_integrations.dpe.verifier.features import Alignment
from crp_integrations.vocabulary import Attribution, Checked, ClaimType, GroundingMode

NAME = "entailment scoring"
UNSUPPORTED = Judgement(0.0, 0.0, 1.0, 0)
ENTAILED = (1.0, 0.0, 0.0)
UNCHECKED = (0.0, 0.0, 1.0)


def score_entailment(state: State) -> State:
    """Judge every claim that is checked, and take the weakest.

    Spec: CRP-SPEC-005 §6.2
    """
    verifier = state.tools.verifier
    claims = tuple(
        _judged(claim, _judge(state, claim, found), state) if is_open(claim) else claim
        for claim, found in zip(state.claims, state.alignments, strict=True)
    )
    state = replace(state, claims=claims)
    run = StageRun(number=4, name=NAME, engine=verifier.identity)
    return replace(state, weakest=_weakest(state), stages=(*state.stages, run))


def windows(state: State, claim: Claim, found: Alignment | None) -> list[str]:
    """The windows of the context that a claim is judged against, best first; none is cut away.

    Each window is a sentence with its neighbours. A sentence longer than the verifier reads is
    given in pieces, all of them.
    """
    longest = max(1, state.tools.verifier.passage)
    count = state.tools.settings.windows
    units = list(found.units) if found is not None else []
    units += [u for u in state.context.nearest(claim.reads_as, count) if u not in units]
    given: list[str] = []
    for place, unit in enumerate(units):
        if place >= count and (found is None or unit not in found.units):
            break
        start, end = state.context.span_around(unit, longest)
        text = state.context.passages[unit.passage]
        given += [text[at : min(end, at + longest)] for at in range(start, end, longest)]
    return list(dict.fromkeys(given))


def _judge(state: State, claim: Claim, found: Alignment | None) -> Judgement:
    given = windows(state, claim, found)
    if not given:
        return UNSUPPORTED
    return state.tools.verifier.judge(claim.reads_as, given)


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

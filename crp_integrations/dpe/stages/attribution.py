"""Stages 1 and 2: segmentation into claims and, in `literal`, the attribution of each.

Spec: CRP-SPEC-005 §3, §4
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crp_integrations.dpe.engine_signals import Near, near
from crp_integrations.dpe.records import Claim, Entity, Evidence, StageRun
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.state import SessionText, State
from crp_integrations.dpe.verifier.alignment import align
from crp_integrations.dpe.verifier.values import read
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.language.claims import Segment
from crp_integrations.ports import Embedder
from crp_integrations.vocabulary import Attribution, Checked, ClaimType

RUN = StageRun(number=1, name="claim segmentation", engine="rules@1")


def segment_claims(state: State) -> State:
    """Cut the answer into claims and mark which of them can be checked.

    Spec: CRP-SPEC-005 §3.2, §3.3
    """
    answer, settings = state.dossier.answer, state.tools.settings
    # Reuse the session's object: later stages need the same claims and sentences.
    session_text = (
        state.session_sentences.answer if state.session_sentences else SessionText(answer)
    )
    segments, spans = session_text.segments, session_text.every
    claims = []
    sentences = []
    checkable = 0
    for number, piece in enumerate(segments, 1):
        checkable += piece.claim_type in (ClaimType.FACTUAL, ClaimType.PROCEDURAL)
        claims.append(_claim(number, piece, answer, checkable, settings))
        # The values of a structured answer have sentence numbers of their own: stay in range.
        here = min(piece.sentence_index, len(spans) - 1)
        last = spans[min(here + 1, len(spans) - 1)]
        sentences.append(answer[spans[here].start : last.end])
    return replace(
        state,
        claims=tuple(claims),
        sentences=tuple(sentences),
        stages=(*state.stages, RUN),
    )


def _claim(
    number: int, piece: Segment, answer: str, checkable: int, settings: DpeSettings
) -> Claim:
    own = answer[piece.start : piece.end]
    return Claim(
        claim_id=f"c{number}",
        text=own,
        start=piece.start,
        end=piece.end,
        reads_as=piece.read(answer),
        sentence_index=piece.sentence_index,
        claim_type=piece.claim_type,
        specificity=piece.specificity,
        entities=tuple(
            Entity(
                text=value.text,
                kind=value.kind,
                start=piece.start + value.start,
                end=piece.start + value.end,
            )
            for value in read(own).values
        ),
        checked=_checked(piece, checkable, settings),
    )


def _checked(piece: Segment, checkable: int, settings: DpeSettings) -> Checked:
    if piece.claim_type in (ClaimType.OPINION, ClaimType.META):
        return Checked.NOT_CHECKABLE
    if checkable > settings.most_claims or piece.end - piece.start > settings.longest_claim:
        return Checked.NOT_CHECKED
    return Checked.CHECKED


NAME = "attribution"
Scored = tuple[float, tuple[Evidence, ...]]


def attribute(state: State) -> State:
    """Give every factual claim one attribution, its score and its evidence.

    Spec: CRP-SPEC-005 §4.2, §4.3
    """
    settings, embedder = state.tools.settings, state.tools.embedder
    if embedder is None:
        raise ConfigError(
            "dpe.decides 'composite' attributes by cosine (§4.3): it needs an embedder"
        )
    vectors = state.dossier.vectors
    if vectors is not None and len(vectors) and vectors.shape[1:] != (embedder.dimensions,):
        raise EngineError(
            f"the passages' vectors have shape {vectors.shape}, wanted (n, {embedder.dimensions})",
            engine=embedder.identity,
        )
    alignments = tuple(
        None
        if claim.checked is Checked.NOT_CHECKED
        else align(
            claim.reads_as,
            state.context,
            sentence=sentence,
            known=(state.dossier.question,),
            common=settings.common_knowledge,
        )
        for claim, sentence in zip(state.claims, state.sentences, strict=True)
    )
    scored = _by_cosine(state, embedder)
    claims = tuple(
        _attributed(claim, *scored.get(claim.claim_id, (0.0, ())), settings)
        for claim in state.claims
    )
    run = StageRun(number=2, name=NAME, engine=f"cosine@1 with {embedder.identity}")
    return replace(state, claims=claims, alignments=alignments, stages=(*state.stages, run))


def classify(score: float, specificity: float, settings: DpeSettings) -> Attribution:
    """The attribution for a score; lower bounds are included.

    Spec: CRP-SPEC-005 §4.3 (decision D2)
    """
    if score >= settings.grounded:
        return Attribution.CONTEXT_GROUNDED
    if score >= settings.mixed:
        return Attribution.MIXED
    if specificity < settings.specific:
        return Attribution.PARAMETRIC
    return Attribution.UNVERIFIABLE


def _attributed(
    claim: Claim, score: float, evidence: tuple[Evidence, ...], settings: DpeSettings
) -> Claim:
    matched = score >= settings.mixed
    update: dict[str, object] = {"similarity": score, "evidence": evidence if matched else ()}
    if claim.claim_type is ClaimType.FACTUAL:
        update["attribution"] = classify(score, claim.specificity, settings)
    elif claim.claim_type is ClaimType.PROCEDURAL and claim.checked is not Checked.NOT_CHECKED:
        # Instructions are checked only against an instruction of the context (§3.3).
        update["checked"] = Checked.CHECKED if matched else Checked.NOT_CHECKABLE
    else:
        return claim
    return claim.model_copy(update=update)


def _by_cosine(state: State, embedder: Embedder) -> dict[str, Scored]:
    """The best cosine of each claim with every whole fact, by the claim's id."""
    passages = state.dossier.passages
    wanted = [
        claim
        for claim in state.claims
        if claim.claim_type is not ClaimType.OPINION and claim.checked is not Checked.NOT_CHECKED
    ]
    if not wanted or not passages:
        return {}

    def nearest() -> Near:
        facts = state.dossier.vectors
        if facts is None:
            facts = embedder.embed_passages([text for _, text in passages])
        rows = embedder.embed_passages([claim.reads_as for claim in wanted])
        similarities = [np.einsum("ij,j->i", facts, row, dtype=np.float32) for row in rows]
        places = [int(np.argmax(values)) for values in similarities]
        return [float(v[place]) for v, place in zip(similarities, places, strict=True)], places

    best: dict[str, Scored] = {}
    cosines, places = near(state.tools.signals, "attribution.cosines", nearest)
    for claim, value, place in zip(wanted, cosines, places, strict=True):
        # Clamp, and round off the last float bits.
        score = min(1.0, max(0.0, round(value, 6)))
        fact_id, text = passages[place]
        whole = Evidence(fact_id=fact_id, start=0, end=len(text), score=score, engine="cosine@1")
        best[claim.claim_id] = (score, (whole,))
    return best

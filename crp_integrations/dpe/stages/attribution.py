"""Stages 1 and 2: the answer cut into claims, and, in `literal`, what each rests on.

Spec: CRP-SPEC-005 §3, §4
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crp_integrations.dpe.engine_signals import Near, near
from crp_integrations.dpe.records import Claim, Entity, Evidence, StageRun
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.state import SessionText, State
from crp_integrations.dpe.verifier.alignment import Alignment, align
from crp_integrations.dpe.verifier.values import read
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.language.claims import Segment
from crp_integrations.ports import Embedder
from crp_integrations.vocabulary import Attribution, Checked, ClaimType

RUN = StageRun(number=1, name="claim segmentation", engine="rules@1")


def segment_claims(state: State) -> State:
    """Cut the answer into claims and say which of them can be checked.

    Spec: CRP-SPEC-005 §3.2, §3.3
    """
    answer, settings = state.dossier.answer, state.tools.settings
    # Later stages read the answer's claims and sentences again.
    said = state.told.answer if state.told is not None else SessionText(answer)
    segments, spans = said.segments, said.every
    claims = []
    sentences = []
    checkable = 0
    for number, piece in enumerate(segments, 1):
        checkable += piece.claim_type in (ClaimType.FACTUAL, ClaimType.PROCEDURAL)
        claims.append(_claim(number, piece, answer, checkable, settings))
        # The leaves of a structured answer are counted by themselves.
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
    alignments = _alignments(state)
    settings, embedder = state.tools.settings, state.tools.embedder
    _check_vectors(state)
    if embedder is None:
        raise ConfigError(
            "dpe.decides 'composite' attributes by cosine (§4.3): it needs an embedder"
        )
    scored = _by_cosine(state, embedder)
    claims = tuple(
        _attributed(claim, found, score, evidence, settings)
        for claim, found, (score, evidence) in zip(state.claims, alignments, scored, strict=True)
    )
    run = StageRun(number=2, name=NAME, engine=f"cosine@1 with {embedder.identity}")
    return replace(state, claims=claims, alignments=alignments, stages=(*state.stages, run))


def classify(score: float, specificity: float, settings: DpeSettings) -> Attribution:
    """The attribution that a score means; lower bounds are included.

    Spec: CRP-SPEC-005 §4.3 (decision D2)
    """
    if score >= settings.grounded:
        return Attribution.CONTEXT_GROUNDED
    if score >= settings.mixed:
        return Attribution.MIXED
    if specificity < settings.specific:
        return Attribution.PARAMETRIC
    return Attribution.UNVERIFIABLE


def _alignments(state: State) -> tuple[Alignment | None, ...]:
    question = state.dossier.question
    common = state.tools.settings.common_knowledge
    return tuple(
        None
        if claim.checked is Checked.NOT_CHECKED
        else align(
            claim.reads_as, state.context, sentence=sentence, known=(question,), common=common
        )
        for claim, sentence in zip(state.claims, state.sentences, strict=True)
    )


def _check_vectors(state: State) -> None:
    vectors, embedder = state.dossier.vectors, state.tools.embedder
    if vectors is None or embedder is None or not len(vectors):
        return
    if vectors.ndim != 2 or vectors.shape[1] != embedder.dimensions:
        raise EngineError(
            f"the passages' vectors have shape {vectors.shape}, wanted (n, {embedder.dimensions})",
            engine=embedder.identity,
        )


def _attributed(
    claim: Claim,
    found: Alignment | None,
    score: float,
    evidence: tuple[Evidence, ...],
    settings: DpeSettings,
) -> Claim:
    if claim.claim_type is ClaimType.PROCEDURAL and found is not None:
        # Instructions are checked only against an instruction of the context (§3.3).
        matched = score >= settings.mixed
        return claim.model_copy(
            update={
                "checked": Checked.CHECKED if matched else Checked.NOT_CHECKABLE,
                "evidence": evidence if matched else (),
                "similarity": score,
            }
        )
    if claim.claim_type is not ClaimType.FACTUAL:
        return claim
    attribution = classify(score, claim.specificity, settings)
    rests = attribution in (Attribution.CONTEXT_GROUNDED, Attribution.MIXED)
    return claim.model_copy(
        update={
            "attribution": attribution,
            "similarity": score,
            "evidence": evidence if rests else (),
        }
    )


def _by_cosine(state: State, embedder: Embedder) -> list[Scored]:
    """The best cosine of each claim with every whole fact."""
    passages = state.dossier.passages
    wanted = [
        claim
        for claim in state.claims
        if claim.claim_type is not ClaimType.OPINION and claim.checked is not Checked.NOT_CHECKED
    ]
    if not wanted or not passages:
        return [(0.0, ())] * len(state.claims)

    def nearest() -> Near:
        facts = state.dossier.vectors
        if facts is None:
            facts = embedder.embed_passages([text for _, text in passages])
        rows = embedder.embed_passages([claim.reads_as for claim in wanted])
        found = [np.einsum("ij,j->i", facts, row, dtype=np.float32) for row in rows]
        places = [int(np.argmax(values)) for values in found]
        return [float(v[place]) for v, place in zip(found, places, strict=True)], places

    best = {}
    cosines, places = near(state.tools.signals, "attribution.cosines", nearest)
    for claim, value, place in zip(wanted, cosines, places, strict=True):
        score = _unit(value)
        fact_id, text = passages[place]
        best[claim.claim_id] = (
            score,
            (Evidence(fact_id=fact_id, start=0, end=len(text), score=score, engine="cosine@1"),),
        )
    return [best.get(claim.claim_id, (0.0, ())) for claim in state.claims]


def _unit(value: float) -> float:
    """A cosine as a score: clamped to [0, 1], the last float bits rounded off."""
    return min(1.0, max(0.0, round(value, 6)))

"""Stage 1: the answer cut into claims.

Spec: CRP-SPEC-005 §3
"""

from __future__ import annotations

from dataclasses import replace

from crp_integrations.dpe.records import Claim, Entity, StageRun
from crp_integrations.dpe.said import Said
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.state import State
from crp_integrations.dpe.verifier.readings import read
from crp_integrations.language.claims import Segment
from crp_integrations.vocabulary import Checked, ClaimType

RUN = StageRun(number=1, name="claim segmentation", engine="rules@1")


def segment_claims(state: State) -> State:
    """Cut the answer into claims and say which of them can be checked.

    Spec: CRP-SPEC-005 §3.2, §3.3
    """
    answer, settings = state.dossier.answer, state.tools.settings
    # Later stages read the answer's claims and sentences again.
    said = state.told.answer if state.told is not None else Said(answer)
    segments, spans = said.segments, said.every
    claims = []
    sentences = []
    checkable = 0
    for number, piece in enumerate(segments, 1):
        checkable += piece.claim_type in (ClaimType.FACTUAL, ClaimType.PROCEDURAL)
        claims.append(_claim(number, piece, answer, checkable, settings))
        here = piece.sentence_index
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

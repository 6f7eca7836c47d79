"""Stages 1 and 2: the answer cut into claims, and, in `literal`, what each rests on.

Spec: CRP-SPEC-005 §3, §4
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from crp_integrations.dpe.engine_signals import Near, near
from crp_integrations.dpe.records import Claim, Entity, Evidence, StageRun
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.state import SessionText, State
from crp_integrations.dpe.verifier.alignment import Alignment, align
from crp_integrations.dpe.verifier.alignment_verifier import IDENTITY, curve
from crp_integrations.dpe.verifier.values import read
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.language.claims import Segment
from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows
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


NAME = "attribution"
Scored = tuple[float, tuple[Evidence, ...]]
# Characters of a sentence with its neighbours that is embedded as one window.
WINDOW = 600
LEXICAL = "lexical, no embedder"
# In the place of a passage and two offsets.
NOWHERE = (-1, 0, 0)


def attribute(state: State) -> State:
    """Give every factual claim one attribution, its score and its evidence.

    Spec: CRP-SPEC-005 §4.2, §4.3
    """
    alignments = _alignments(state)
    settings, embedder = state.tools.settings, state.tools.embedder
    _check_vectors(state)
    if settings.rule == "cosine":
        if embedder is None:
            raise ConfigError("the attribution rule 'cosine' needs an embedder; there is none")
        scored = _by_cosine(state, embedder)
        engine = f"cosine@1 with {embedder.identity}"
    else:
        scored = _by_alignment(state, alignments, embedder)
        engine = f"{IDENTITY} with {embedder.identity if embedder else LEXICAL}"
    claims = tuple(
        _attributed(claim, found, score, evidence, settings)
        for claim, found, (score, evidence) in zip(state.claims, alignments, scored, strict=True)
    )
    run = StageRun(number=2, name=NAME, engine=engine)
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


def calibrated(lexical: float, settings: DpeSettings) -> float:
    """Lexical alignment on the scale of the attribution thresholds, [0, 1]."""
    return curve(
        lexical,
        (
            (0.0, 0.0),
            (settings.lexical_mixed, settings.mixed),
            (settings.lexical_grounded, settings.grounded),
            (1.0, 1.0),
        ),
    )


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
    if (
        settings.rule != "cosine"
        and attribution is Attribution.CONTEXT_GROUNDED
        and found is not None
        and found.untraced
    ):
        attribution = Attribution.MIXED
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
    wanted = [claim for claim in state.claims if claim.claim_type is not ClaimType.OPINION]
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


def _by_alignment(
    state: State, alignments: Sequence[Alignment | None], embedder: Embedder | None
) -> list[Scored]:
    """The better of lexical alignment and embedding similarity."""
    settings = state.tools.settings
    scored: list[Scored] = []
    for found in alignments:
        score = calibrated(found.lexical, settings) if found is not None else 0.0
        scored.append((score, _units(state, found, score) if found is not None else ()))
    # What the words settle needs no vector.
    open_ = [
        place
        for place, (claim, (score, _)) in enumerate(zip(state.claims, scored, strict=True))
        if score < settings.grounded
        and claim.claim_type in (ClaimType.FACTUAL, ClaimType.PROCEDURAL)
        and claim.checked is Checked.CHECKED
    ]
    if embedder is not None and open_ and state.dossier.passages:
        for place, other in zip(open_, _similar(state, open_, embedder), strict=True):
            if other[0] > scored[place][0]:
                scored[place] = other
    return scored


def _units(state: State, found: Alignment, score: float) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            fact_id=state.dossier.passages[unit.passage][0],
            start=unit.start,
            end=unit.end,
            score=score,
            engine=IDENTITY,
        )
        for unit in found.units[:2]
    )


def _similar(state: State, places: Sequence[int], embedder: Embedder) -> list[Scored]:
    """Cosine of claims with their nearest windows and, where given, with whole facts."""
    context, count = state.context, state.tools.settings.embedded_windows
    claims = [state.claims[place] for place in places]
    spans = [
        [
            (unit.passage, *context.span_around(unit, WINDOW))
            for unit in context.nearest(claim.reads_as, count)
        ]
        for claim in claims
    ]
    unique = sorted({span for found in spans for span in found})

    def nearest() -> Near:
        rows = embedder.embed_passages([claim.reads_as for claim in claims])
        windows: FloatRows = embedder.embed_passages(
            [context.passages[passage][start:end] for passage, start, end in unique]
        )
        number = {span: place for place, span in enumerate(unique)}
        values: list[float] = []
        where: list[int] = []
        for row, found in zip(rows, spans, strict=True):
            options = [(float(windows[number[span]] @ row), span) for span in found]
            if state.dossier.vectors is not None and len(state.dossier.vectors):
                whole = np.einsum("ij,j->i", state.dossier.vectors, row, dtype=np.float32)
                place = int(np.argmax(whole))
                options.append((float(whole[place]), (place, 0, len(context.passages[place]))))
            value, span = max(
                options, key=lambda o: (o[0], -o[1][2] + o[1][1]), default=(0.0, NOWHERE)
            )
            values.append(value)
            where += span
        return values, where

    scored: list[Scored] = []
    cosines, where = near(state.tools.signals, "attribution.windows", nearest)
    for at, value in enumerate(cosines):
        passage, start, end = where[3 * at : 3 * at + 3]
        if passage < 0:
            scored.append((0.0, ()))
            continue
        score = _unit(value)
        fact_id = state.dossier.passages[passage][0]
        scored.append(
            (
                score,
                (
                    Evidence(
                        fact_id=fact_id,
                        start=start,
                        end=end,
                        score=score,
                        engine=embedder.identity,
                    ),
                ),
            )
        )
    return scored


def _unit(value: float) -> float:
    """A cosine as a score: clamped to [0, 1], the last float bits rounded off."""
    return min(1.0, max(0.0, round(value, 6)))

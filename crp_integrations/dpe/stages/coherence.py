"""Stages 6 and 7: contradictions with the session's earlier windows, and repetition of them.

Spec: CRP-SPEC-005 §8, §9
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from crp_integrations.dpe.comparison import compare_claims
from crp_integrations.dpe.records import COMPARISON, Claim, StageRun
from crp_integrations.dpe.report_parts import Coherence, CrossContradiction, Repetition
from crp_integrations.dpe.settings import REPEATED, QualitySettings
from crp_integrations.dpe.stages.entailment import verifier_of, word_on
from crp_integrations.dpe.stages.fidelity import is_listing
from crp_integrations.dpe.state import SessionSentences, State
from crp_integrations.dpe.verifier.opposition import (
    OPPOSED,
    OppositionKind,
    StatementIndex,
    compare,
)
from crp_integrations.dpe.verifier.values import read
from crp_integrations.language.negation import differ
from crp_integrations.language.text import plain
from crp_integrations.language.words import words
from crp_integrations.vocabulary import (
    Checked,
    ClaimStatus,
    ClaimType,
    ErrorKind,
    RepetitionLevel,
    Severity,
)

COHERENCE: Final = "cross-window coherence"
NO_COHERENCE: Final = StageRun(number=6, name=COHERENCE, engine="no earlier window")
SEVERITIES: Final = {
    OppositionKind.NUMERIC: Severity.CRITICAL,
    OppositionKind.LOGICAL: Severity.HIGH,
    OppositionKind.TEMPORAL: Severity.HIGH,
    OppositionKind.STANCE: Severity.MEDIUM,
    OppositionKind.MINOR: Severity.LOW,
}


@dataclass(frozen=True, slots=True)
class PriorClaim:
    """A claim of an earlier window, with its offsets in that window's text."""

    window_id: str
    text: str
    start: int
    end: int
    reads_as: str = ""


def check_coherence(state: State) -> State:
    """Compare the answer with earlier windows of the session.

    META claims are about the answer itself ("this section covers three of them"). They have no
    attribution, but are compared here (§3.3).

    Spec: CRP-SPEC-005 §8.2 (decision D15)
    """
    if not state.dossier.prior:
        return replace(state, stages=(*state.stages, NO_COHERENCE))
    if not state.session.earlier:
        return state
    exact = state.tools.settings.decides == "claims"
    coherence, engine = _compared_exactly(state) if exact else _compared_in_pairs(state)
    run = StageRun(number=6, name=COHERENCE, engine=engine)
    return replace(state, coherence=coherence, stages=(*state.stages, run))


def _contradiction(
    claim: Claim, prior: PriorClaim, kind: OppositionKind, probability: float, engine: str
) -> CrossContradiction:
    return CrossContradiction(
        claim_id=claim.claim_id,
        claim=claim.text,
        start=claim.start,
        end=claim.end,
        prior_claim=prior.text,
        prior_start=prior.start,
        prior_end=prior.end,
        prior_window_id=prior.window_id,
        kind=kind.value,
        severity=SEVERITIES[kind],
        probability=probability,
        engine=engine,
    )


# The kind of contradiction for each kind of error of the exact comparison (§8.2).
KINDS: Final = {
    ErrorKind.NUMBER: OppositionKind.NUMERIC,
    ErrorKind.UNIT: OppositionKind.NUMERIC,
    ErrorKind.DATE: OppositionKind.TEMPORAL,
    ErrorKind.NEGATION: OppositionKind.LOGICAL,
}
_UNREAD: Final = {
    "status": ClaimStatus.NOT_CHECKED,
    "error": None,
    "wrong": None,
    "quotations": (),
    "findings": (),
    "hints": (),
}
_SAID: Final = (ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED)


def _compared_exactly(state: State) -> tuple[Coherence, str]:
    """The contradictions that the exact comparison finds.

    Earlier answers are compared like passages: a claim that repeats a clause with exactly one
    value changed, or with a negation, contradicts it.
    """
    compared = compare_claims(
        state.dossier.answer,
        [claim.model_copy(update=_UNREAD) for claim in state.claims],
        [(window.window_id, window.text) for window in state.dossier.prior if window.text.strip()],
        state.dossier.question,
        numbered=False,
    )
    contradictions = []
    for claim in compared:
        kind = KINDS.get(claim.error) if claim.error else None
        if claim.status is not ClaimStatus.CONTRADICTED or kind is None or not claim.quotations:
            continue
        quotation = claim.quotations[0]
        prior = PriorClaim(quotation.fact_id, quotation.text, quotation.start, quotation.end)
        sure = state.tools.settings.quality.opposed
        contradictions.append(_contradiction(claim, prior, kind, sure, COMPARISON))
    coherence = Coherence(
        contradictions=tuple(contradictions),
        compared=sum(claim.status in _SAID for claim in compared),
        contradicted=len(contradictions),
    )
    return coherence, COMPARISON


def _compared_in_pairs(state: State) -> tuple[Coherence, str]:
    """The contradictions between FACTUAL and META claims and earlier ones that share words."""
    settings = state.tools.settings
    every = settings.pairs == "all"
    earlier = prior_claims(state)
    index = StatementIndex(len(earlier))
    for prior in earlier:
        index.add(read(prior.reads_as))
    contradictions: list[CrossContradiction] = []
    compared = unread = 0
    for claim in state.claims:
        if claim.claim_type not in (ClaimType.FACTUAL, ClaimType.META):
            continue
        if claim.checked is Checked.NOT_CHECKED or is_listing(claim, settings):
            unread += 1
            continue
        places = index.near(read(claim.reads_as), settings.quality.related)
        most = None if every else settings.quality.near_claims
        near = [(likeness, earlier[at]) for likeness, at in places[:most]]
        compared += bool(near)
        worst = _worst(claim, near, state)
        if worst is not None:
            contradictions.append(worst)
    coherence = Coherence(
        contradictions=tuple(contradictions),
        compared=compared,
        contradicted=len(contradictions),
        unread=unread,
    )
    pairs = "all sharing pairs" if every else "nearest pairs"
    return coherence, f"{OPPOSED}, {verifier_of(state).identity}, {pairs}"


def prior_claims(state: State) -> list[PriorClaim]:
    """The FACTUAL and META claims of earlier windows, or of their summaries.

    Spec: CRP-SPEC-005 §8.2
    """
    settings = state.tools.settings
    claims = []
    for window, session_text in zip(state.dossier.prior, state.session.prior, strict=True):
        for piece in session_text.segments:
            if piece.claim_type not in (ClaimType.FACTUAL, ClaimType.META):
                continue
            if piece.end - piece.start > settings.longest_claim:
                continue
            reads_as = piece.read(session_text.text)
            if len(read(reads_as).values) <= settings.most_pair_values:
                own = session_text.text[piece.start : piece.end]
                claims.append(PriorClaim(window.window_id, own, piece.start, piece.end, reads_as))
    return claims


def _worst(
    claim: Claim, near: Sequence[tuple[float, PriorClaim]], state: State
) -> CrossContradiction | None:
    """The gravest contradiction of a claim; on a tie, with the most similar earlier claim."""
    settings = state.tools.settings.quality
    own = read(claim.reads_as)
    contradictions: list[CrossContradiction] = []
    reads = settings.read_pairs if state.tools.settings.pairs == "share" else len(near)
    for likeness, prior in near:
        other = read(prior.reads_as)
        seen = compare(own, other, settings.minor_difference, alike=likeness >= settings.alike)
        kind, engine = seen.kind, OPPOSED
        probability = (
            settings.opposed_slightly if kind is OppositionKind.MINOR else settings.opposed
        )
        if kind is None and not seen.apart and reads > 0 and own.text != other.text:
            reads -= 1
            word = word_on(state, "coherence.judgement", claim.reads_as, [prior.reads_as])
            kind, probability = OppositionKind.LOGICAL, round(word.contradiction, 6)
            engine = verifier_of(state).identity
        if kind is not None and probability > settings.contradiction_probability:
            contradictions.append(_contradiction(claim, prior, kind, probability, engine))
    ranks = list(Severity)
    return max(
        contradictions, key=lambda contradiction: ranks.index(contradiction.severity), default=None
    )


REPETITION: Final = "repetition detection"
NO_REPETITION: Final = StageRun(number=7, name=REPETITION, engine="no earlier window")
GRAM: Final = 4
# Maximum number of earlier sentences that a sentence is compared with: those sharing most words.
NEAR: Final = 8
# Maximum number of sentences looked up for a stem; a more frequent stem says little.
MOST_REPETITIONS: Final = 400
LEVELS: Final = tuple(RepetitionLevel)


def detect_repetition(state: State) -> State:
    """Compare the answer's 4-grams and sentences with those of all earlier windows.

    Spec: CRP-SPEC-005 §9.2 (decision D7)
    """
    if not state.dossier.prior:
        return replace(state, stages=(*state.stages, NO_REPETITION))
    if not state.session.earlier:
        return state
    session, embedder = state.session, state.tools.embedder
    settings = state.tools.quality
    overlap = gram_overlap(
        state.dossier.answer, [session_text.text for session_text in session.prior]
    )
    spans = session.answer.spans
    again = repeated(session, settings, embedded=embedder is not None)
    semantic = len(again) / len(spans) if spans else 0.0
    repetition = Repetition(
        level=level(overlap, semantic, settings),
        overlap=round(overlap, 6),
        semantic=round(semantic, 6),
        sentences=tuple((spans[at].start, spans[at].end) for at in again),
    )
    engine = f"4-grams@1, {_engine(settings, embedder.identity if embedder else None)}"
    run = StageRun(number=7, name=REPETITION, engine=engine)
    return replace(state, repetition=repetition, stages=(*state.stages, run))


def gram_overlap(answer: str, prior: Sequence[str]) -> float:
    """Share of the answer's 4-grams of words that occur in an earlier text, [0, 1].

    Spec: CRP-SPEC-005 §9.2
    """
    own = _grams(answer)
    if not own:
        return 0.0
    there = {gram for text in prior for gram in _grams(text)}
    return sum(gram in there for gram in own) / len(own)


def _grams(text: str) -> list[tuple[str, ...]]:
    lower = [word.lower for word in words(text)]
    return [tuple(lower[at : at + GRAM]) for at in range(len(lower) - GRAM + 1)]


def level(overlap: float, semantic: float, settings: QualitySettings) -> RepetitionLevel:
    """The worse of the two measures' levels; lower bounds are included.

    Spec: CRP-SPEC-005 §9.2 (decisions D7, D21)
    """
    by_grams = _band(
        overlap, (settings.minor_overlap, settings.significant_overlap, settings.severe_overlap)
    )
    by_sentences = _band(
        semantic, (settings.minor_repeats, settings.significant_repeats, settings.severe_repeats)
    )
    return LEVELS[max(by_grams, by_sentences)]


def _band(value: float, bounds: Sequence[float]) -> int:
    return sum(value >= bound for bound in bounds)


def repeated(session: SessionSentences, settings: QualitySettings, *, embedded: bool) -> list[int]:
    """Positions of the answer's sentences that repeat an earlier window.

    Spec: CRP-SPEC-005 §9.2
    """
    own = session.answer.sentences
    if not own or not session.earlier:
        return []
    written = {_row(sentence) for sentence in session.earlier}
    positions = {at for at, sentence in enumerate(own) if _row(sentence) in written}
    open_ = [at for at in range(len(own)) if at not in positions]
    threshold = REPEATED if settings.repeated is None else settings.repeated
    if embedded and settings.near_words == 0.0:
        near = session.nearest("repetition.nearest", [own[at] for at in open_], session.earlier)
        for at, cosine, place in zip(open_, near.cosine, near.place, strict=True):
            if cosine > threshold and _counts(own[at], session.earlier[place], settings):
                positions.add(at)
        return sorted(positions)
    least = settings.near_words if embedded else settings.repeated_words
    pairs = _alike(session, open_, least)
    if embedded and pairs:
        left = [own[at] for at, _ in pairs]
        right = [session.earlier[place] for _, place in pairs]
        values = session.cosines("repetition.pairs", left, right)
        pairs = [pair for pair, value in zip(pairs, values, strict=True) if value > threshold]
    positions |= {at for at, place in pairs if _counts(own[at], session.earlier[place], settings)}
    return sorted(positions)


def _row(sentence: str) -> str:
    return " ".join(word.lower for word in words(plain(sentence)))


def _counts(sentence: str, earlier: str, settings: QualitySettings) -> bool:
    """Whether a near-identical sentence repeats; a changed figure or negation is new content."""
    return settings.changed_repeats or not differ(sentence, earlier)


def _alike(session: SessionSentences, open_: Sequence[int], least: float) -> list[tuple[int, int]]:
    """Pairs of sentences whose Dice coefficient over content stems is at least `least`."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, stems in enumerate(session.earlier_stems):
        for stem in stems:
            places[stem].append(place)
    pairs = []
    for at in open_:
        own = session.answer.stems[at]
        shared: dict[int, int] = defaultdict(int)
        for stem in own:
            for place in places.get(stem, ())[-MOST_REPETITIONS:]:
                shared[place] += 1
        scored = [
            (2 * number / (len(own) + len(session.earlier_stems[place])), place)
            for place, number in shared.items()
        ]
        scored = sorted((row for row in scored if row[0] >= least), key=lambda r: (-r[0], r[1]))
        pairs += [(at, place) for _, place in scored[:NEAR]]
    return pairs


def _engine(settings: QualitySettings, embedder: str | None) -> str:
    if embedder is None:
        return "common words, no embedder"
    every = "all pairs" if settings.near_words == 0.0 else "pairs that share words"
    return f"cosine of sentences in {every} with {embedder}"

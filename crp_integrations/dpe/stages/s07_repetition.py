"""Stage 7: how much of the answer earlier windows of the session have said.

Spec: CRP-SPEC-005 §9
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from crp_integrations.dpe.quality import Repetition
from crp_integrations.dpe.records import StageRun
from crp_integrations.dpe.said import Session
from crp_integrations.dpe.settings_quality import REPEATED, QualitySettings
from crp_integrations.dpe.state import State
from crp_integrations.language.differences import differ
from crp_integrations.language.text import plain
from crp_integrations.language.words import words
from crp_integrations.vocabulary import RepetitionLevel

NAME: Final = "repetition detection"
NOTHING: Final = StageRun(number=7, name=NAME, engine="no earlier window")
GRAM: Final = 4
# Earlier sentences that one sentence is compared with, those that share most words.
NEAR: Final = 8
# Places of a stem that are looked at; what stands in more sentences tells none of them apart.
MOST_PLACES: Final = 400
LEVELS: Final = tuple(RepetitionLevel)


def detect_repetition(state: State) -> State:
    """Compare the answer's 4-grams and sentences with those of all earlier windows.

    Spec: CRP-SPEC-005 §9.2 (decision D7)
    """
    if not state.dossier.prior:
        return replace(state, stages=(*state.stages, NOTHING))
    if not state.session.earlier:
        return state
    session, embedder = state.session, state.tools.embedder
    settings = state.tools.quality
    overlap = gram_overlap(state.dossier.answer, [said.text for said in session.prior])
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
    run = StageRun(number=7, name=NAME, engine=engine)
    return replace(state, repetition=repetition, stages=(*state.stages, run))


def gram_overlap(answer: str, prior: Sequence[str]) -> float:
    """Share of the answer's 4-grams of words that some earlier text has, [0, 1].

    Spec: CRP-SPEC-005 §9.2

    >>> gram_overlap("The law sets out four levels of risk.", ["Four levels of risk are named."])
    0.2
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
    """The worse of the levels that the two measures stand for; lower bounds are included.

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


def repeated(session: Session, settings: QualitySettings, *, embedded: bool) -> list[int]:
    """Positions of the answer's sentences that an earlier window has said.

    Spec: CRP-SPEC-005 §9.2

    Args:
        embedded: whether the session has an embedder; without one common words decide.
    """
    own = session.answer.sentences
    if not own or not session.earlier:
        return []
    written = {_row(sentence) for sentence in session.earlier}
    found = {at for at, sentence in enumerate(own) if _row(sentence) in written}
    open_ = [at for at in range(len(own)) if at not in found]
    threshold = REPEATED if settings.repeated is None else settings.repeated
    if embedded and settings.near_words == 0.0:
        near = session.nearest("repetition.nearest", [own[at] for at in open_], session.earlier)
        for at, cosine, place in zip(open_, near.cosine, near.place, strict=True):
            if cosine > threshold and _counts(own[at], session.earlier[place], settings):
                found.add(at)
        return sorted(found)
    least = settings.near_words if embedded else settings.repeated_words
    pairs = _alike(session, open_, least)
    if embedded and pairs:
        left = [own[at] for at, _ in pairs]
        right = [session.earlier[place] for _, place in pairs]
        values = session.cosines("repetition.pairs", left, right)
        pairs = [pair for pair, value in zip(pairs, values, strict=True) if value > threshold]
    found |= {at for at, place in pairs if _counts(own[at], session.earlier[place], settings)}
    return sorted(found)


def _row(sentence: str) -> str:
    return " ".join(word.lower for word in words(plain(sentence)))


def _counts(sentence: str, earlier: str, settings: QualitySettings) -> bool:
    """Whether a near-identical sentence repeats: another figure in it is news, or a conflict."""
    return settings.changed_repeats or not differ(sentence, earlier)


def _alike(session: Session, open_: Sequence[int], least: float) -> list[tuple[int, int]]:
    """Pairs of sentences that share words: twice the common over both, at least `least`."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, stems in enumerate(session.earlier_stems):
        for stem in stems:
            places[stem].append(place)
    pairs = []
    for at in open_:
        own = session.answer.stems[at]
        shared: dict[int, int] = defaultdict(int)
        for stem in own:
            for place in places.get(stem, ())[-MOST_PLACES:]:
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

"""Stage 8: whether all answers of the session together address what the question asks for.

Two rules. `cosine` is §10.2 to the letter. `words` asks that a stretch of an answer has the names
and most of the words of a need; what that leaves open is compared by cosine, and a sentence that
lacks the need's names never covers it. Talk about the answer, as in "I found nothing on X", and
questions cover nothing.

Spec: CRP-SPEC-005 §10
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from crp_integrations.dpe.records import Completeness, StageRun
from crp_integrations.dpe.settings import COVERED_NEED, QualitySettings
from crp_integrations.dpe.state import SessionSentences, SessionText, State
from crp_integrations.dpe.verifier.values import read
from crp_integrations.language.lexical_overlap import named_stems
from crp_integrations.language.words import content_stems, stem
from crp_integrations.vocabulary import CompletenessLevel

NAME: Final = "completeness verification"
NOTHING: Final = StageRun(number=8, name=NAME, engine="no sub-queries")
WORDS: Final = "need words@1"
# Sentences on either side that a sentence is read with: a subject is often named once.
AROUND: Final = 1
# What a need says about how it wants to be answered, not about what.
_ASKING: Final = frozenset(
    stem(word)
    for word in """approach approaches aspect compare comparison describe description detail
    details difference discuss explain explanation give information kind list main name outline
    overview provide role state summarise summarize summary tell two both type way example
    please know get many much does did""".split()
)
_COMPARES: Final = re.compile(r"(?i)\b(?:compar|contrast|differ|similar|versus\b|vs\b)")
_BESIDE: Final = re.compile(
    r"(?i)\b(?:whereas|while|unlike|both|neither|compared?|contrast|by comparison|on the other hand"
    r"|differ\w*|similar\w*|likewise|more|less|than|instead|however|but|another|other)\b"
)
_WHEN: Final = re.compile(r"(?i)\b(?:when|(?:what|which) (?:year|date|day|month))\b")
_HOW_MUCH: Final = re.compile(
    r"(?i)\bhow (?:many|much|long|far|old|tall|high|big|large|often|fast|deep|wide|heavy)\b"
    r"|\bwhat (?:percentage|share|number|amount|price)\b"
)
_WHO: Final = re.compile(r"(?i)\b(?:who|whom|whose|where|which|what)\b")
# An answer this short does not repeat the question that it answers.
SHORT_ANSWER: Final = 2
RECOMMENDED: Final = {
    (CompletenessLevel.MOSTLY_COMPLETE, True): "continue",
    (CompletenessLevel.PARTIAL, True): "continue",
    (CompletenessLevel.PARTIAL, False): "broaden",
    (CompletenessLevel.INCOMPLETE, True): "continue",
    (CompletenessLevel.INCOMPLETE, False): "warn",
}


def verify_completeness(state: State) -> State:
    """Say which of the envelope's own sub-queries the session's answers cover.

    Spec: CRP-SPEC-005 §10.2
    """
    needs = state.dossier.sub_queries
    if not needs:
        return replace(state, stages=(*state.stages, NOTHING))
    settings, embedder = state.tools.quality, state.tools.embedder
    session = state.session
    if settings.covering == "cosine" and embedder is not None:
        before = by_cosine(needs, session, session.prior, settings)
        here = by_cosine(needs, session, (session.answer,), settings)
        engine = f"cosine@1 with {embedder.identity}"
    else:
        before = by_words(needs, session, session.prior, settings, embedded=embedder is not None)
        here = by_words(needs, session, (session.answer,), settings, embedded=embedder is not None)
        engine = f"{WORDS} with {embedder.identity if embedder else 'no embedder'}"
    covered = [at for at in range(len(needs)) if before[at] or here[at]]
    score = len(covered) / len(needs)
    found = level(score, settings)
    answered = set(covered)
    completeness = Completeness(
        level=found,
        score=score,
        covered=tuple(needs[at] for at in covered),
        uncovered=tuple(need for at, need in enumerate(needs) if at not in answered),
        new=tuple(need for at, need in enumerate(needs) if here[at] and not before[at]),
        recommendation=RECOMMENDED.get((found, state.dossier.windows_left > 0), ""),
    )
    run = StageRun(number=8, name=NAME, engine=engine)
    return replace(state, completeness=completeness, stages=(*state.stages, run))


def level(score: float, settings: QualitySettings) -> CompletenessLevel:
    """The class of a score; lower bounds are included.

    Spec: CRP-SPEC-005 §10.2
    """
    if score >= settings.complete:
        return CompletenessLevel.COMPLETE
    if score >= settings.mostly_complete:
        return CompletenessLevel.MOSTLY_COMPLETE
    if score >= settings.partial:
        return CompletenessLevel.PARTIAL
    return CompletenessLevel.INCOMPLETE


def by_cosine(
    needs: Sequence[str],
    session: SessionSentences,
    texts: Sequence[SessionText],
    settings: QualitySettings,
) -> list[bool]:
    """For each need whether the cosine with some sentence is above the threshold.

    Spec: CRP-SPEC-005 §10.2
    """
    sentences = [sentence for said in texts for sentence in said.sentences]
    near = session.nearest("completeness.nearest", needs, sentences)
    return [cosine > _threshold(settings) for cosine in near.cosine]


def _threshold(settings: QualitySettings) -> float:
    return COVERED_NEED if settings.covered is None else settings.covered


@dataclass(frozen=True, slots=True)
class Need:
    """A sub-query as it is looked for.

    Attributes:
        weights: how much each of its content stems counts; what other needs share counts less.
        names: the stems of each thing that it names.
        rest: its stems beside its names, where another need has the same names; else empty.
        compares: it asks how things stand to each other.
    """

    text: str
    weights: dict[str, float]
    names: tuple[frozenset[str], ...]
    rest: frozenset[str]
    compares: bool


def needs_of(texts: Sequence[str]) -> list[Need]:
    """Sub-queries taken apart, each beside the others."""
    stems = [frozenset(content_stems(text)) - _ASKING for text in texts]
    held = Counter(one for own in stems for one in own)
    total = len(texts)
    things = {text: frozenset(frozenset(found) for _, found in named_stems(text)) for text in texts}
    times = Counter(name for names in things.values() for name in names)
    shared = {name for name, count in times.items() if count > 1}
    return [
        Need(
            text,
            {one: 1.0 + math.log((1 + total) / (1 + held[one])) for one in sorted(own)},
            tuple(sorted(things[text], key=sorted)),
            own - frozenset().union(*things[text]) if things[text] & shared else frozenset(),
            bool(_COMPARES.search(text)),
        )
        for text, own in zip(texts, stems, strict=True)
    ]


def by_words(
    texts: Sequence[str],
    session: SessionSentences,
    said: Sequence[SessionText],
    settings: QualitySettings,
    *,
    embedded: bool,
) -> list[bool]:
    """For each need whether a stretch of the texts has its names and most of its words."""
    stretches = [stretch for text in said for stretch in _stretches(text)]
    if not stretches:
        # As before a first window: nothing was said that could cover anything.
        return [False] * len(texts)
    needs = needs_of(texts)
    short = sum(len(text.sentences) for text in said) <= SHORT_ANSWER
    found = []
    for need in needs:
        # A name that other needs share, as "EU AI Act" may be, cannot alone cover one of them.
        fit = [
            s
            for s in stretches
            if all(_names(name, s.around) for name in need.names)
            and (not need.rest or need.rest & s.around)
        ]
        if need.compares and _compared(need, needs, stretches):
            found.append(True)
            continue
        scored = sorted(
            ((_share(need, s), place) for place, s in enumerate(fit)),
            key=lambda row: (-row[0], row[1]),
        )
        if scored and scored[0][0] >= settings.covered_words:
            found.append(True)
            continue
        if len(needs) == 1 and short and _gives(need.text, stretches):
            found.append(True)
            continue
        if not embedded or not scored:
            found.append(False)
            continue
        nearest = [fit[place].text for _, place in scored[: settings.embedded_sentences]]
        near = session.nearest("completeness.need", [need.text], nearest)
        found.append(near.cosine[0] > _threshold(settings))
    return found


@dataclass(frozen=True, slots=True)
class _Stretch:
    text: str
    around: frozenset[str]


def _stretches(said: SessionText) -> list[_Stretch]:
    """The sentences that say something, with the stems of those around them."""
    told = [
        stems if tells else frozenset[str]()
        for stems, tells in zip(said.stems, said.tells, strict=True)
    ]
    return [
        _Stretch(sentence, frozenset().union(*told[max(0, at - AROUND) : at + AROUND + 1]))
        for at, (sentence, tells) in enumerate(zip(said.sentences, said.tells, strict=True))
        if tells
    ]


def _names(name: frozenset[str], stems: frozenset[str]) -> bool:
    """Whether a stretch has the name, or at least half of a longer one, as "the AI Act"."""
    return bool(name) and 2 * len(name & stems) >= len(name)


def _share(need: Need, stretch: _Stretch) -> float:
    total = sum(need.weights.values())
    if not total:
        return 0.0
    return sum(w for one, w in need.weights.items() if one in stretch.around) / total


def _compared(need: Need, needs: Sequence[Need], stretches: Sequence[_Stretch]) -> bool:
    """Whether a stretch puts two of the things that are asked about beside each other."""
    things = {name for other in (need, *needs) for name in other.names}
    if len(things) < 2:
        return False
    return any(
        _BESIDE.search(s.text) and sum(_names(name, s.around) for name in things) >= 2
        for s in stretches
    )


def _gives(need: str, stretches: Sequence[_Stretch]) -> bool:
    """Whether a short answer gives a value of the kind that is asked for."""
    values = [value for s in stretches for value in read(s.text).values]
    if _WHEN.search(need):
        return any(value.family == "date" for value in values)
    if _HOW_MUCH.search(need):
        return any(value.family == "quantity" for value in values)
    return bool(_WHO.search(need)) and bool(values)

"""Stage 9: whether the answer continues the window before it.

Spec: CRP-SPEC-005 §11
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from crp_integrations.dpe.records import StageRun
from crp_integrations.dpe.report_parts import Flow
from crp_integrations.dpe.settings import LOW_OPENING, QualitySettings
from crp_integrations.dpe.state import SessionSentences, SessionText, State
from crp_integrations.language.lexical_overlap import Phrases, keywords
from crp_integrations.language.words import PAST_OF, content_stems, words

NAME: Final = "flow and continuity analysis"
NOTHING: Final = StageRun(number=9, name=NAME, engine="no earlier window")
# Number of sentences compared at the end of one and the start of the other (§11.3, signal 9a).
ENDS: Final = 2
# Number of first sentences in which a transition may occur (§11.3, signal 9d).
OPENING: Final = 3
# Keywords extracted from both windows per topic, since each window has only some of them.
KEYWORDS: Final = 8
_OPENING_MARKS: Final = re.compile(r"^[\s#>*_\-\u2022\d.()\"'\u201c]+")
# Phrases that refer to an earlier passage in any sentence of the opening.
_TRANSITION: Final = re.compile(
    r"""(?ix)(?:
    furthermore|moreover|additionally|in\s+addition|besides|likewise|similarly|consequently
    |therefore|thus|hence|accordingly|as\s+a\s+(?:result|consequence)|subsequently
    |finally|lastly|secondly|thirdly|fourthly|meanwhile|nevertheless|nonetheless
    |by\s+contrast|in\s+contrast|conversely|on\s+the\s+other\s+hand|on\s+top\s+of
    |building\s+(?:on|upon)|based\s+on\s+(?:this|these|that|those)|following\s+(?:on\s+from\s+)?
      (?:this|these|that|those|the\s+above)|continuing|turning\s+to|moving\s+on|with\s+(?:this|that
      |these)\s+in\s+(?:mind|place)|beyond\s+(?:this|these|that|those)|in\s+turn|to\s+this\s+end
    |as\s+(?:noted|mentioned|discussed|described|outlined|explained|stated|shown|seen)
      \s+(?:previously|above|earlier|before|in)|having\s+(?:established|covered|described|seen
      |discussed|outlined|set\s+out)|the\s+(?:next|second|third|remaining|other)\s+
      (?:aspect|step|part|point|area|phase|stage|topic|question|element|requirement|issue|factor)
    |for\s+(?:this|these)\s+reasons?|in\s+this\s+(?:context|respect|light|regard)
    |to\s+(?:continue|build|complement|extend)
    )\b"""
)
# Phrases that refer to the previous sentence: to the earlier window only in the first sentence.
_LINK: Final = re.compile(
    r"""(?ix)(?:
    however|another|next|then|also|again|specifically|in\s+particular|for\s+(?:example|instance)
    |(?:these|those|such|this|that)\s+(?!(?:answer|response|section|document|text|passage|summary
      |is|are|was|were|will|can|may)\b)\w+
    )\b"""
)
_PASSIVE: Final = re.compile(
    r"(?i)\b(?:is|are|was|were|be|been|being|am)\s+(?:\w+ly\s+|not\s+|also\s+|then\s+)*(\w+)"
)
_FIRST: Final = re.compile(r"(?i)\b(?:i|me|my|mine|myself|we|us|our|ours|ourselves)\b")
_SECOND: Final = re.compile(r"(?i)\b(?:you|your|yours|yourself|yourselves)\b")


def analyse_flow(state: State) -> State:
    """Compute the four flow signals of the answer, relative to the window before it.

    Spec: CRP-SPEC-005 §11.3, §11.4 (decisions D14, D17, D21)
    """
    if not state.dossier.prior:
        return replace(state, stages=(*state.stages, NOTHING))
    session, settings = state.session, state.tools.quality
    before, here = session.before, session.answer
    if before is None:
        return state
    ends = (" ".join(here.sentences[:ENDS]), " ".join(before.sentences[-ENDS:]))
    embedder = state.tools.embedder
    cosine = _opening(session, *ends) if embedder is not None and all(ends) else shared(*ends)
    low = LOW_OPENING if settings.low_opening is None else settings.low_opening
    opening = opening_coherence(cosine, low)
    topic = topic_continuity(before.text, here.text, settings.topics)
    register = register_consistency(before, here, settings)
    transition = float(has_transition(here.sentences))
    score = flow_score(opening, topic, register, transition, settings)
    shifted = topic == 0.0
    expected = shifted and bool(state.completeness.new)
    flow = Flow(
        score=score,
        opening=opening,
        topic=round(topic, 6),
        register_=register,
        transition=transition,
        cosine=cosine,
        abrupt=cosine < low,
        shifted=shifted,
        expected=expected,
        remediation=None if expected else remediation(score, settings),
    )
    how = f"cosine with {embedder.identity}" if embedder else "common words, no embedder"
    run = StageRun(number=9, name=NAME, engine=f"{how}, keywords@1, register@1")
    return replace(state, flow=flow, stages=(*state.stages, run))


def flow_score(
    opening: float, topic: float, register: float, transition: float, settings: QualitySettings
) -> float:
    """The weighted sum of the four signals, [0, 1].

    Spec: CRP-SPEC-005 §11.4
    """
    total = (
        opening * settings.opening_weight
        + topic * settings.topic_weight
        + register * settings.register_weight
        + transition * settings.transition_weight
    )
    return round(min(1.0, max(0.0, total)), 6)


def remediation(score: float, settings: QualitySettings) -> str | None:
    """The remedy for a flow score: none, the configured remedy, or a re-dispatch.

    Spec: CRP-SPEC-005 §11.5, §19.1 (decision D17)
    """
    if score >= settings.low_flow:
        return None
    if score < settings.least_flow and settings.flow_remedy == "augment":
        return "redispatch"
    return settings.flow_remedy


def _opening(session: SessionSentences, here: str, before: str) -> float:
    """Cosine of the answer's opening and the earlier window's end, six digits."""
    return session.cosines("flow.opening", [here], [before])[0]


def opening_coherence(cosine: float, low: float) -> float:
    """A cosine rescaled so that the embedder's `low` becomes the specification's .40, [0, 1].

    Linear from 0 to `low` and from `low` to 1; with `low` = .40, as in `literal`, the identity.

    Spec: CRP-SPEC-005 §11.3 (decision D14)
    """
    value = min(1.0, max(0.0, cosine))
    if value <= low:
        return round(value / low * LOW_OPENING, 6)
    return round(LOW_OPENING + (value - low) / (1.0 - low) * (1.0 - LOW_OPENING), 6)


def shared(text: str, other: str) -> float:
    """Dice coefficient of two texts' content stems, used without an embedder."""
    left, right = set(content_stems(text)), set(content_stems(other))
    return round(2 * len(left & right) / (len(left) + len(right)), 6) if left | right else 0.0


def topic_continuity(before: str, here: str, count: int) -> float:
    """Jaccard similarity of two texts' topics, [0, 1]; 0 if one of them has none.

    Spec: CRP-SPEC-005 §11.3 (decision D21)
    """
    own, other = (set(stems) for stems in topics(before, here, count))
    return len(own & other) / len(own | other) if own and other else 0.0


def topics(before: str, here: str, count: int) -> tuple[list[str], list[str]]:
    """The topics of two texts: the stems of their joint keywords that occur in each.

    Keywords of each text alone would seldom overlap even if the texts agree: a short text has
    about twenty candidates, and each list would contain only five of them.
    """
    phrases = keywords(Phrases([before, here]), {}, 0, KEYWORDS * count)
    stems = dict.fromkeys(stem for phrase in phrases for stem in content_stems(phrase))
    earlier, later = (
        [stem for stem in stems if stem in own][:count]
        for own in (frozenset(content_stems(before)), frozenset(content_stems(here)))
    )
    return earlier, later


def register_consistency(
    before: SessionText, here: SessionText, settings: QualitySettings
) -> float:
    """Share of the four register signals within their bands: 0, .25, .5, .75 or 1.

    Spec: CRP-SPEC-005 §11.3 (decision D21)
    """
    if not before.sentences or not here.sentences:
        return 0.0
    # Count over equally many words, since the ratio falls with the length of a text.
    many = min(settings.complexity_words, len(words(before.text)), len(words(here.text)))
    signals = (
        _close(mean_length(before), mean_length(here), settings.length_band),
        _close(
            complexity(before.text, many), complexity(here.text, many), settings.complexity_band
        ),
        round(abs(passive_ratio(before) - passive_ratio(here)), 9) <= settings.passive_band,
        persons(before.text) == persons(here.text),
    )
    return sum(signals) / len(signals)


def _close(number: float, other: float, band: float) -> bool:
    largest = max(number, other)
    return largest == 0.0 or round(abs(number - other) / largest, 9) <= band


def mean_length(session_text: SessionText) -> float:
    """Mean number of words per sentence."""
    return sum(len(words(sentence)) for sentence in session_text.sentences) / len(
        session_text.sentences
    )


def complexity(text: str, count: int) -> float:
    """Type–token ratio over the first `count` words, (0, 1]; 0 without a word."""
    first = [word.lower for word in words(text)[:count]]
    return len(set(first)) / len(first) if first else 0.0


def passive_ratio(session_text: SessionText) -> float:
    """Share of sentences with a passive, [0, 1]."""
    return sum(map(_is_passive, session_text.sentences)) / len(session_text.sentences)


def _is_passive(sentence: str) -> bool:
    participles = (match[1].lower() for match in _PASSIVE.finditer(sentence))
    return any(word.endswith(("ed", "en")) or word in _PARTICIPLES for word in participles)


_PARTICIPLES: Final = frozenset(PAST_OF) | frozenset(
    "built sent paid held kept led left lost made met put read said sold set shown told won "
    "bought brought caught cut done found hit known laid put run seen split spread taught".split()
)


def persons(text: str) -> tuple[bool, bool]:
    """Whether a text uses the first person, and whether it uses the second."""
    return bool(_FIRST.search(text)), bool(_SECOND.search(text))


def has_transition(sentences: Sequence[str]) -> bool:
    """Whether one of the first three sentences starts with a transitional phrase.

    Spec: CRP-SPEC-005 §11.3
    """
    opening = [_OPENING_MARKS.sub("", sentence) for sentence in sentences[:OPENING]]
    linked = bool(opening) and _LINK.match(opening[0]) is not None
    return linked or any(_TRANSITION.match(sentence) for sentence in opening)

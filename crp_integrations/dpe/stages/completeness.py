"""Stage 8: whether the answers of the session together address what the question asks for.

By default only a judge can decide which needs an answer covers, in the call that it makes anyway.
`literal` compares each need with each sentence by cosine, as in §10.2.

Spec: CRP-SPEC-005 §10
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from crp_integrations.dpe.records import StageRun
from crp_integrations.dpe.report_parts import Completeness
from crp_integrations.dpe.settings import COVERED_NEED, QualitySettings
from crp_integrations.dpe.state import SessionSentences, SessionText, State
from crp_integrations.vocabulary import CompletenessLevel

NAME: Final = "completeness verification"
NOTHING: Final = StageRun(number=8, name=NAME, engine="no sub-queries")
UNREAD: Final = StageRun(number=8, name=NAME, engine="read by a judge alone")
RECOMMENDED: Final = {
    (CompletenessLevel.MOSTLY_COMPLETE, True): "continue",
    (CompletenessLevel.PARTIAL, True): "continue",
    (CompletenessLevel.PARTIAL, False): "broaden",
    (CompletenessLevel.INCOMPLETE, True): "continue",
    (CompletenessLevel.INCOMPLETE, False): "warn",
}


def verify_completeness(state: State) -> State:
    """Determine which of the envelope's sub-queries the session's answers cover.

    Spec: CRP-SPEC-005 §10.2
    """
    needs = state.dossier.sub_queries
    if not needs:
        return replace(state, stages=(*state.stages, NOTHING))
    settings, embedder = state.tools.quality, state.tools.embedder
    if state.tools.settings.decides == "claims" or embedder is None:
        return replace(state, stages=(*state.stages, UNREAD))
    session = state.session
    before = by_cosine(needs, session, session.prior, settings)
    here = by_cosine(needs, session, (session.answer,), settings)
    completeness = completeness_of(needs, before, here, settings, state.dossier.windows_left)
    run = StageRun(number=8, name=NAME, engine=f"cosine@1 with {embedder.identity}")
    return replace(state, completeness=completeness, stages=(*state.stages, run))


def completeness_of(
    needs: Sequence[str],
    before: Sequence[bool],
    here: Sequence[bool],
    settings: QualitySettings,
    windows_left: int,
) -> Completeness:
    """The completeness, from the needs covered by earlier windows and by this answer.

    Spec: CRP-SPEC-005 §10.2
    """
    answered = [earlier or now for earlier, now in zip(before, here, strict=True)]
    score = sum(answered) / len(needs)
    coverage = level(score, settings)
    return Completeness(
        level=coverage,
        score=score,
        covered=tuple(need for need, done in zip(needs, answered, strict=True) if done),
        uncovered=tuple(need for need, done in zip(needs, answered, strict=True) if not done),
        new=tuple(
            need
            for need, earlier, now in zip(needs, before, here, strict=True)
            if now and not earlier
        ),
        recommendation=RECOMMENDED.get((coverage, windows_left > 0), ""),
    )


def level(score: float, settings: QualitySettings) -> CompletenessLevel:
    """The level of a score; lower bounds are included.

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
    """For each need, whether its cosine with a sentence is above the threshold.

    Spec: CRP-SPEC-005 §10.2
    """
    sentences = [sentence for session_text in texts for sentence in session_text.sentences]
    near = session.nearest("completeness.nearest", needs, sentences)
    return [cosine > _threshold(settings) for cosine in near.cosine]


def _threshold(settings: QualitySettings) -> float:
    return COVERED_NEED if settings.covered is None else settings.covered

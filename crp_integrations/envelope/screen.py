"""Between Select and Rank: what gives orders or is off the topic is refused, by name (`screen@1`).

Nothing that is refused is ranked, reranked or packed. A fact is off the topic when no retriever
stands for it: its cosine, its words and its links are all below their floors.

Spec: Summit §Context Assembly Pipeline
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crp_integrations.envelope.candidates import Candidate, Candidates, refuse_candidates
from crp_integrations.envelope.cfs.records import RetrievalResult
from crp_integrations.guard.injection.detection import (
    RULES,
    InjectionDetector,
    ScreeningSettings,
    screen_texts,
)
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vocabulary import DropReason

SCREEN = "screen@1"


def screen_candidates(
    candidates: Candidates, settings: ScreeningSettings, detector: InjectionDetector
) -> Candidates:
    """The same candidates, those that may not enter refused; off unless the settings say so.

    Spec: Summit §Backlog Select 8
    """
    if not settings.enabled:
        return candidates
    facts = [fact for fact in candidates.facts if fact.refused is None]
    told = [(fact.fact_id, fact.content, _near(fact, settings)) for fact in facts]
    reasons, algorithms = find_refusals(told, settings, detector)
    return refuse_candidates(candidates, reasons, algorithms)


def find_refusals(
    told: Sequence[tuple[str, str, int]], settings: ScreeningSettings, detector: InjectionDetector
) -> tuple[dict[str, DropReason], tuple[str, ...]]:
    """Why each of these may not enter, by its id, and the algorithms that decided."""
    floor = to_fixed(settings.relevance_floor)
    asked = [(id_, text) for id_, text, near in told if near >= floor]
    reports = detector.reports([text for _, text in asked])
    known = {id_: report for (id_, _), report in zip(asked, reports, strict=True)}
    found = screen_texts(told, settings, known=known)
    reasons = {one.id: DropReason(one.reason) for one in found.refused}
    if found.minimal:
        reasons |= dict.fromkeys(found.kept, DropReason.MINIMAL)
    model = f"+{detector.model}" if detector.model else ""
    return reasons, (f"{SCREEN}:{RULES}{model}",)


def _near(fact: Candidate, settings: ScreeningSettings) -> int:
    """How near to the topic a fact is, fixed point; all the way where words or links say so."""
    if fact.lexical >= to_fixed(settings.words_floor) or fact.hop >= to_fixed(settings.hop_floor):
        return SCALE
    return fact.relevance


@dataclass(frozen=True, slots=True)
class ResultScreen:
    """What looks at results before any of them is ranked.

    Attributes:
        settings: where fewer results than `fewest` stay, all are refused.
        detector: the rules with the settings' numbers, and what they said before.
    """

    settings: ScreeningSettings
    detector: InjectionDetector

    def refused(
        self, results: Sequence[RetrievalResult]
    ) -> tuple[dict[str, DropReason], tuple[str, ...]]:
        """Why each chunk that may not be shown may not, by its id; and what decided."""
        best = max((one.lexical_score for one in results), default=0.0)
        enough = self.settings.words_floor * best
        near: dict[str, int] = {}
        texts: dict[str, str] = {}
        for one in results:
            worded = one.lexical_score > 0.0 and one.lexical_score >= enough
            cosine = min(1.0, max(0.0, one.semantic_score))
            found = SCALE if worded else to_fixed(cosine)
            near[one.chunk.id] = max(found, near.get(one.chunk.id, 0))
            texts[one.chunk.id] = one.chunk.text
        told = [(id_, text, near[id_]) for id_, text in texts.items()]
        return find_refusals(told, self.settings, self.detector)

"""Between Select and Rank: what gives orders or is off the topic is refused, by name (`screen@1`).

Nothing that is refused is ranked, reranked or packed. A fact is off the topic when no retriever
stands for it: its cosine, its words and its links are all below their floors.

Spec: Summit §Context Assembly Pipeline
"""

from __future__ import annotations

from crp_integrations.envelope.records import Candidate, Candidates
from crp_integrations.envelope.refused import refusing
from crp_integrations.guard.injection.detect import RULES
from crp_integrations.guard.injection.detector import Detector
from crp_integrations.guard.injection.screening import ScreeningSettings, screen
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vocabulary import DropReason

SCREEN = "screen@1"


def screened(candidates: Candidates, settings: ScreeningSettings, detector: Detector) -> Candidates:
    """The same candidates, those that may not enter refused; off unless the settings say so.

    Spec: Summit §Backlog Select 8

    Args:
        settings: where fewer candidates than `fewest` stay, all are refused: the minimal pack.
        detector: the rules with the settings' numbers, and what they said before.

    Raises:
        EngineError: a model that is asked too failed.
    """
    if not settings.enabled:
        return candidates
    facts = [fact for fact in candidates.facts if fact.refused is None]
    near = {fact.fact_id: _near(fact, settings) for fact in facts}
    floor = to_fixed(settings.relevance_floor)
    asked = [fact for fact in facts if near[fact.fact_id] >= floor]
    reports = detector.reports([fact.content for fact in asked])
    found = screen(
        [(fact.fact_id, fact.content, near[fact.fact_id]) for fact in facts],
        settings,
        known={fact.fact_id: report for fact, report in zip(asked, reports, strict=True)},
    )
    reasons = {one.id: DropReason(one.reason) for one in found.refused}
    if found.minimal:
        reasons |= dict.fromkeys(found.kept, DropReason.MINIMAL)
    model = f"+{detector.model}" if detector.model else ""
    return refusing(candidates, reasons, (f"{SCREEN}:{RULES}{model}",))


def _near(fact: Candidate, settings: ScreeningSettings) -> int:
    """How near to the topic a fact is, fixed point; all the way where words or links say so."""
    if fact.lexical >= to_fixed(settings.words_floor) or fact.hop >= to_fixed(settings.hop_floor):
        return SCALE
    return fact.relevance

"""Between Select and Rank: what gives orders or is off the topic is refused, by name (`screen@1`).

Nothing that is refused is ranked, reranked or packed. A fact is off the topic when no retriever
stands for it: its cosine, its words and its links are all below their floors.

Spec: Summit §Context Assembly Pipeline
"""

from __future__ import annotations

from collections.abc import Sequence

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
    told = [(fact.fact_id, fact.content, _near(fact, settings)) for fact in facts]
    reasons, algorithms = refusals(told, settings, detector)
    return refusing(candidates, reasons, algorithms)


def refusals(
    told: Sequence[tuple[str, str, int]], settings: ScreeningSettings, detector: Detector
) -> tuple[dict[str, DropReason], tuple[str, ...]]:
    """Why each of these may not enter, by its id, and the algorithms that decided.

    Args:
        told: id, text and nearness to the topic (fixed point) of each, ids unique.

    Raises:
        EngineError: a model that is asked too failed.
    """
    floor = to_fixed(settings.relevance_floor)
    asked = [(id_, text) for id_, text, near in told if near >= floor]
    reports = detector.reports([text for _, text in asked])
    known = {id_: report for (id_, _), report in zip(asked, reports, strict=True)}
    found = screen(told, settings, known=known)
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

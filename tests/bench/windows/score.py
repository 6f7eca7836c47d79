"""What stages 6 to 9 say of sessions, and how well that separates them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from crp_integrations.dpe.dossier import Dossier, PriorWindow
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.settings_quality import QualitySettings
from crp_integrations.ports import Embedder
from tests.bench.verifier import auroc
from tests.bench.windows.data import Session

TARGET = 0.9
# Stage: the whole sessions, the broken ones.
AGAINST = {
    "coherence": (("coherent", "restated"), "contradicted"),
    "repetition": (("coherent",), "repeated"),
    "completeness": (("complete",), "truncated"),
    "flow": (("coherent",), "shuffled"),
}
# Above it a session counts as an alarm: of the flow where a remedy applies (§11.5).
ALARM = {"flow": 1.0 - QualitySettings().low_flow}


@dataclass(frozen=True, slots=True)
class Seen:
    """The four signals of one session, each higher the worse."""

    session: Session
    signals: dict[str, float]


def signals(report: Report) -> dict[str, float]:
    """What a report says against an answer: one number a stage, [0, 1], higher is worse."""
    quality = report.quality
    contradicted = [one.probability for one in report.cross_window_contradictions]
    return {
        "coherence": max(contradicted, default=0.0),
        "repetition": max(quality.repetition.overlap, quality.repetition.semantic),
        "completeness": 1.0 - report.completeness_score,
        "flow": 1.0 - report.flow_score,
    }


def run(
    sessions: Sequence[Session],
    embedder: Embedder | None,
    verifier: Verifier,
    settings: DpeSettings,
    say: Callable[[str], None],
) -> tuple[list[Seen], float]:
    """The signals of each session, and processor milliseconds a session."""
    before = time.process_time()
    found = []
    for number, session in enumerate(sessions, 1):
        dossier = Dossier(
            " ".join(session.sub_queries),
            session.answer,
            tuple((f"fact-{place}", text) for place, text in enumerate(session.facts, 1)),
            sub_queries=session.sub_queries,
            prior=tuple(
                PriorWindow(f"w{place}", place, text) for place, text in enumerate(session.prior, 1)
            ),
        )
        report = examine(dossier, embedder=embedder, verifier=verifier, settings=settings)
        found.append(Seen(session, signals(report)))
        if number % 100 == 0:
            say(f"{number} of {len(sessions)} sessions")
    return found, 1000 * (time.process_time() - before) / max(1, len(sessions))


def figures(found: Sequence[Seen]) -> dict[str, Any]:
    """AUROC of each stage over all its broken sessions and over those of each rule."""
    results: dict[str, Any] = {}
    for stage, (whole, broken) in AGAINST.items():
        good = [one for one in found if one.session.kind in whole]
        bad = [one for one in found if one.session.kind == broken]
        if not good or not bad:
            continue
        rules = sorted({one.session.rule for one in bad})
        results[stage] = {
            "whole": len(good),
            "broken": len(bad),
            "auroc": _auroc(stage, good, bad),
            "target": TARGET,
            "met": _auroc(stage, good, bad) >= TARGET,
            "rules": {
                rule: _auroc(stage, good, [one for one in bad if one.session.rule == rule])
                for rule in rules
            },
            "alarms": {
                kind: round(_share(stage, [one for one in good if one.session.kind == kind]), 4)
                for kind in whole
            },
            "seen": round(_share(stage, bad), 4),
        }
    return results


def _auroc(stage: str, good: Sequence[Seen], bad: Sequence[Seen]) -> float:
    scores = [one.signals[stage] for one in (*good, *bad)]
    return round(auroc(scores, [False] * len(good) + [True] * len(bad)), 4)


def _share(stage: str, rows: Sequence[Seen]) -> float:
    """The share with an alarm: with a signal at all where no bound is named."""
    bound = ALARM.get(stage, 0.0)
    return sum(one.signals[stage] > bound for one in rows) / max(1, len(rows))

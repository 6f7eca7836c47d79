"""What the engine says of the cases."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import Finding, Report
from crp_integrations.dpe.settings import LEVEL_CUTS, DpeSettings
from crp_integrations.ports import Embedder
from crp_integrations.vocabulary import DistortionType
from tests.bench.distortions.case import CLEAN, DISTORTED, Case

CUT = min(cut for cut, _ in LEVEL_CUTS)
# What a finding may be called for each kind; what the document's types do not tell apart is named
# by the nearest.
NAMED = {
    **{str(kind): {str(kind)} for kind in DistortionType},
    "MAGNITUDE_ALTERED": {"MAGNITUDE_ALTERED", "NUMBER_CHANGED"},
    "UNIT_CHANGED": {"NUMBER_CHANGED", "MAGNITUDE_ALTERED", "UNIT_CHANGED"},
    "ROLE_SWAPPED": {
        "ROLE_SWAPPED", "ENTITY_SUBSTITUTED", "NUMBER_CHANGED", "DATE_SHIFTED", "contradiction",
    },
    "UNSUPPORTED_ADDITION": {"fabrication"},
}  # fmt: skip
# Recall at least, false alarms at most: of the findings, and of the risk as well.
TARGETS = {
    **dict.fromkeys(("NUMBER_CHANGED", "DATE_SHIFTED", "UNIT_CHANGED", "NEGATION_FLIP"), 0.95),
    **dict.fromkeys(("ENTITY_SUBSTITUTED", "CONTEXT_STRIPPED"), 0.85),
    "verbatim": 0.01,
    "reformatted": 0.01,
    "paraphrase": 0.10,
}
# Characters around an edit: the engine may name the word beside it ("not" and its verb).
NEAR = 12


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found in one case.

    Attributes:
        at: a finding of stage 3 lies at the edit, or anywhere for clean cases.
        named: one of these bears the right name.
        flagged: the risk is MEDIUM or above.
        kinds: of all findings, in order.
    """

    case: Case
    at: bool
    named: bool
    flagged: bool
    risk: float
    kinds: tuple[str, ...]


def report_on(
    case: Case, embedder: Embedder | None, verifier: Verifier, settings: DpeSettings
) -> Report:
    """The engine's report on a claim as an answer, its facts as the envelope."""
    facts = tuple((f"fact-{number}", text) for number, text in enumerate(case.facts, 1))
    dossier = Dossier("", case.claim, facts)
    return examine(dossier, embedder=embedder, verifier=verifier, settings=settings)


def seen(case: Case, report: Report) -> Seen:
    """What of a report concerns the edit."""
    findings = [one for one in report.findings if one.stage == 3]
    mine = [one for one in findings if _at(one, case)] if case.kind in DISTORTED else findings
    names = NAMED.get(case.kind, set())
    return Seen(
        case,
        at=bool(mine),
        named=any(one.kind in names for one in mine),
        flagged=report.composite_score >= CUT,
        risk=report.composite_score,
        kinds=tuple(one.kind for one in findings),
    )


def _at(finding: Finding, case: Case) -> bool:
    return finding.start < case.end + NEAR and finding.end > case.start - NEAR


def run(
    cases: Sequence[Case],
    embedder: Embedder | None,
    verifier: Verifier,
    settings: DpeSettings,
    say: Callable[[str], None],
) -> tuple[list[Seen], float]:
    """What was found in each case, and processor milliseconds a case."""
    before = time.process_time()
    found = []
    for number, case in enumerate(cases, 1):
        found.append(seen(case, report_on(case, embedder, verifier, settings)))
        if number % 500 == 0:
            say(f"{number} of {len(cases)} cases")
    return found, 1000 * (time.process_time() - before) / max(1, len(cases))


def figures(found: Iterable[Seen]) -> dict[str, Any]:
    """For each kind the shares, for each of its rules too, and whether the target is met.

    `found` is recall at the edit for distorted cases and the share with a false finding for clean
    ones; `flagged` the share at MEDIUM or above; `either` of the two; `named` the share named
    rightly.
    """
    seen_ = list(found)
    results: dict[str, Any] = {}
    for kind in (*DISTORTED, *CLEAN):
        rows = [one for one in seen_ if one.case.kind == kind]
        if not rows:
            continue
        share = _shares(rows, clean=kind in CLEAN)
        target = TARGETS.get(kind)
        if target is not None:
            share["target"] = target
            share["met"] = (
                share["either"] <= target
                if kind in CLEAN
                else min(share["found"], share["flagged"]) >= target
            )
        share["rules"] = {
            rule: _shares([one for one in rows if one.case.rule == rule], clean=kind in CLEAN)
            for rule in sorted({one.case.rule for one in rows})
        }
        share["kinds_reported"] = dict(Counter(name for one in rows for name in one.kinds))
        results[kind] = share
    clean = [one for one in seen_ if one.case.kind in ("verbatim", "reformatted")]
    if clean:
        share = _shares(clean, clean=True)
        target = TARGETS["verbatim"]
        results["verbatim+reformatted"] = {
            **share,
            "target": target,
            "met": share["either"] <= target,
        }
    return results


def _shares(rows: Sequence[Seen], *, clean: bool) -> dict[str, Any]:
    count = len(rows)
    shares: dict[str, Any] = {
        "cases": count,
        "found": round(sum(one.at for one in rows) / count, 4),
        "flagged": round(sum(one.flagged for one in rows) / count, 4),
        "either": round(sum(one.at or one.flagged for one in rows) / count, 4),
    }
    if not clean:
        shares["named"] = round(sum(one.named for one in rows) / count, 4)
    return shares

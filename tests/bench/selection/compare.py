"""What `crp` has above every other system, with 95 % intervals, and the macro means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.bench.selection.intervals import RESAMPLES, SEED, interval, resampled
from tests.bench.selection.metrics import MRR

OURS = "crp"
# Metrics whose differences get intervals; the others say what a context is like, not how good.
COMPARED = ("evidence_recall", "full_recall", "precision")
HEADLINE = "evidence_recall"
MACRO = "macro"


def compared(
    values: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]],
    usual: Mapping[str, int],
    budgets: Sequence[int],
) -> dict[str, Any]:
    """The macro means and the intervals of a report.

    Args:
        values: one value a question, by system, set and metric, in the same order of questions.
        usual: the budget of each set's headline number.
        budgets: all that were measured.

    Returns:
        `macro`: for each system the mean over the sets of evidence and full recall at each set's
        usual budget. `intervals`: by system, set (`macro` too) and metric the mean difference
        `crp` minus the system with the ends of its 95 % interval; empty without `crp`.
    """
    macro = {}
    for system, sets in values.items():
        if sets.keys() == usual.keys():
            macro[system] = {
                metric: round(
                    float(
                        np.mean([np.mean(sets[name][f"{metric}@{usual[name]}"]) for name in usual])
                    ),
                    6,
                )
                for metric in COMPARED
            }
    found: dict[str, Any] = {"macro": macro, "intervals": {}}
    others = [system for system in values if system != OURS]
    if OURS not in values or not others:
        return found
    metrics = [MRR, *(f"{metric}@{budget}" for metric in COMPARED for budget in budgets)]
    sums: dict[str, Any] = {}
    for number, name in enumerate(usual):
        compared_here = [system for system in others if name in values[system]]
        table = np.array(
            [
                np.subtract(values[OURS][name][metric], values[system][name][metric])
                for system in compared_here
                for metric in metrics
            ]
        ).T
        # Sets are drawn independently of each other.
        means = resampled(table, seed=SEED + number)
        low, high = interval(means)
        for place, system in enumerate(compared_here):
            first = place * len(metrics)
            rows = found["intervals"].setdefault(system, {})
            rows[name] = {
                metric: _row(float(table[:, first + n].mean()), low[first + n], high[first + n])
                for n, metric in enumerate(metrics)
            }
            at = first + metrics.index(f"{HEADLINE}@{usual[name]}")
            held = sums.setdefault(system, [])
            held.append((float(table[:, at].mean()), means[:, at]))
    for system, held in sums.items():
        if len(held) == len(usual):
            together = np.mean([drawn for _, drawn in held], axis=0)[:, None]
            low, high = interval(together)
            mean = float(np.mean([one for one, _ in held]))
            found["intervals"][system][MACRO] = {HEADLINE: _row(mean, low[0], high[0])}
    found["bootstrap"] = {"resamples": RESAMPLES, "seed": SEED, "level": 0.95}
    return found


def _row(mean: float, low: float, high: float) -> dict[str, float]:
    return {"difference": round(mean, 6), "low": round(low, 6), "high": round(high, 6)}

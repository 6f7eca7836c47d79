"""Files fitted without what they are scored on, made by the recipe in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.verifier.calibrated import FeaturesVerifier
from crp_integrations.errors import RequestError
from tests.bench.measure import in_one_thread
from tests.bench.verifier.data import Case
from tests.bench.verifier.systems import System, Word, engine

RECIPE = "crp_integrations.recipes.verifier"


def fit(data: Path, folds: int, out: Path, cache: Path | None) -> None:
    """Fit a file for each fold of the sets in a folder.

    Raises:
        RequestError: the recipe did not end well.
    """
    given = ["--data", str(data), "--out", str(out), "--folds", str(folds)]
    given += ["--cache", str(cache)] if cache else []
    if in_one_thread(RECIPE, given) != 0:
        raise RequestError("the folds were not fitted; the recipe needs the extra 'recipes'")


def by_folds(folder: Path) -> System:
    """A system that reads each answer by a file that did not see its context."""
    assigned: dict[str, int] = json.loads((folder / "folds.json").read_text(encoding="utf-8"))
    systems = {
        number: engine(
            FeaturesVerifier([(folder / f"fold-{number}.json").read_bytes()]), None, DpeSettings()
        )
        for number in sorted(set(assigned.values()))
    }
    first = min(systems)

    def say(case: Case) -> Word:
        return systems[assigned.get(case.source, first)](case)

    return say


def seen(cases: Sequence[Case], folder: Path | None, fitted_on: Sequence[str], digest: str) -> str:
    """Whether what is scored was fitted on: `by folds`, `seen` or `unseen`.

    Args:
        folder: of fitted folds; None for the shipped file.
        fitted_on: SHA-256 of the files that the shipped file was fitted on.
        digest: SHA-256 of the file that is scored.
    """
    if folder is None:
        return "seen" if digest in fitted_on else "unseen"
    assigned = json.loads((folder / "folds.json").read_text(encoding="utf-8"))
    return "by folds" if any(case.source in assigned for case in cases) else "unseen"

"""Measures the verifier on labelled answers and pairs.

Read `data.py` (the two shapes of files), `systems.py` (what is measured beside what),
`metrics.py`, `folds.py` (files that did not see what they are scored on), `run.py`, and
`speed.py` for the cost over lengths.
"""

from tests.bench.verifier.metrics import auroc

__all__ = ["auroc"]

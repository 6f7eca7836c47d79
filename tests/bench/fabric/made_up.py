"""Facts and vectors that are made up, where no passages with their vectors are at hand."""

from __future__ import annotations

import numpy as np

from crp_integrations.fabric.records import Fact
from crp_integrations.vectors import FloatRows, unit_rows

DIMENSIONS = 384
# Vectors lie around so many centres, as those of texts lie around their themes.
CENTRES, SPREAD = 500, 0.9
# Rows that are made at once.
PART = 1_000


def made_up_facts(count: int, seed: int = 1) -> tuple[list[Fact], FloatRows]:
    """Facts of about eighty words, and a unit vector for each; equal arguments, equal material."""
    chance = np.random.default_rng(seed)
    centres = chance.standard_normal((CENTRES, DIMENSIONS)).astype(np.float32)
    rows = np.empty((count, DIMENSIONS), dtype=np.float32)
    for start in range(0, count, PART):
        many = min(PART, count - start)
        noise = chance.standard_normal((many, DIMENSIONS)).astype(np.float32)
        rows[start : start + many] = centres[chance.integers(CENTRES, size=many)] + SPREAD * noise
    words = np.minimum(chance.zipf(1.3, size=(count, 80)), 30_000)
    facts = [
        Fact(content=f"passage {seed} {n} " + " ".join(f"w{word}" for word in line))
        for n, line in enumerate(words.tolist())
    ]
    return facts, unit_rows(rows)

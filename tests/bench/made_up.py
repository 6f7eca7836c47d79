"""Real passages out of installed packages, and a question about each."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

import numpy as np

from crp_integrations.errors import ConfigError
from crp_integrations.fabric.records import Fact
from crp_integrations.language.words import STOP_WORDS
from crp_integrations.vectors import FloatRows, unit_rows
from tests.bench.fabric_corpus import Passage, distinct, installed, of_package

WORDS: Final = 6
_WORD: Final = re.compile(r"[^\W\d_]{3,}")


def passages(count: int) -> list[Passage]:
    """The first passages of the packages in the order of their names.

    Raises:
        ConfigError: the environment has fewer.
    """
    packages = sorted(installed(), key=lambda entry: entry[0])
    found = (one for name, _, files in packages for one in of_package(name, files))
    # Some come twice, and are left out.
    some = distinct(islice(found, 2 * count))[:count]
    if len(some) < count:
        raise ConfigError(f"the installed packages hold {len(some)} passages, wanted {count}")
    return some


def question(passage: Passage) -> str:
    """What somebody would ask whose answer is in a passage: its first telling words."""
    words = [word for word in _WORD.findall(passage.text) if word.lower() not in STOP_WORDS]
    return f"What does the documentation say about {' '.join(words[:WORDS])}?"


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

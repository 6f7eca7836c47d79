"""Facts whose every text and vector can be told from any other, and where they can be found."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Fact
from crp_integrations.testing.records import fact
from crp_integrations.vectors import FloatRows, to_bytes, unit_rows

DIMENSIONS = 96
MARKS = re.compile(rb"zq[a-z]{8}", re.IGNORECASE)
# Where in a vector's bytes it is looked for, and how many of them tell it from the others.
_PLACES, _LENGTH = (0, 24 * 7, 24 * 15), 24
_LETTERS = "bcdfghjklmnp"


class Archive:
    """Facts with marks, by id.

    Attributes:
        vectors: the numbers of each as the store writes them.
        marks: words that only its texts hold, in lower case.
    """

    def __init__(
        self,
        seed: int,
        number_bytes: Callable[[npt.NDArray[np.float32]], bytes] = to_bytes,
    ) -> None:
        """Begin with none; equal seeds give equal facts.

        Args:
            number_bytes: how the store writes the numbers of a vector.
        """
        self.chance = random.Random(seed)  # noqa: S311 - texts for tests, no secret
        self.numbers = np.random.default_rng(seed)
        self.number_bytes = number_bytes
        self.vectors: dict[str, bytes] = {}
        self.marks: dict[str, set[bytes]] = {}

    def mark(self) -> str:
        """A word of its own; no stemmer shortens it, and none begins another one."""
        return "Zq" + "".join(self.chance.choices(_LETTERS, k=8))

    def made(self, namespace: str, count: int) -> tuple[list[Fact], FloatRows]:
        """New facts with their unit rows, shape (count, 96)."""
        facts = []
        for _ in range(count):
            marks = [self.mark() for _ in range(6)]
            many = self.chance.choice([0, 5, 60, 900])
            words = [
                "".join(self.chance.choices(_LETTERS, k=self.chance.randint(3, 9)))
                for _ in range(many)
            ]
            words[many // 2 : many // 2] = [marks[0]]
            one = fact(
                f"{marks[1]} {' '.join(words)} {marks[2]}",
                namespace=namespace,
                source_id="doc",
                source_location=marks[3],
                labels=(marks[4],),
                metadata={marks[5]: marks[5]},
            )
            facts.append(one)
            self.marks[one.fact_id] = {mark.lower().encode() for mark in marks}
        block = unit_rows(self.numbers.standard_normal((count, DIMENSIONS)).astype(np.float32))
        for one, row in zip(facts, block, strict=True):
            self.vectors[one.fact_id] = self.number_bytes(row)
        return facts, block

    def add(self, store: Store, namespace: str, count: int) -> list[str]:
        """Add new facts to a store, with counts of their tokens; their ids."""
        facts, block = self.made(namespace, count)
        with store.begin(namespace) as transaction:
            transaction.facts.add(facts, block)
            transaction.facts.save_token_counts("words", {one.fact_id: 7 for one in facts})
        return [one.fact_id for one in facts]

    def rename(self, old: str, new: str) -> None:
        """Call what is known of a fact by another name."""
        self.marks[new] = self.marks.pop(old)
        self.vectors[new] = self.vectors.pop(old)

    def found(self, whole: bytes) -> set[str]:
        """Facts of which any mark, or any part of the vector, is among some bytes."""
        marks = {mark.lower() for mark in MARKS.findall(whole)}
        ids = {id_ for id_, own in self.marks.items() if own & marks}
        for id_, vector in self.vectors.items():
            if id_ not in ids and any(vector[at : at + _LENGTH] in whole for at in _PLACES):
                ids.add(id_)
        return ids


def marked(whole: bytes) -> set[bytes]:
    """The marks that are among some bytes, in lower case."""
    return {mark.lower() for mark in MARKS.findall(whole)}

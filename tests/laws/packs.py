"""Makes random packs from numbers and prints a digest of their bytes, one line a block.

Run as `python -m tests.laws.packs ORDER BLOCK SIZE [BLOCK SIZE …]`; ORDER permutes each pack's input.
"""

from __future__ import annotations

import gc
import hashlib
import random
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cache
from typing import get_args

import numpy as np

from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.records import Fact
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import GroundingMode
from tests.doubles import NOON
from tests.envelope.builders import LetterCounter, build_candidates, made

MODES = tuple(GroundingMode)
COMMUNITIES = (None, "harbour", "council", "energy")
QUERIES = ("who pays for the quay?", "the latest figures of 2026", "tier and licence")
WORDS = (
    "quay harbour tier licence budget council 2024 2,5 % not never Zürich मार्च 港务 e\u0301 👍🏽 "
    "north east revenue dredging pile ferry"
).split()
_MAKING = random.Random(7)
# Few enough that what is read from a text is read once a process.
TEXTS = tuple(" ".join(_MAKING.choices(WORDS, k=_MAKING.randint(1, 6))) for _ in range(300))
# Every packing, ordering and layout that the settings offer, in both presets.
FIELDS = EnvelopeSettings.model_fields
OFFERED = {name: get_args(FIELDS[name].annotation) for name in ("packing", "ordering", "layout")}
USED = tuple(
    EnvelopeSettings.model_validate({**EnvelopeSettings.preset(preset).model_dump(), name: value})
    for preset in ("default", "literal")
    for name, values in OFFERED.items()
    for value in values
)
# The facts differ in where they lie, in what they say and in their community; the rest is laid on.
PLACES = 7
VECTORS = 5


@cache
def plain(text: str, place: int, community: str | None) -> Fact:
    """A fact as it is but for its weight and its date, validated once a process."""
    return Fact(content=text, source_location=str(place), community_label=community)


@cache
def direction(point: int) -> FloatRows:
    """One of the directions."""
    row = np.array([1.0, point / VECTORS, (point % 2) / 2, 0.25], dtype=np.float32)
    return row / np.linalg.norm(row)


class Compass:
    """Few directions, so that duplicates are frequent; a text's bytes decide its own."""

    identity = "compass/4"
    dimensions = 4
    thresholds: dict[str, float] = {}

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        rows = [self.embed_query(text) for text in texts]
        return np.stack(rows) if rows else np.zeros((0, self.dimensions), dtype=np.float32)

    def embed_query(self, text: str) -> FloatRows:
        return direction(hashlib.sha256(text.encode()).digest()[0] % VECTORS)


def pack(number: int, order: int) -> Envelope:
    """One pack: its number decides everything but the order in which the facts arrive."""
    dice = random.Random(number)
    facts = [
        plain(dice.choice(TEXTS), place % PLACES, dice.choice(COMMUNITIES)).model_copy(
            update={
                "importance_weight": dice.randint(0, 10) / 10,
                "ingested_at": NOON - timedelta(days=dice.randint(0, 500)),
            }
        )
        for place in range(dice.randint(0, 8))
    ]
    budget = dice.randint(-3, 220)
    k = dice.choice((None, None, 1, 3))
    query, mode, using = dice.choice(QUERIES), dice.choice(MODES), dice.choice(USED)
    arriving = list(facts)
    random.Random(f"{number}:{order}").shuffle(arriving)
    found = build_candidates(
        query,
        arriving,
        embedder=Compass(),
        counter=LetterCounter(),
        settings=using,
    )
    envelope = made(found, budget_tokens=budget, grounding=mode, settings=using, k=k)
    assert envelope.token_count == len(envelope.text) <= max(0, budget)
    return envelope


def digests(order: int, blocks: Sequence[tuple[int, int]]) -> Iterator[str]:
    """For each block of packs its number and the digest of all their bytes."""
    for block, size in blocks:
        whole = hashlib.sha256()
        for number in range(block * size, (block + 1) * size):
            whole.update(pack(number, order).model_dump_json().encode())
        yield f"{block} {whole.hexdigest()}"


if __name__ == "__main__":
    # What a pack makes is let go of by reference counts; the collector would look in vain.
    gc.disable()
    rest = [int(word) for word in sys.argv[2:]]
    for line in digests(int(sys.argv[1]), list(zip(rest[::2], rest[1::2], strict=True))):
        print(line)

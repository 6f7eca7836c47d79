"""Makes random packs straight from candidates and prints digests of their bytes.

Run as `python -m tests.envelope.golden_packs BLOCK…`; `test_golden_packs` holds what it printed.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import get_args

import numpy as np

from crp_integrations.envelope.candidates import Candidate, Candidates, ScoredSpan
from crp_integrations.envelope.near_duplicates import ListedPairs, split_near_duplicates
from crp_integrations.envelope.prompt import marker_text
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.scores import SCALE
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import GroundingMode
from tests.doubles import NOON
from tests.envelope.builders import LetterCounter, made
from tests.laws.packs import MODES, QUERIES, TEXTS

BLOCK = 100
FIELDS = EnvelopeSettings.model_fields
SALTS = ("", "a secret")


def settings(dice: random.Random) -> EnvelopeSettings:
    """A preset with some of the choices that settings offer."""
    told = EnvelopeSettings.preset(dice.choice(("default", "literal"))).model_dump()
    for name in ("packing", "ordering", "layout", "coverage_of", "duplicates_told"):
        if dice.random() < 0.5:
            told[name] = dice.choice(get_args(FIELDS[name].annotation))
    for name in ("adaptive", "promote", "sparse_is_deficient"):
        told[name] = dice.random() < 0.5
    if dice.random() < 0.3:
        told["hybrid"]["enabled"] = not told["hybrid"]["enabled"]
    # As the packs were made when their digests were taken, and as old receipts are replayed.
    told["hybrid"]["passed_over"] = None
    return EnvelopeSettings.model_validate(told)


def facts(dice: random.Random) -> tuple[Candidate, ...]:
    """Candidates by id; few values of each kind, so that many are equal."""
    count = dice.choice((0, 1, 2, 7, 40, 40, 200, 200))
    ids = sorted(dice.sample(range(10_000), count), key=str)
    labels = [None, *(f"community {number}" for number in range(dice.choice((1, 3, 30))))]
    days = dice.choice((1, 3, 500))
    scored, cut = dice.random() < 0.5, dice.random() < 0.7
    old = dice.choice((0.0, 0.0, 0.1))
    steps = dice.choice((3, SCALE))
    found: list[Candidate] = []
    for number in ids:
        content = f"{number} {dice.choice(TEXTS)}" if dice.random() < 0.8 else dice.choice(TEXTS)
        half = len(content) // 2
        found.append(
            Candidate(
                fact_id=f"fact-{number}",
                content=content,
                source_id=f"source-{number % 5}",
                relevance=dice.randint(0, steps) * (SCALE // steps),
                importance=dice.randint(0, 10) * SCALE // 10,
                tokens=len(marker_text(content)),
                ingested_at=None
                if dice.random() < 0.1
                else NOON - timedelta(days=dice.randint(-1, days), seconds=dice.randint(0, 3)),
                stale=dice.random() < old,
                community=dice.choice(labels),
                score=dice.randint(0, 20) * SCALE // 20 if scored else None,
                stretches=(
                    ScoredSpan(0, half, dice.randint(0, SCALE)),
                    ScoredSpan(half, len(content), dice.randint(0, SCALE)),
                )
                if cut and half > 1 and dice.random() < 0.7
                else (),
            )
        )
    return tuple(found)


def alike(dice: random.Random, given: Sequence[Candidate]) -> tuple[Sequence[tuple[int, int]], ...]:
    """Duplicates and conflicts, written down or worked out from vectors."""
    count = len(given)
    kind = dice.random()
    if kind < 0.2 or count < 2:
        return (), ()
    if kind < 0.5:
        pairs = [tuple(sorted(dice.sample(range(count), 2))) for _ in range(dice.randint(0, count))]
        unique = sorted(set(pairs))
        dice.shuffle(unique)
        split = dice.randint(0, len(unique))
        halves = sorted(unique[:split]), sorted(unique[split:])
        return halves if kind < 0.35 else tuple(map(ListedPairs, halves))  # type: ignore[return-value]
    return split_near_duplicates([fact.content for fact in given], _rows(dice, count), 0.95)


def pack(number: int) -> tuple[Candidates, Envelope]:
    """One pack; its number decides everything."""
    dice = random.Random(f"wide {number}")
    given = facts(dice)
    duplicates, conflicts = alike(dice, given)
    query = dice.choice(QUERIES)
    candidates = Candidates(
        query=query,
        sub_queries=(query,),
        facts=given,
        tokenizer=LetterCounter.identity,
        duplicates=duplicates,
        conflicts=conflicts,
        relevant_floor=dice.choice((None, 0, SCALE // 2)),
    )
    whole = sum(fact.tokens for fact in given)
    used, mode = settings(dice), GroundingMode(dice.choice(MODES))
    budget = dice.choice((0, *(whole // part for part in (8, 4, 2, 1)), dice.randint(-5, 2_000)))
    k = dice.choice((None, None, None, 1, 5))
    pinned = dice.sample([fact.fact_id for fact in given], min(len(given), dice.choice((0, 3))))
    previous = None
    if given and dice.random() < 0.3:
        previous = made(candidates, budget_tokens=budget // 2, grounding=mode, settings=used)
    return candidates, made(
        candidates,
        budget_tokens=budget,
        grounding=mode,
        settings=used,
        k=k,
        pinned=pinned,
        previous=previous,
        salt=dice.choice(SALTS),
        max_age_seconds=dice.choice((None, None, 100_000)),
    )


def digests(
    blocks: Sequence[int], look: Callable[[Candidates, Envelope], None] | None = None
) -> Iterator[str]:
    """For each block of packs the digest of all their bytes; `look` is called with each pack."""
    for block in blocks:
        whole = hashlib.sha256()
        for number in range(block * BLOCK, (block + 1) * BLOCK):
            candidates, envelope = pack(number)
            whole.update(envelope.model_dump_json().encode())
            if look:
                look(candidates, envelope)
        yield whole.hexdigest()


def _rows(dice: random.Random, count: int) -> FloatRows:
    """Unit rows about a few directions, a part of them equal to the last bit."""
    directions = dice.choice((2, 10, 100))
    points = [[dice.gauss(0, 1) for _ in range(8)] for _ in range(directions)]
    noise = dice.choice((0.0, 0.02, 0.1, 1.0))
    rows = np.array(
        [[value + noise * dice.gauss(0, 1) for value in dice.choice(points)] for _ in range(count)]
    )
    if dice.random() < 0.3:
        for at in range(1, count, 3):
            rows[at] = rows[at - 1]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.ascontiguousarray(unit, dtype=np.float32)


if __name__ == "__main__":
    for line in digests([int(word) for word in sys.argv[1:]]):
        print(line)

"""Five hundred random packs keep their bytes."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.records import Envelope
from tests.envelope.golden_packs import digests

# Printed by `python -m tests.envelope.golden_packs 0 1 2 …`. A change of them is a change of some
# algorithm, which then has another number, or of the settings' defaults.
BEFORE = (
    "08e72ab8467d5bee34f25b6a876702d2df9d0ea71132be7fed1e33d3b2d805bd",
    "af09d7df942704b4eac44702011808f988b1ba499554fe46b04bad60c32ccd8e",
    "8f7020cf244a2de4a7f2ba8019d8e20325e9d7f40d7660f0da92c4b2986e81b9",
    "1a3333d6d54d6ac3ca2e3a4da2a75ccef74d8d27d8c83f4ed16284de2372419e",
    "4d1bf47f735cf816fdda05a7de571a1215a7f2616099107732d2c307cd7872a6",
)


LOOKED_AT = 300


@pytest.fixture(scope="module")
def packed() -> tuple[tuple[str, ...], Counter[str]]:
    """The digests of the packs, and how many of the first ones hold what."""
    seen: Counter[str] = Counter()
    looked = itertools.count()

    def look(candidates: Candidates, envelope: Envelope) -> None:
        if next(looked) < LOOKED_AT:
            seen.update(_told(candidates, envelope))

    return tuple(digests(range(len(BEFORE)), look)), seen


def test_the_bytes_are_those_of_facts_one_by_one(
    packed: tuple[tuple[str, ...], Counter[str]],
) -> None:
    assert packed[0] == BEFORE


def test_the_packs_are_worth_comparing(packed: tuple[tuple[str, ...], Counter[str]]) -> None:
    """What columns could get wrong occurs in them."""
    seen = packed[1]
    for what in _TOLD:
        assert seen[what] >= 5, (what, seen)


_TOLD = (
    "budget",
    "duplicate",
    "k",
    "conflict",
    "deferred",
    "parts",
    "prefix",
    "many communities",
    "scored",
    "stale",
    "equal composites",
)


def _told(candidates: Candidates, envelope: Envelope) -> set[str]:
    told = {drop.reason.value for drop in envelope.dropped}
    facts = candidates.facts
    composites = [fact.composite_score for fact in envelope.facts]
    for what, seen in (
        ("conflict", envelope.conflicts),
        ("deferred", envelope.deferred),
        ("parts", any(fact.spans for fact in envelope.facts)),
        ("prefix", envelope.prefix_tokens),
        ("many communities", len(envelope.ckf_communities) > 10),
        ("scored", any(fact.score is not None for fact in facts)),
        ("stale", any(fact.stale for fact in facts)),
        ("equal composites", len(set(composites)) < len(composites)),
    ):
        if seen:
            told.add(what)
    return told

"""Five hundred random packs keep their bytes."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.records import Envelope
from tests.envelope.golden_packs import digests

# Printed by `python -m tests.envelope.golden_packs 0 1 2 …` at the commit before (1e81548). A change of
# them is a change of some algorithm, which then has another number, or of the settings' defaults.
BEFORE = (
    "6eb86380851f608ea2c9d1b7ec1d1a863a02d34544236b5349081754c3f5b55c",
    "a56b5fd8ba699364dec5430e9b5b1c3d30afc411accb96eba7bb7135fd3e75f6",
    "0f0a7bec2a89ed7cafdb53878627c5329b179f79cad207f5a1e8d75d234c6e42",
    "0f42b59028bb8f6013202ee75a9ae039de8f6e717aa6fe2682427649a9ce2676",
    "bb97ba230cab7dc619b2f7e47a10c2c1a099f818678e0c0d571d6bafa2aba9dc",
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

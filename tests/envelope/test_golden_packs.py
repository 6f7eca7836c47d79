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
    "3021b55a0cff0b02d6351944ea008e86a67c37e78cd6d7ea6c95f7b08be31250",
    "9eaf0f38b6bb66ba65fa664f8b210d09dd56c4da94155e141bf56a79db69edab",
    "4e989303b7dada7bf1963e0252ff52f380d7560a856fdb97bda28ab456db17d6",
    "a5ad5c2ef2ddced05945106546045ba9e8edb68e708c2de10e924daecd160b27",
    "d6f7cb2df3f128a35cc0a173aab6a2b02993a53922b1035f2bcec5f2b51f0a50",
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

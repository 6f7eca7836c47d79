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
    "982b002ea8d032ba51101d9b7a9a442fe925c233a16849a92d968acaff5032b4",
    "50fabbb04b299394ac31ccc1273fa835b19fe8ac50dc595f3abbfff5a93cb6ca",
    "9cd76d052c565b05391a5d671e4c2ab92cb12ec23ce656d1241f5ff2bbe4f995",
    "eb2ff15fadc4526d02e1f878f22f5e8d0bca3022f0eb922620cea1301930ac74",
    "b0b962a1b5423c48d741c34b97be31301b93bcba970ab0e0a1f29d26e04e5d8b",
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

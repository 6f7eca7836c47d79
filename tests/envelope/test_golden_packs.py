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
    "8a2fcbc8803b97480f856bcdc926481c6a1036860f076622bc878649a1994f0c",
    "a022285926270e8330f765bd4fc77b23cec82054d7583af98d174eb4483e851f",
    "8a7195c87433a5a5c143c12df249cba75a6394d06e3df32219ecd66731429812",
    "163cfdb9f5468e67321b15962d0834a5535a8a95276c39ebf2c267b51ffea997",
    "14f4f47ffd18e24d385f146c7eb4bdaab8764a13d939aafcf3f97f67a8e362eb",
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

"""The labelled answers that ship with the recipe: their shape, and what the screen makes of them."""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from typing import Any

import pytest

from crp_integrations import examine
from crp_integrations.vocabulary import RiskLevel

DATA = files("tests.recipes.verifier") / "data"
DOMAINS = ("buildings", "logistics", "museums", "support")
TYPES = {
    "NUMBER", "DATE", "NAME", "UNIT", "NEGATION", "CONDITION", "RELATION", "SCOPE", "OPPOSITE",
    "INVENTION", "OVERREACH",
}  # fmt: skip


def rows(domain: str) -> list[dict[str, Any]]:
    text = gzip.decompress((DATA / f"{domain}.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("domain", DOMAINS)
def test_half_of_the_answers_are_wrong_and_marked(domain: str) -> None:
    found = rows(domain)
    assert len(found) >= 125
    assert len({one["id"] for one in found}) == len(found)
    assert 0.45 < sum(one["hallucinated"] for one in found) / len(found) < 0.55
    for one in found:
        assert bool(one["spans"]) is one["hallucinated"], one["id"]
        assert one["passages"]
        for span in one["spans"]:
            assert span["type"] in TYPES
            assert one["answer"][span["start"] : span["end"]].strip()


def test_right_answers_of_every_domain_stay_low() -> None:
    right = [one for name in DOMAINS for one in rows(name)[:40] if not one["hallucinated"]]
    low = [
        examine(one["answer"], one["passages"], one["question"]).risk_level is RiskLevel.LOW
        for one in right
    ]
    assert sum(low) / len(low) >= 0.92

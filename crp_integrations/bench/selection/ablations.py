"""Our default with one thing switched off at a time."""

from __future__ import annotations

from typing import Any

# Name and the settings that differ from the default preset. Names begin with `crp - `.
ABLATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("crp - lexical candidates", {"envelope": {"k_lexical": 0}}),
    ("crp - diversity", {"envelope": {"diversity_weight": 0.0}}),
    ("crp - importance", {"envelope": {"importance_factor": 0.0}}),
    ("crp - freshness", {"envelope": {"freshness_weight": 0.0}}),
    ("crp - duplicates left out", {"envelope": {"duplicate_similarity": 1.0}}),
)


def ablation_names() -> tuple[str, ...]:
    """The names, in order."""
    return tuple(name for name, _ in ABLATIONS)


def settings_of(system: str) -> dict[str, Any]:
    """The settings that one of our systems is opened with: `crp`, `literal`, an ablation."""
    if system == "literal":
        return {"preset": "literal"}
    return {"preset": "default", **dict(ABLATIONS).get(system, {})}

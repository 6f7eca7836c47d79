"""Our default with one thing switched off at a time."""

from __future__ import annotations

from typing import Any

# Name and the settings that differ from the default preset. Names begin with `crp - `.
ABLATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("crp - mixed scores and parts", {"envelope": {"hybrid": {"enabled": False}}}),
    ("crp - words in the mix", {"envelope": {"hybrid": {"lexical_share": 0.0}}}),
    ("crp - best stretch", {"envelope": {"hybrid": {"stretch_share": 0.0}}}),
    ("crp - neighbours", {"envelope": {"hybrid": {"neighbour_share": 0.0}}}),
    ("crp - second hop", {"envelope": {"hybrid": {"hop_weight": 0.0}}}),
    ("crp - facts read for the hop", {"envelope": {"hybrid": {"hop_hits": 0}}}),
    ("crp - parts of facts", {"envelope": {"hybrid": {"whole_share": 1.0}}}),
    ("crp - whole facts first", {"envelope": {"hybrid": {"whole_share": 0.0}}}),
    ("crp - an end to skipping", {"envelope": {"hybrid": {"passed_over": None}}}),
    ("crp - decomposition", {"envelope": {"decompose": {"rules": False}}}),
    ("crp - adaptive weights", {"envelope": {"adaptive": False}}),
    ("crp - importance", {"envelope": {"importance_factor": 0.0}}),
    ("crp - duplicates left out", {"envelope": {"duplicate_similarity": 1.0}}),
    (
        "crp - joined passages",
        {"fabric": {"chunking": {"join_up_to_tokens": 0, "split_above_tokens": 512}}},
    ),
    # The two that are off by default are switched on.
    ("crp - no graph (2 hops on)", {"envelope": {"graph": {"hops": 2}}}),
    (
        "crp - no screening (on)",
        {"envelope": {"screening": {"enabled": True, "relevance_floor": 0.1}}},
    ),
)


def ablation_names() -> tuple[str, ...]:
    """The names, in order."""
    return tuple(name for name, _ in ABLATIONS)


def settings_of(system: str) -> dict[str, Any]:
    """The settings that one of our systems is opened with: `crp`, `literal`, an ablation."""
    if system == "literal":
        return {"preset": "literal"}
    return {"preset": "default", **dict(ABLATIONS).get(system, {})}

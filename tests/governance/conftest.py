"""A real envelope for packs."""

from __future__ import annotations

import pytest

from crp_integrations.envelope.records import Envelope


@pytest.fixture(scope="session")
def envelope() -> Envelope:
    """An envelope that a relay assembled over a few facts."""
    from crp_integrations import pack

    return pack(
        "How many tons does crane 7 lift?",
        [
            "Crane 7 lifts 18 tons since 2024.",
            "Crane 8 lifts 19 tons and stands on the east quay.",
            "The east quay is closed until May.",
            "Pilots are ordered two hours ahead.",
        ],
        model="gpt-4o",
        budget_tokens=400,
    )

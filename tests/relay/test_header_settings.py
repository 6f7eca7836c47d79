"""What a relay's headers tell, as far as that is a choice."""

from __future__ import annotations

import pytest

from tests.relay.conftest import FACTS, Opener

QUESTION = "How many megawatts does the Meridian reactor deliver?"


@pytest.mark.requirement("003-16.3-1")
def test_the_domain_of_a_question_is_told_unless_it_is_switched_off(open_relay: Opener) -> None:
    told = []
    for settings in ({}, {"headers": {"show_community": False}}):
        relay = open_relay(embedder=None, **settings)
        relay.fabric.add(list(FACTS))
        relay.fabric.recluster()
        told.append(relay.ask(QUESTION))
    shown, hidden = (answer.headers for answer in told)
    assert set(shown) - set(hidden) == {"CRP-Memory-CKF-Community"}
    # The envelope, which stays with the caller, still knows it.
    assert told[1].envelope.ckf_communities

"""Redacted texts that are kept in memory: bounded, and gone with an erasure."""

from __future__ import annotations

from crp_integrations import Relay
from crp_integrations.dpe.settings_compliance import PersonalSettings
from crp_integrations.relay.redacting import Redacting
from tests.doubles import HashEmbedder

TEXT = "Whoever finds the pump station open writes to joan.miller@waterboard.example at once."


def test_an_erasure_takes_redacted_texts_out_of_memory() -> None:
    redacting = Redacting(PersonalSettings())
    redacted = redacting.redacted(TEXT, ("email",))
    assert "[redacted email]" in redacted
    assert redacting.kept == 1
    with Relay.open(None, embedder=HashEmbedder()) as relay:
        (fact,) = relay.fabric.facts(relay.fabric.add([TEXT]).facts)
        relay.fabric.erase(fact.source_id)
    assert redacting.kept == 0
    assert redacting.redacted(TEXT, ("email",)) == redacted


def test_no_more_texts_are_kept_than_it_was_told() -> None:
    redacting = Redacting(PersonalSettings(), most_kept=3)
    for number in range(9):
        redacting.redacted(f"{TEXT} That was said {number} times.", ("email",))
    assert redacting.kept == 3

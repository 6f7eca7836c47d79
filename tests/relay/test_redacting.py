"""Redacted texts that are kept in memory: bounded, and gone with an erasure."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from crp_integrations import Relay
from crp_integrations.dpe.pii.spans import PersonalSpan
from crp_integrations.dpe.settings_compliance import PersonalSettings
from crp_integrations.errors import EngineError
from crp_integrations.relay.safeguards import RedactingGuard
from crp_integrations.vocabulary import PersonalCategory
from tests.doubles import HashEmbedder

TEXT = "Whoever finds the pump station open writes to joan.miller@waterboard.example at once."


def test_an_erasure_takes_redacted_texts_out_of_memory() -> None:
    redacting = RedactingGuard(PersonalSettings())
    redacted = redacting.redacted(TEXT, ("email",))
    assert "[redacted email]" in redacted
    assert redacting.kept == 1
    with Relay.open(None, embedder=HashEmbedder()) as relay:
        (fact,) = relay.fabric.facts(relay.fabric.add([TEXT]).facts)
        relay.fabric.erase(fact.source_id)
    assert redacting.kept == 0
    assert redacting.redacted(TEXT, ("email",)) == redacted


def test_no_more_texts_are_kept_than_it_was_told() -> None:
    redacting = RedactingGuard(PersonalSettings(), most_kept=3)
    for number in range(9):
        redacting.redacted(f"{TEXT} That was said {number} times.", ("email",))
    assert redacting.kept == 3


@pytest.mark.requirement("SUM-privacy-3")
def test_a_kind_that_nobody_looks_for_is_an_error_and_not_a_whole_text() -> None:
    """A policy may misspell a kind; the text would be shown as if it had been redacted."""
    for kinds in (("e-mail",), ("email", "name"), ("",)):
        with pytest.raises(EngineError, match="nobody looks for") as caught:
            RedactingGuard(PersonalSettings()).redacted(TEXT, kinds)
        assert "joan" not in str(caught.value)
    own = RedactingGuard(PersonalSettings(), [Badges()])
    assert own.redacted(f"{TEXT} Badge 4471.", ("badge",)) == f"{TEXT} [redacted badge]."


@pytest.mark.requirement("SUM-privacy-3")
def test_a_kind_that_a_policy_names_is_taken_out_though_reports_leave_it_aside() -> None:
    settings = PersonalSettings(aside=("email", "badge"))
    redacting = RedactingGuard(settings, [Badges()])
    told = redacting.redacted(f"{TEXT} Badge 4471.", ("badge", "email"))
    assert "[redacted email]" in told
    assert "[redacted badge]" in told
    # Every kind is every kind that is looked for.
    assert redacting.redacted(TEXT, ("*",)) == TEXT


class Badges:
    """Looks for badges, a kind of its own."""

    identity = "badges 1"
    kinds: Mapping[str, PersonalCategory] = {"badge": PersonalCategory.QUASI}

    def find(self, text: str) -> list[PersonalSpan]:
        return [
            PersonalSpan(self.kinds["badge"], "badge", found.start(), found.end(), "badges", 1.0)
            for found in re.finditer(r"Badge \d+", text)
        ]

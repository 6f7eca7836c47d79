"""What is written of settings and terms says the same as what is read back."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.policy.verdict import AnswerTerms
from crp_integrations.receipt import outline
from crp_integrations.receipt.predicate_verdict import TermsTold
from crp_integrations.receipt.window_values import (
    InForce,
    disclosed,
    dpe_settings,
    envelope_settings,
)
from crp_integrations.vocabulary import QualityTier


def test_settings_are_read_once_for_all_receipts_that_tell_the_same() -> None:
    in_force = InForce(digest="sha256:" + "2" * 64, envelope=EnvelopeSettings(), dpe=DpeSettings())
    told = disclosed(in_force)["envelope"]
    again = dict(reversed(told.items()))
    assert envelope_settings(told, ()) is envelope_settings(again, ())
    other = envelope_settings({**told, "promote": not told["promote"]}, ())
    assert other.promote is not envelope_settings(told, ()).promote
    # Nor is a number another's text, or the other way about.
    with pytest.raises(ValueError, match="cannot be read"):
        envelope_settings({**told, "packing": 1}, ())
    assert envelope_settings(told, ()).packing == told["packing"]
    assert dpe_settings(disclosed(in_force)["dpe"], ()) == in_force.dpe


@pytest.mark.parametrize("limit", [None, 2])
def test_a_limit_that_is_none_is_told_as_well(limit: int | None) -> None:
    hybrid = EnvelopeSettings().hybrid.model_copy(update={"passed_over": limit})
    settings = EnvelopeSettings(hybrid=hybrid)
    in_force = InForce(digest=f"sha256:{limit}", envelope=settings, dpe=DpeSettings())
    told = disclosed(in_force)["envelope"]
    assert told["hybrid.passed_over"] == limit
    assert envelope_settings(told, ()).hybrid.passed_over == limit


def test_settings_without_end_are_not_kept() -> None:
    in_force = InForce(digest="sha256:" + "3" * 64, envelope=EnvelopeSettings(), dpe=DpeSettings())
    told = {**disclosed(in_force)["envelope"], "layout": "x" * 70_000}
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot be read"):
            envelope_settings(told, ())


def test_a_setting_that_there_is_not_is_refused() -> None:
    in_force = InForce(digest="sha256:" + "4" * 64, envelope=EnvelopeSettings(), dpe=DpeSettings())
    told = disclosed(in_force)["envelope"]
    for path in ("reuse.of_other_times", "of_other_times"):
        with pytest.raises(ValueError, match="cannot be read"):
            envelope_settings({**told, path: 1}, ())


def test_a_part_of_the_content_has_the_fields_that_it_declares() -> None:
    terms = AnswerTerms(review_below=0.25, accept_quality=(QualityTier.A,))
    found = outline.declared(TermsTold, terms)
    assert found.keys() == TermsTold.model_fields.keys()
    assert (found["review_below"], found["accept_quality"]) == (250_000, ["A"])
    assert outline.declared(TermsTold, terms, part=True)["part"] is True
    with pytest.raises(TypeError, match="declares no field other"):
        outline.declared(TermsTold, terms, other=1)

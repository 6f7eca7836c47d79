"""What is written of settings and terms says the same as what is read back."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import ReceiptBroken
from crp_integrations.policy.verdict import AnswerTerms
from crp_integrations.receipt import outline
from crp_integrations.receipt.predicate import SettingsInForce, TermsRecord
from crp_integrations.receipt.window_values import (
    InForce,
    disclosed,
    settings_from_content,
)
from crp_integrations.vocabulary import QualityTier


def told(envelope: EnvelopeSettings, dpe: DpeSettings) -> SettingsInForce:
    """Settings as a receipt tells them."""
    # What is disclosed is remembered by the digest.
    digest = f"sha256:{envelope.hybrid.passed_over}"
    content = disclosed(InForce(digest=digest, envelope=envelope, dpe=dpe))
    return SettingsInForce.model_validate(content)


@pytest.mark.parametrize("limit", [None, 2])
def test_settings_are_read_as_they_were_told(limit: int | None) -> None:
    hybrid = EnvelopeSettings().hybrid.model_copy(update={"passed_over": limit})
    settings = EnvelopeSettings(hybrid=hybrid)
    content = told(settings, DpeSettings())
    assert content.envelope["hybrid.passed_over"] == limit
    assert settings_from_content(EnvelopeSettings, content).hybrid.passed_over == limit
    assert settings_from_content(EnvelopeSettings, content).packing == settings.packing
    assert settings_from_content(DpeSettings, content) == DpeSettings()


@pytest.mark.parametrize("path", ["reuse.of_other_times", "of_other_times", "packing"])
def test_a_setting_that_there_is_not_is_refused(path: str) -> None:
    content = told(EnvelopeSettings(), DpeSettings())
    odd = content.model_copy(update={"envelope": {**content.envelope, path: 1}})
    with pytest.raises(ReceiptBroken, match="cannot be read"):
        settings_from_content(EnvelopeSettings, odd)


def test_a_part_of_the_content_has_the_fields_that_it_declares() -> None:
    terms = AnswerTerms(review_below=0.25, accept_quality=(QualityTier.A,))
    found = outline.declared(TermsRecord, terms)
    assert found.keys() == TermsRecord.model_fields.keys()
    assert (found["review_below"], found["accept_quality"]) == (250_000, ["A"])
    assert outline.declared(TermsRecord, terms, part=True)["part"] is True
    with pytest.raises(TypeError, match="declares no field other"):
        outline.declared(TermsRecord, terms, other=1)

"""Instructions against instructions, and compound sentences cut so that no half escapes."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.verifier.features_verifier import FeaturesVerifier
from crp_integrations.vocabulary import Checked, ClaimType
from tests.dpe.helpers import check
from tests.dpe.test_features_verifier import content

MANUAL = (
    "1. Close the valve before you open the lid.\n2. Drain the tank for 20 minutes.\n"
    "3. Rinse the filter with cold water.\n"
)


@pytest.mark.requirement("005-3.3-3")
def test_an_instruction_is_checked_where_the_source_has_one_like_it() -> None:
    verifier = FeaturesVerifier(content())
    report = check("1. Rinse the filter with cold water.", [MANUAL], verifier=verifier)
    claim = report.claims[0]
    assert claim.claim_type is ClaimType.PROCEDURAL
    assert claim.checked is Checked.CHECKED
    assert MANUAL[claim.evidence[0].start : claim.evidence[0].end].startswith("3. Rinse")
    other = check("1. Install the spare wheel.", [MANUAL], verifier=verifier).claims[0]
    assert other.claim_type is ClaimType.PROCEDURAL
    assert other.checked is Checked.NOT_CHECKABLE
    assert other.evidence == ()
    changed = check("1. Drain the tank for 50 minutes.", [MANUAL], verifier=verifier)
    assert [finding.kind for finding in changed.findings][:1] == ["NUMBER_CHANGED"]


FACT = "The port employs 640 people. It handled 12,000 ships. The old crane was sold to Oslo."


@pytest.mark.requirement("005-3.4-2")
@pytest.mark.parametrize(
    "joint", [" and it", ", and it", "; it", ", but it", ", which", " while it", " although it"]
)
def test_a_fabricated_half_of_a_compound_sentence_is_found(joint: str) -> None:
    answer = f"The port employs 640 people{joint} was founded by Nils Quill in 1720."
    report = check(answer, [FACT], verifier=FeaturesVerifier(content()))
    found = [answer[f.start : f.end] for f in report.findings]
    assert any("1720" in text for text in found), (joint, found)
    assert not any("640" in text for text in found)
    assert report.claims_total >= 2

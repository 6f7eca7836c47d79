"""Response headers: which there are, what they say, what they never say."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.headers import grammar, names
from crp_integrations.headers.response_headers import render_headers
from crp_integrations.vocabulary import (
    Attribution,
    ChainIntegrity,
    DistortionType,
    DropReason,
    QualityTier,
    RiskLevel,
    Strategy,
)
from tests.headers.header_samples import (
    BOTH_WAYS,
    CONTENT,
    NOW,
    OF_STAGES_1_TO_5,
    RESPONSE_ONLY,
    SESSION,
    envelope,
    fact,
    report,
    seal,
)


def said(**changes: object) -> dict[str, str]:
    """Headers of a window; `envelope`, `report` and `seal` hold changed fields of each."""
    sealed = changes.get("seal", {})
    return render_headers(
        envelope(**changes.get("envelope", {})),
        report(**changes.get("report", {})),
        session_id=SESSION,
        window_number=2,
        window_total=5,
        seal=None if sealed is None else seal(**sealed),
    )


@pytest.mark.requirement("003-10.2-1")
def test_use_of_the_budget() -> None:
    headers = said(envelope={"total_facts_included": 47, "total_facts_available": 312})
    assert headers["CRP-Context-Tokens-Used"] == "105816"
    assert headers["CRP-Context-Saturation"] == "0.994"
    assert headers["CRP-Context-Facts-Used"] == "47/312"


@pytest.mark.parametrize(
    ("field", "value", "name", "text"),
    [
        pytest.param(
            "total_facts_included", 3, "CRP-Context-Facts-Used", "3/4",
            marks=pytest.mark.requirement("003-12.3-1", "003-15-3"),
        ),
        pytest.param(
            "token_count", 105_816, "CRP-Context-Tokens-Used", "105816",
            marks=pytest.mark.requirement("003-12.3-2", "003-15-4"),
        ),
        pytest.param(
            "quality_tier", QualityTier.C, "CRP-Context-Quality-Tier", "C",
            marks=pytest.mark.requirement("003-12.3-3", "003-15-1"),
        ),
        pytest.param(
            "saturation", 0.9936, "CRP-Context-Saturation", "0.994",
            marks=pytest.mark.requirement("003-12.3-4", "003-15-2"),
        ),
        pytest.param(
            "etag", "sha256:" + "1f" * 32, "CRP-Context-ETag", "sha256:" + "1f" * 32,
            marks=pytest.mark.requirement("003-12.3-5", "003-15-5"),
        ),
        pytest.param(
            "ckf_communities", ("EU AI Act: compliance", "b"),
            "CRP-Memory-CKF-Community", "eu-ai-act-compliance",
            marks=pytest.mark.requirement("003-12.3-6", "003-15-12"),
        ),
        pytest.param(
            "memory_tier_hit", 1, "CRP-Memory-Tier-Hit", "1",
            marks=pytest.mark.requirement("003-12.3-7", "003-15-10"),
        ),
        pytest.param(
            "strategy", Strategy.FAN_OUT, "CRP-Context-Strategy", "fan-out",
            marks=pytest.mark.requirement("003-15-7"),
        ),
    ],
)  # fmt: skip
def test_a_field_of_the_envelope_fills_its_header(
    field: str, value: object, name: str, text: str
) -> None:
    assert said(envelope={field: value})[name] == text


@pytest.mark.requirement("003-15-8")
def test_the_window_says_its_place_and_the_total() -> None:
    assert said()["CRP-Context-Window"] == "2/5"
    assert said()["CRP-Context-Session-Id"] == SESSION
    assert said()["CRP-Context-Protocol-Version"] == "3.0.0"


@pytest.mark.requirement("003-15-11")
def test_hits_count_everything_that_was_retrieved() -> None:
    # Two included, and one dropped for each reason that there is.
    assert said()["CRP-Memory-CKF-Hits"] == str(2 + len(DropReason))


@pytest.mark.requirement("003-15-13")
@pytest.mark.parametrize(
    ("ages", "text"),
    [
        ((timedelta(days=3, hours=5), timedelta(days=40)), "P3D"),
        ((timedelta(days=9), timedelta(hours=6, minutes=59)), "PT6H"),
        ((timedelta(minutes=2),), "PT2M"),
        ((timedelta(seconds=-5),), "PT0S"),
    ],
)
def test_the_age_is_that_of_the_newest_included_fact(
    ages: tuple[timedelta, ...], text: str
) -> None:
    facts = tuple(fact(n, ingested_at=NOW - age) for n, age in enumerate(ages, start=1))
    assert said(envelope={"facts": facts})["CRP-Memory-Knowledge-Age"] == text


def test_what_was_not_computed_has_no_header() -> None:
    headers = said(
        envelope={"facts": (fact(1, ingested_at=None),), "ckf_communities": ()},
        report={"attribution_dominant": None},
        seal=None,
    )
    missing = {
        names.KNOWLEDGE_AGE,
        names.CKF_COMMUNITY,
        names.ATTRIBUTION,
        names.CHAINED_HMAC,
        names.WINDOW_HMAC,
        names.CHAIN_INTEGRITY,
    }
    assert not missing & set(headers)
    assert names.CKF_COMMUNITY not in said(envelope={"ckf_communities": ("—",)})


def test_a_window_without_an_examined_answer_has_no_verdict() -> None:
    for outcome in ("failed", "cancelled", "refused"):
        headers = said(seal={"outcome": outcome})
        assert not OF_STAGES_1_TO_5 & set(headers)
        assert headers[names.CHAINED_HMAC] == seal().hmac
        assert headers[names.QUALITY_TIER] == "A"
    assert set(said(seal={"outcome": "halted"})) >= OF_STAGES_1_TO_5


@pytest.mark.requirement("005-20-1")
def test_stages_1_to_5_emit_exactly_eleven() -> None:
    mine = {
        name
        for name in said()
        if name.startswith(("CRP-Safety-", "CRP-Provenance-", "CRP-Quality-"))
    } - {names.CHAINED_HMAC, names.WINDOW_HMAC, names.CHAIN_INTEGRITY}
    assert mine == OF_STAGES_1_TO_5


@pytest.mark.requirement("005-3.5-1")
def test_claim_count() -> None:
    assert said(report={"claims_total": 47})["CRP-Provenance-Claim-Count"] == "47"


@pytest.mark.requirement("005-4.5-3")
def test_attribution_and_grounding() -> None:
    headers = said(report={"attribution_dominant": Attribution.MIXED, "grounding_pct": 0.912})
    assert headers["CRP-Safety-Attribution"] == "MIXED"
    assert headers["CRP-Safety-Grounding-Pct"] == "0.912"
    assert headers["CRP-Provenance-Attribution-Score"] == "0.912"


@pytest.mark.requirement("005-5.2-5")
@pytest.mark.parametrize("count", [0, 3])
def test_fabrications(count: int) -> None:
    assert said(report={"fabrication_count": count})["CRP-Safety-Fabrications"] == str(count)


@pytest.mark.requirement("005-5.3-9")
def test_distortions() -> None:
    two = (DistortionType.NUMBER_CHANGED, DistortionType.DATE_SHIFTED)
    assert said()["CRP-Safety-Distortions"] == "0"
    one = said(report={"distortion_count": 1, "distortion_types": two[:1]})
    assert one["CRP-Safety-Distortions"] == "1; types=NUMBER_CHANGED"
    more = said(report={"distortion_count": 3, "distortion_types": (*two, *two)})
    assert more["CRP-Safety-Distortions"] == "3; types=NUMBER_CHANGED,DATE_SHIFTED"


@pytest.mark.requirement("005-5.5-3")
def test_fidelity() -> None:
    assert said(report={"fidelity_score": 0.978})["CRP-Provenance-Fidelity-Score"] == "0.978"


@pytest.mark.requirement("005-6.3-1")
def test_entailment_and_the_other_two_probabilities() -> None:
    made = report(entailment_score=0.912)
    assert said(report={"entailment_score": 0.912})["CRP-Safety-Entailment-Score"] == "0.912"
    assert {"contradiction_probability", "neutral_probability"} <= set(made.model_dump())


@pytest.mark.requirement("005-7.5-1")
def test_risk() -> None:
    headers = said(report={"risk_level": RiskLevel.HIGH, "composite_score": 0.1, "risk_score": 0.5})
    assert headers["CRP-Safety-Hallucination-Risk"] == "HIGH"
    assert headers["CRP-Safety-Hallucination-Score"] == "0.5"


def test_the_seal_gives_the_chained_hmac_and_a_first_window_both() -> None:
    chained = said()
    assert chained[names.CHAINED_HMAC] == seal().hmac
    assert chained[names.CHAIN_INTEGRITY] == "VALID"
    # Without the parent's HMAC in it, this needs the key; a first window has no parent.
    assert names.WINDOW_HMAC not in chained
    first = said(seal={"parent_hmac": ""}, report={"chain_integrity": ChainIntegrity.UNVERIFIED})
    assert first[names.WINDOW_HMAC] == first[names.CHAINED_HMAC]
    assert first[names.CHAIN_INTEGRITY] == "UNVERIFIED"


@pytest.mark.requirement("003-16.1-3")
@given(st.text(min_size=4, max_size=60).filter(lambda text: len(text.split()) > 1))
def test_no_header_holds_content(content: str) -> None:
    facts = (fact(1, content=content),)
    joined = "\n".join(said(envelope={"facts": facts, "text": content, "query": content}).values())
    for secret in (content, CONTENT, "secret", "herbs"):
        assert secret not in joined


def test_every_value_follows_its_rule_and_every_name_is_a_response_name() -> None:
    for name, value in said(seal={"parent_hmac": ""}).items():
        assert grammar.GRAMMAR[name].fullmatch(value)
        assert name in RESPONSE_ONLY or name in BOTH_WAYS
        assert not any(ord(character) < 32 for character in name + value)

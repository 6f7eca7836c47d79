"""Importance by kind of source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.fabric.ingest.fact_preparation import fact_importance
from crp_integrations.fabric.settings import ImportanceSettings
from crp_integrations.vocabulary import SourceKind

SETTINGS = ImportanceSettings()


def weigh(
    kind: SourceKind, content: str = "Nothing special stands here.", **about: object
) -> float:
    chosen = about.pop("settings", SETTINGS)
    return fact_importance(kind, content=content, settings=chosen, **about)  # type: ignore[arg-type]


@pytest.mark.requirement("009-4.4-1")
@pytest.mark.parametrize(
    "specific",
    ["Article 12 applies.", "See § 3 of the act.", "Art. 5(1) holds.", "Annex III lists."],
)
def test_regulatory(specific: str) -> None:
    assert weigh(SourceKind.REGULATORY) == 0.90
    assert weigh(SourceKind.REGULATORY, specific) == 0.95
    assert weigh(SourceKind.REGULATORY, heading="Title I > Article 7") == 0.95
    assert weigh(SourceKind.REGULATORY, "The article was long and read by 7 people.") == 0.90


@pytest.mark.requirement("009-4.4-2")
@pytest.mark.parametrize("versioned", ["Since version 2 it works.", "v1.4 adds it.", "Use 3.11.2."])
def test_official(versioned: str) -> None:
    assert weigh(SourceKind.OFFICIAL) == 0.80
    assert weigh(SourceKind.OFFICIAL, versioned) == 0.85
    assert weigh(SourceKind.OFFICIAL, metadata={"version": "2.0"}) == 0.85
    assert weigh(SourceKind.OFFICIAL, "It costs 3.5 euros.") == 0.80


@pytest.mark.requirement("009-4.4-3")
def test_research() -> None:
    assert weigh(SourceKind.RESEARCH) == 0.75
    assert weigh(SourceKind.RESEARCH, title="Sleep: a systematic review and meta-analysis") == 0.85
    assert weigh(SourceKind.RESEARCH, "In this meta-analysis 40 trials were pooled.") == 0.85
    assert weigh(SourceKind.RESEARCH, metadata={"study": "meta-analysis"}) == 0.85
    assert weigh(SourceKind.RESEARCH, "A meta-analysis by Smith found less.") == 0.75


@pytest.mark.requirement("009-4.4-4")
def test_internal() -> None:
    assert weigh(SourceKind.INTERNAL) == 0.70
    assert weigh(SourceKind.INTERNAL, metadata={"classification": "Restricted"}) == 0.80
    own = ImportanceSettings(internal_classification={"board": 0.2})
    assert weigh(SourceKind.INTERNAL, metadata={"classification": "board"}, settings=own) == 0.90


@pytest.mark.requirement("009-4.4-5")
@pytest.mark.parametrize(
    ("uri", "weight"),
    [
        ("https://www.nist.gov/ai", 0.60),
        ("https://cs.stanford.edu", 0.60),
        ("https://nist.gov.example.com/ai", 0.50),
        ("https://notgov/", 0.50),
        ("file:///a/nist.gov/page.html", 0.50),
        ("http://[bad", 0.50),
    ],
)
def test_web(uri: str, weight: float) -> None:
    assert weigh(SourceKind.WEB, uri=uri) == weight
    assert weigh(SourceKind.WEB, uri="file:///x.html", metadata={"url": uri}) == weight


@pytest.mark.requirement("009-4.4-6")
def test_user() -> None:
    assert weigh(SourceKind.USER) == 0.60
    assert weigh(SourceKind.USER, settings=ImportanceSettings(user=0.3)) == 0.3


@pytest.mark.requirement("009-4.4-7")
@given(
    st.sampled_from(list(SourceKind)),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_base_plus_modifier_and_at_most_one(kind: SourceKind, base: float, more: float) -> None:
    added = {
        SourceKind.REGULATORY: "regulatory_article",
        SourceKind.OFFICIAL: "official_version",
        SourceKind.RESEARCH: "research_meta_analysis",
        SourceKind.WEB: "web_authoritative",
        SourceKind.USER: "user_modifier",
    }.get(kind)
    change = {added: more} if added else {"internal_classification": {"x": more}}
    settings = ImportanceSettings(**{kind.value: base, **change})
    weight = fact_importance(
        kind,
        content="Article 5, version 2.1, this meta-analysis.",
        settings=settings,
        uri="https://a.gov/",
        metadata={"classification": "x"},
    )
    assert weight == pytest.approx(min(1.0, base + more), abs=1e-6)
    assert weight <= 1.0

"""The engine with the embedder that ships, under both presets."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.vocabulary import Attribution, RiskLevel
from tests.dpe.helpers import check, kinds
from tests.dpe.texts import HARBOUR, TEXTS


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    return OnnxEmbedder()


@pytest.mark.parametrize("text", TEXTS)
def test_verbatim(embedder: OnnxEmbedder, text: str) -> None:
    report = check(text, TEXTS, embedder=embedder)
    assert kinds(report) == []
    assert report.risk_level is RiskLevel.LOW
    assert report.grounding_pct == 1.0


def test_an_edit_and_an_invention(embedder: OnnxEmbedder) -> None:
    changed = check(HARBOUR.replace("640", "460"), TEXTS, embedder=embedder)
    assert kinds(changed) == ["NUMBER_CHANGED"]
    assert changed.grounding_pct == 1.0
    invented = check(
        "Professor Karl Stein of Oxford discovered 57 new species in 1911.",
        TEXTS,
        embedder=embedder,
    )
    assert invented.claims[0].attribution is Attribution.UNVERIFIABLE
    assert invented.risk_level is RiskLevel.CRITICAL


def test_a_paraphrase_without_shared_words_is_at_least_as_near_as_without_it(
    embedder: OnnxEmbedder,
) -> None:
    answer = "Vessels carrying passengers are not served by the jetty."
    with_, without = (check(answer, [HARBOUR], embedder=e) for e in (embedder, None))
    assert with_.claims[0].similarity is not None
    assert without.claims[0].similarity is not None
    assert with_.claims[0].similarity >= without.claims[0].similarity
    assert kinds(with_) == []


@pytest.mark.requirement("005-4.3-1")
def test_the_literal_preset_compares_with_stored_vectors(embedder: OnnxEmbedder) -> None:
    facts = ["The port authority employs 640 people.", "Whales are mammals that live in the sea."]
    vectors = embedder.embed_passages(facts)
    report = check(
        f"{facts[0]} {facts[1]}", facts,
        embedder=embedder, vectors=vectors, settings=DpeSettings.preset("literal"),
    )  # fmt: skip
    assert [c.attribution for c in report.claims] == [Attribution.CONTEXT_GROUNDED] * 2
    assert [c.evidence[0].fact_id for c in report.claims] == ["f1", "f2"]
    assert all(c.similarity == pytest.approx(1.0, abs=1e-4) for c in report.claims)
    assert report.embedder == embedder.identity

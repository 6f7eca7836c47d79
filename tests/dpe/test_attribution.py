"""Stage 2 of `literal`: attribution by cosine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.derivation import dominant
from crp_integrations.dpe.risk import grounding_pct
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.attribution import classify
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.errors import ConfigError, EngineError, RequestError
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import Attribution, ClaimType, GroundingMode
from tests.doubles import HashEmbedder
from tests.dpe.helpers import LITERAL
from tests.dpe.helpers import check as plain_check
from tests.dpe.helpers import check_literally as check
from tests.dpe.texts import HARBOUR, LIBRARY, TEXTS


class Dial:
    """Gives the fact (1, 0) and a claim the vector with a chosen cosine to it."""

    identity = "dial/2"
    dimensions = 2
    thresholds: Mapping[str, float] = {}

    def __init__(self, cosine: float) -> None:
        self.row = np.array([cosine, np.sqrt(1 - cosine**2)], dtype=np.float32)
        self.seen: list[list[str]] = []

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        self.seen.append(list(texts))
        fact = np.array([1, 0], dtype=np.float32)
        return np.stack([fact if text == FACT else self.row for text in texts])

    def embed_query(self, text: str) -> FloatRows:
        return self.embed_passages([text])[0]


FACT = "Entirely other words stand here."
SPECIFIC = "Doctor Moritz measured 860 patients in 2019."
GENERIC = "It is so."


def _literal(cosine: float, answer: str) -> Attribution | None:
    return check(answer, [FACT], embedder=Dial(cosine)).claims[0].attribution


@pytest.mark.requirement("005-4.3-2")
@pytest.mark.parametrize("cosine", [0.7500001, 0.8, 1.0])
def test_literal_grounded(cosine: float) -> None:
    assert _literal(cosine, SPECIFIC) is Attribution.CONTEXT_GROUNDED


@pytest.mark.requirement("005-4.3-3")
@pytest.mark.parametrize("cosine", [0.6000001, 0.7, 0.745, 0.7499])
def test_literal_mixed_up_to_the_threshold(cosine: float) -> None:
    assert _literal(cosine, SPECIFIC) is Attribution.MIXED


@pytest.mark.requirement("005-4.3-4")
@pytest.mark.parametrize("cosine", [0.0, 0.3, 0.5999])
def test_literal_below(cosine: float) -> None:
    assert _literal(cosine, SPECIFIC) is Attribution.UNVERIFIABLE
    assert _literal(cosine, GENERIC) is Attribution.PARAMETRIC


@pytest.mark.requirement("005-4.3-2", "005-4.3-3", "005-4.3-4")
@pytest.mark.parametrize(
    ("score", "specificity", "wanted"),
    [
        (0.75, 0.0, Attribution.CONTEXT_GROUNDED),
        (0.74999, 1.0, Attribution.MIXED),
        (0.60, 0.0, Attribution.MIXED),
        (0.59999, 0.30, Attribution.UNVERIFIABLE),
        (0.59999, 0.29999, Attribution.PARAMETRIC),
    ],
)
def test_the_bounds_themselves(score: float, specificity: float, wanted: Attribution) -> None:
    assert classify(score, specificity, DpeSettings()) is wanted


@pytest.mark.requirement("005-4.3-5")
@pytest.mark.requirement("005-4.3-1")
def test_literal_compares_with_every_fact_by_the_embedder() -> None:
    answer = "Readers may borrow rare books only if a librarian is present."
    embedder = HashEmbedder()
    report = check(answer, TEXTS, embedder=embedder)
    cosines = embedder.embed_passages(list(TEXTS)) @ embedder.embed_query(answer)
    assert report.claims[0].similarity == pytest.approx(float(cosines.max()), abs=1e-5)
    given_vectors = check(
        answer,
        TEXTS,
        embedder=embedder,
        vectors=embedder.embed_passages(list(TEXTS)),
    )
    assert given_vectors.claims == report.claims
    assert report.embedder == embedder.identity
    assert any(embedder.identity in run.engine and "cosine" in run.engine for run in report.stages)


def test_the_rule_needs_an_embedder() -> None:
    with pytest.raises(ConfigError, match="needs an embedder"):
        plain_check("It is so.", [FACT], verifier=AlignmentVerifier(), settings=LITERAL)


def test_vectors_must_fit() -> None:
    with pytest.raises(RequestError, match="1 vectors for 4 passages"):
        check("It is so.", TEXTS, vectors=np.zeros((1, 256), dtype=np.float32))
    with pytest.raises(EngineError, match=r"wanted \(n, 256\)"):
        check("So.", TEXTS, embedder=HashEmbedder(), vectors=np.zeros((4, 3), dtype=np.float32))


@pytest.mark.requirement("005-4.1-1", "005-4.2-1")
@given(
    places=st.lists(st.sampled_from(range(8)), max_size=8), grounding=st.sampled_from(GroundingMode)
)
def test_every_factual_claim_has_exactly_one_attribution(
    places: list[int], grounding: GroundingMode
) -> None:
    pool = [
        *HARBOUR.split(". "),
        "Doctor Quill sold 99 boats",
        "I think so",
        "It is so",
        "See above",
    ]
    report = check(". ".join(pool[p] for p in places), [HARBOUR, LIBRARY], grounding=grounding)
    for claim in report.claims:
        factual = claim.claim_type is ClaimType.FACTUAL
        assert (claim.attribution in set(Attribution)) == factual
    assert sum(report.attribution_breakdown.values()) == report.claims_by_type["FACTUAL"]


@pytest.mark.requirement("005-4.2-1")
def test_the_four_attributions_in_order_of_risk() -> None:
    cosines = {
        Attribution.CONTEXT_GROUNDED: (1.0, SPECIFIC),
        Attribution.MIXED: (0.7, SPECIFIC),
        Attribution.PARAMETRIC: (0.1, GENERIC),
        Attribution.UNVERIFIABLE: (0.1, SPECIFIC),
    }
    reports = {
        name: check(answer, [FACT], embedder=Dial(cosine))
        for name, (cosine, answer) in cosines.items()
    }
    for name, report in reports.items():
        assert [claim.attribution for claim in report.claims] == [name]
        assert report.attribution_dominant is name
    scores = {name: report.signals for name, report in reports.items()}
    assert scores[Attribution.CONTEXT_GROUNDED]["attribution"] == 0.0
    assert scores[Attribution.PARAMETRIC]["attribution"] == 1.0
    assert scores[Attribution.PARAMETRIC]["specificity"] == 0.0
    assert scores[Attribution.UNVERIFIABLE]["specificity"] == 1.0


@pytest.mark.requirement("005-4.4-1", "005-4.5-1")
def test_grounding_counts_grounded_over_factual() -> None:
    answer = "The port authority employs 640 people. Doctor Quill sold 99 yachts to Monaco in 1954."
    report = check(answer, ["The port authority employs 640 people."])
    assert report.grounding_pct == 0.5
    assert report.attribution_breakdown == {
        "CONTEXT_GROUNDED": 1,
        "PARAMETRIC": 0,
        "MIXED": 0,
        "UNVERIFIABLE": 1,
    }
    assert report.attribution_dominant is Attribution.UNVERIFIABLE


@pytest.mark.requirement("005-4.5-2")
def test_the_worked_example() -> None:
    counts = {"CONTEXT_GROUNDED": 31, "PARAMETRIC": 1, "MIXED": 2, "UNVERIFIABLE": 0}
    assert round(grounding_pct(31, sum(counts.values())), 3) == 0.912
    assert dominant(counts) is Attribution.CONTEXT_GROUNDED


@pytest.mark.requirement("005-4.4-2")
@pytest.mark.parametrize("answer", ["", "I think it is lovely."])
def test_without_factual_claims(answer: str) -> None:
    report = check(answer, [HARBOUR])
    assert report.grounding_pct == 1.0
    assert "claims=0" in report.flags
    assert report.attribution_dominant is None
    assert report.signals["attribution"] == 0.0

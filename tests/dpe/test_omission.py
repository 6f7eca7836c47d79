"""Stage 10: important facts that no sentence of the answer uses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import COVERED_FACT, DpeSettings, OmissionSettings
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import Severity
from tests.doubles import HashEmbedder

FERRY = "The ferry to Brannock sails at nine and carries forty cars."
TOWER = "The water tower was repainted green during the long drought."
BAKERY = "The bakery on Mill Lane sells rye bread on Tuesdays."


class _Angles:
    """Each known text lies at its own angle, so that every cosine is known."""

    identity = "angles/2"
    dimensions = 2

    def __init__(self, cosines: dict[str, float], card: dict[str, float] | None = None) -> None:
        self._cosines = cosines
        self.thresholds = card or {}
        self.embedded: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        self.embedded.extend(texts)
        known = [self._cosines.get(text, 1.0) for text in texts]
        rows = [[cosine, (1.0 - cosine * cosine) ** 0.5] for cosine in known]
        return np.array(rows, dtype=np.float32).reshape(len(texts), 2)

    def embed_query(self, text: str) -> FloatRows:
        return self.embed_passages([text])[0]


def _report(
    answer: str,
    facts: Sequence[tuple[str, float]],
    *,
    embedder: Embedder | None = None,
    vectors: FloatRows | None = None,
    settings: DpeSettings | None = None,
    sub_queries: tuple[str, ...] = (),
) -> Report:
    return examine(
        Dossier(
            "",
            answer,
            tuple((f"f{n}", text) for n, (text, _) in enumerate(facts, 1)),
            vectors,
            importances=tuple(weight for _, weight in facts),
            sub_queries=sub_queries,
        ),
        embedder=embedder,
        verifier=AlignmentVerifier(),
        settings=settings or DpeSettings(),
    )


@pytest.mark.requirement("005-12.2-2")
@pytest.mark.parametrize(
    ("importance", "severity"),
    [(1.0, "CRITICAL"), (0.90, "CRITICAL"), (0.89, "HIGH"), (0.80, "HIGH"), (0.79, "MEDIUM"), (0.70, "MEDIUM"), (0.69, None), (0.0, None)],
)  # fmt: skip
def test_the_severity_follows_the_importance(importance: float, severity: str | None) -> None:
    report = _report(BAKERY, [(FERRY, importance)])
    assert [omission.severity.value for omission in report.omissions] == [severity] * bool(severity)
    counted = {name: int(name == severity) for name in ("CRITICAL", "HIGH", "MEDIUM")}
    assert report.omission_summary == counted
    assert list(report.omission_summary) == ["CRITICAL", "HIGH", "MEDIUM"]


@pytest.mark.requirement("005-12.2-1")
@given(
    st.lists(st.tuples(st.floats(0.0, 0.99), st.floats(0.0, 1.0)), min_size=1, max_size=6),
    st.booleans(),
)
def test_literal_flags_important_facts_below_point_six(
    facts: list[tuple[float, float]], stored: bool
) -> None:
    texts = [f"Fact number {n} stands here." for n in range(len(facts))]
    embedder = _Angles({text: cosine for text, (cosine, _) in zip(texts, facts, strict=True)})
    rows = embedder.embed_passages(texts)
    report = _report(
        "One sentence. Another sentence.",
        [(text, weight) for text, (_, weight) in zip(texts, facts, strict=True)],
        embedder=embedder,
        vectors=rows if stored else None,
        settings=DpeSettings.preset("literal"),
    )
    wanted = [
        f"f{n}"
        for n, (cosine, weight) in enumerate(facts, 1)
        if weight >= 0.70 and round(float(np.float32(cosine)), 6) < COVERED_FACT
    ]
    assert [omission.fact_id for omission in report.omissions] == wanted


@pytest.mark.requirement("005-12.2-1")
def test_one_sentence_that_uses_the_fact_is_enough() -> None:
    embedder = _Angles({FERRY: 1.0, "It rains.": 0.1, "The ferry leaves at nine.": 0.7})
    literal = DpeSettings.preset("literal")
    used = _report("It rains. The ferry leaves at nine.", [(FERRY, 0.9)], embedder=embedder, settings=literal)  # fmt: skip
    assert used.omissions == ()
    unused = _report("It rains.", [(FERRY, 0.9)], embedder=embedder, settings=literal)
    assert [(o.fact_id, o.severity, o.score) for o in unused.omissions] == [
        ("f1", Severity.CRITICAL, 0.1)
    ]


@pytest.mark.requirement("005-12.2-1")
def test_the_embedders_own_threshold_is_taken_and_named() -> None:
    cosines = {FERRY: 1.0, "It rains.": 0.5}
    calibrated = _Angles(cosines, {"omission": 0.45})
    carded = DpeSettings(verifier="alignment", decides="composite", omission=OmissionSettings())
    report = _report("It rains.", [(FERRY, 0.9)], embedder=calibrated, settings=carded)
    assert report.omissions == ()
    assert [run.engine for run in report.stages if run.number == 10] == [
        "cosine@1 with angles/2 from 0.45"
    ]
    plain = _report("It rains.", [(FERRY, 0.9)], embedder=_Angles(cosines), settings=carded)
    assert len(plain.omissions) == 1
    literal = DpeSettings.preset("literal")
    assert literal.omission.covered == COVERED_FACT == 0.60
    strict = _report("It rains.", [(FERRY, 0.9)], embedder=calibrated, settings=literal)
    assert len(strict.omissions) == 1


@pytest.mark.requirement("005-12.1-1", "005-15.2-2")
def test_an_omission_is_not_incompleteness() -> None:
    question = ("The ferry to Brannock sails at nine",)
    words = {"embedder": HashEmbedder(), "settings": DpeSettings.preset("literal")}
    facts = [(FERRY, 0.9), (TOWER, 0.9)]
    answered = _report(FERRY, facts, sub_queries=question, **words)
    assert [omission.fact_id for omission in answered.omissions] == ["f2"]
    assert answered.uncovered_sub_queries == ()
    evaded = _report(TOWER + " " + BAKERY, facts, sub_queries=question, **words)
    assert [omission.fact_id for omission in evaded.omissions] == ["f1"]
    assert evaded.uncovered_sub_queries == question
    neither = _report(BAKERY, [(FERRY, 0.1)], sub_queries=question, **words)
    assert neither.omissions == ()
    assert neither.uncovered_sub_queries == question


def test_without_importances_nothing_is_said_to_be_checked() -> None:
    dossier = Dossier("", BAKERY, (("f1", FERRY),))
    report = examine(dossier, embedder=None, verifier=None, settings=DpeSettings())
    assert 10 not in [run.number for run in report.stages]
    assert "omissions-not-checked" in report.flags
    with pytest.raises(RequestError, match="importances"):
        Dossier("", "", (("f1", FERRY),), importances=(0.1, 0.2))


def test_stored_vectors_are_not_made_again() -> None:
    embedder = _Angles({FERRY: 1.0, "It rains.": 0.1})
    rows = embedder.embed_passages([FERRY])
    embedder.embedded.clear()
    _report("It rains.", [(FERRY, 0.9)], embedder=embedder, vectors=rows)
    assert FERRY not in embedder.embedded


def test_importances_out_of_order_are_refused() -> None:
    with pytest.raises(ConfigError, match="medium"):
        OmissionSettings(medium=0.95)


def test_no_text_of_a_fact_is_in_an_omission() -> None:
    report = _report(BAKERY, [(FERRY, 0.9)])
    assert "Brannock" not in repr(report.omissions)

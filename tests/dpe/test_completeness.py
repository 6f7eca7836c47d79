"""Stage 8: which needs of the question the answers of a session address."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.settings import QualitySettings
from crp_integrations.dpe.stages.completeness import level
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.envelope.decomposition import decompose
from crp_integrations.envelope.settings import DecomposeSettings
from crp_integrations.vocabulary import CompletenessLevel
from tests.dpe import windows
from tests.dpe.helpers import LITERAL

COMPLETE, MOSTLY, PARTIAL, INCOMPLETE = CompletenessLevel
QUESTION = (
    "Compare EU AI Act and GDPR approaches to automated decision-making and list the compliance "
    "requirements for each"
)
NEEDS = decompose(QUESTION, DecomposeSettings())
FIRST = (
    "The EU AI Act classifies AI systems into four risk levels. Automated decision-making in "
    "employment or credit is high-risk under the Act. The GDPR takes another approach than the EU "
    "AI Act: Article 22 gives people the right not to be subject to automated decision-making."
)
SECOND = (
    "Building on this classification, the EU AI Act sets compliance requirements for high-risk "
    "systems, such as logging and human oversight. The GDPR sets other compliance requirements, "
    "such as an impact assessment and a lawful basis."
)


after = partial(windows.after, settings=LITERAL)


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    return OnnxEmbedder()


@pytest.mark.requirement("005-10.2-2")
def test_the_worked_example_has_five_needs() -> None:
    assert NEEDS == (
        "EU AI Act approach to automated decision-making",
        "GDPR approach to automated decision-making",
        "Comparison between the two approaches",
        "EU AI Act compliance requirements",
        "GDPR compliance requirements",
    )


@pytest.mark.requirement("005-10.1-1")
def test_all_windows_of_the_session_count_together() -> None:
    needs = ["History of Rome", "History of Oslo"]
    rome, oslo = "The history of Rome is long.", "The history of Oslo is long."
    first = after(rome, sub_queries=needs)
    assert first.quality.completeness.covered == ("History of Rome",)
    assert first.uncovered_sub_queries == ("History of Oslo",)
    assert after(oslo, sub_queries=needs).completeness_score == 0.5
    both = after(oslo, rome, sub_queries=needs)
    assert both.quality.completeness.level is COMPLETE
    assert both.uncovered_sub_queries == ()
    assert both.quality.completeness.new == ("History of Oslo",)
    # Nothing of the context was needed to say so, and the ungrounded answer is no less complete.
    assert both.grounding_pct == 0.0


def test_without_a_judge_nobody_knows_which_needs_are_covered() -> None:
    report = windows.after("The history of Rome is long.", sub_queries=["History of Rome"])
    assert report.completeness_score is None
    assert report.quality.completeness.level is None


@pytest.mark.requirement("005-10.2-4")
@pytest.mark.parametrize("count", range(6))
def test_the_score_is_the_share_of_covered_needs(count: int) -> None:
    things = ("Rome", "Oslo", "Lima", "Cairo", "Quito")
    needs = [f"History of {thing}" for thing in things]
    answer = " ".join(f"The history of {thing} is long." for thing in things[:count])
    report = after(answer or "Nothing.", sub_queries=needs)
    assert report.completeness_score == count / 5
    assert len(report.uncovered_sub_queries) == 5 - count


@pytest.mark.requirement("005-10.2-3")
def test_literal_compares_each_need_with_every_sentence(embedder: OnnxEmbedder) -> None:
    assert LITERAL.quality.covered == 0.70
    need, sentence = "GDPR compliance requirements", "The GDPR has compliance requirements."
    rows = embedder.embed_passages([need, sentence, "Tulips bloom in spring."])
    assert float(rows[0] @ rows[1]) > 0.70 > float(rows[0] @ rows[2])
    for answer, covered in ((f"Tulips bloom in spring. {sentence}", 1.0),
                            ("Tulips bloom in spring.", 0.0)):  # fmt: skip
        report = after(answer, sub_queries=[need], embedder=embedder)
        assert report.completeness_score == covered
    run = next(run for run in report.stages if run.number == 8)
    assert run.engine == f"cosine@1 with {embedder.identity}"
    assert report.thresholds["quality.covered"] == 0.70


@pytest.mark.requirement("005-10.2-5", "005-10.2-6", "005-10.2-7", "005-10.2-8")
@pytest.mark.parametrize(
    ("covered", "name", "with_windows", "without"),
    [
        (10, COMPLETE, "", ""),
        (9, COMPLETE, "", ""),
        (8, MOSTLY, "continue", ""),
        (7, MOSTLY, "continue", ""),
        (6, PARTIAL, "continue", "broaden"),
        (4, PARTIAL, "continue", "broaden"),
        (3, INCOMPLETE, "continue", "warn"),
        (0, INCOMPLETE, "continue", "warn"),
    ],
)
def test_levels_and_what_they_recommend(
    covered: int, name: CompletenessLevel, with_windows: str, without: str
) -> None:
    things = ("Rome", "Oslo", "Lima", "Cairo", "Quito", "Paris", "Bern", "Kyiv", "Riga", "Delhi")
    needs = [f"History of {thing}" for thing in things]
    answer = " ".join(f"The history of {thing} is long." for thing in things[:covered]) or "Well."
    for left, wanted in ((2, with_windows), (0, without)):
        found = after(answer, sub_queries=needs, windows_left=left).quality.completeness
        assert (found.level, found.recommendation) == (name, wanted)


@pytest.mark.parametrize(
    ("score", "name"),
    [(0.9, COMPLETE), (0.8999, MOSTLY), (0.7, MOSTLY), (0.6999, PARTIAL), (0.4, PARTIAL),
     (0.3999, INCOMPLETE)],
)  # fmt: skip
def test_lower_bounds_are_included(score: float, name: CompletenessLevel) -> None:
    assert level(score, QualitySettings()) is name


def test_without_needs_the_report_says_that_there_were_none() -> None:
    report = after("Tulips bloom.")
    assert report.completeness_score is None
    assert "sub-queries=0" in report.flags
    assert next(run.engine for run in report.stages if run.number == 8) == "no sub-queries"


@given(st.permutations([FIRST, SECOND]), st.integers(0, 5))
def test_more_answers_never_cover_less(texts: list[str], count: int) -> None:
    needs = NEEDS[:count]
    one = after(texts[0], sub_queries=needs).completeness_score
    two = after(texts[1], texts[0], sub_queries=needs).completeness_score
    assert (two or 0.0) >= (one or 0.0)

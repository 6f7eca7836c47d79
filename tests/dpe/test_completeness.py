"""Stage 8: which needs of the question the answers of a session address."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe import state
from crp_integrations.dpe.settings import QualitySettings
from crp_integrations.dpe.stages import completeness
from crp_integrations.dpe.stages.completeness import level
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.envelope.decomposition import decompose
from crp_integrations.envelope.settings import DecomposeSettings
from crp_integrations.vocabulary import CompletenessLevel
from tests.dpe.helpers import LITERAL
from tests.dpe.windows import after

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


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    return OnnxEmbedder()


def test_the_answer_is_taken_apart_once_for_all_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    segmented: list[str] = []
    needed: list[Sequence[str]] = []
    plain, plainly = state.segment, completeness.needs_of
    monkeypatch.setattr(state, "segment", lambda text: segmented.append(text) or plain(text))
    monkeypatch.setattr(
        completeness, "needs_of", lambda texts: needed.append(texts) or plainly(texts)
    )
    first = after(FIRST, sub_queries=NEEDS)
    assert segmented == [FIRST]
    # Before it nothing was said, so there is nothing to look for the needs in.
    assert len(needed) == 1
    assert [(one.start, one.end) for one in first.claims] == [
        (one.start, one.end) for one in plain(FIRST)
    ]
    assert after(FIRST, "", sub_queries=NEEDS).quality.completeness == first.quality.completeness


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
@pytest.mark.parametrize("embedded", [True, False])
def test_all_windows_of_the_session_count_together(embedder: OnnxEmbedder, embedded: bool) -> None:
    engine = embedder if embedded else None
    first = after(FIRST, sub_queries=NEEDS, embedder=engine)
    assert first.quality.completeness.covered == NEEDS[:3]
    assert first.uncovered_sub_queries == NEEDS[3:]
    alone = after(SECOND, sub_queries=NEEDS, embedder=engine)
    assert alone.completeness_score < 1.0
    both = after(SECOND, FIRST, sub_queries=NEEDS, embedder=engine)
    assert both.quality.completeness.level is COMPLETE
    assert both.uncovered_sub_queries == ()
    assert both.quality.completeness.new == NEEDS[3:]
    # Nothing of the context was needed to say so, and the ungrounded answer is no less complete.
    assert both.grounding_pct == 0.0


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
        report = after(answer, sub_queries=[need], embedder=embedder, settings=LITERAL)
        assert report.completeness_score == covered
    run = next(run for run in report.stages if run.number == 8)
    assert run.engine == f"cosine@1 with {embedder.identity}"
    assert report.thresholds["quality.covered"] == 0.70
    default = after(sentence, sub_queries=[need], embedder=embedder)
    assert default.thresholds["quality.covered"] == embedder.thresholds["covered_need"]


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


@pytest.mark.parametrize(
    "talk",
    [
        "I cannot find the history of Oslo in the documents.",
        "There is no information about the history of Oslo.",
        "The documents do not mention the history of Oslo.",
        "What is the history of Oslo?",
        "The history of Oslo will be covered next.",
    ],
)
@pytest.mark.parametrize("embedded", [True, False])
def test_talk_about_a_need_does_not_cover_it(
    embedder: OnnxEmbedder, embedded: bool, talk: str
) -> None:
    engine = embedder if embedded else None
    report = after(
        f"The history of Rome is long. {talk}",
        sub_queries=["History of Rome", "History of Oslo"],
        embedder=engine,
    )
    assert report.uncovered_sub_queries == ("History of Oslo",)


def test_what_is_said_of_another_thing_covers_no_need(embedder: OnnxEmbedder) -> None:
    report = after(
        "The EU AI Act sets compliance requirements, such as logging.",
        sub_queries=NEEDS[3:],
        embedder=embedder,
    )
    assert report.uncovered_sub_queries == ("GDPR compliance requirements",)


@pytest.mark.parametrize(
    ("need", "answer"),
    [("When was it opened?", "In 1932."), ("How many people work there?", "640 people."),
     ("Who opened it?", "Queen Anna.")],
)  # fmt: skip
def test_a_short_answer_need_not_repeat_the_question(need: str, answer: str) -> None:
    assert after(answer, sub_queries=[need]).completeness_score == 1.0
    assert after("That is hard.", sub_queries=[need]).completeness_score == 0.0


def test_without_needs_the_report_says_that_there_were_none() -> None:
    report = after("Tulips bloom.")
    assert report.completeness_score == 1.0
    assert "sub-queries=0" in report.flags
    assert next(run.engine for run in report.stages if run.number == 8) == "no sub-queries"


@given(st.permutations([FIRST, SECOND]), st.integers(0, 5))
def test_more_answers_never_cover_less(windows: list[str], count: int) -> None:
    needs = NEEDS[:count]
    one = after(windows[0], sub_queries=needs).completeness_score
    two = after(windows[1], windows[0], sub_queries=needs).completeness_score
    assert two >= one

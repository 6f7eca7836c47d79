"""Stage 7: how much of an answer earlier windows have said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.settings import DpeSettings, QualitySettings
from crp_integrations.dpe.stages.coherence import gram_overlap, level
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.vocabulary import RepetitionLevel
from tests.dpe.helpers import LITERAL
from tests.dpe.texts import HARBOUR, TEXTS
from tests.dpe.windows import after

NONE, MINOR, SIGNIFICANT, SEVERE = RepetitionLevel
DEFAULT = QualitySettings()


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    return OnnxEmbedder()


@pytest.mark.requirement("005-9.2-1")
def test_overlap_is_the_share_of_the_answers_grams() -> None:
    # Five grams, of which "a b c d" and "b c d e" were said, in two windows.
    assert gram_overlap("a b c d e x y z", ["a b c d", "q b c d e"]) == pytest.approx(2 / 5)
    # A gram does not reach over the end of a window.
    assert gram_overlap("a b c d", ["a b", "c d"]) == 0.0
    assert gram_overlap("a b c", ["a b c"]) == 0.0
    report = after("a b c d e x y z.", "a b c d.", "q b c d e.")
    assert report.repetition_overlap == pytest.approx(0.4)
    assert report.quality.repetition.overlap == report.repetition_overlap


@pytest.mark.requirement("005-9.2-3", "005-9.2-4", "005-9.2-5", "005-9.2-6", "005-9.2-7")
@pytest.mark.parametrize(
    ("overlap", "semantic", "found"),
    [
        (0.0, 0.0, NONE), (0.0499, 0.0999, NONE),
        (0.05, 0.0, MINOR), (0.0, 0.10, MINOR), (0.1499, 0.2499, MINOR),
        (0.15, 0.0, SIGNIFICANT), (0.0, 0.25, SIGNIFICANT), (0.2999, 0.4999, SIGNIFICANT),
        (0.30, 0.0, SEVERE), (0.0, 0.50, SEVERE), (1.0, 1.0, SEVERE),
        # The worse of the two.
        (0.0, 0.6, SEVERE), (0.31, 0.0, SEVERE), (0.2, 0.11, SIGNIFICANT), (0.06, 0.3, SIGNIFICANT),
    ],
)  # fmt: skip
def test_levels(overlap: float, semantic: float, found: RepetitionLevel) -> None:
    assert level(overlap, semantic, DEFAULT) is found


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_more_repetition_is_never_a_better_level(a: float, b: float, c: float, d: float) -> None:
    order = list(RepetitionLevel)
    low = level(min(a, c), min(b, d), DEFAULT)
    assert order.index(low) <= order.index(level(max(a, c), max(b, d), DEFAULT))


@pytest.mark.requirement("005-9.2-2")
def test_a_sentence_is_repeated_above_the_literal_threshold(embedder: OnnxEmbedder) -> None:
    assert LITERAL.quality.repeated == 0.92
    prior = "The port authority employs 640 people."
    near = "The port authority employs 640 persons."
    far = "Whales are mammals that live in the sea."
    cosine = float(embedder.embed_passages([prior])[0] @ embedder.embed_passages([near])[0])
    assert cosine > 0.92
    report = after(f"{near} {far}", prior, embedder=embedder, settings=LITERAL)
    assert report.quality.repetition.semantic == 0.5
    assert report.quality.repetition.sentences == ((0, len(near)),)
    assert report.thresholds["quality.repeated"] == 0.92
    strict = LITERAL.model_copy(
        update={"quality": LITERAL.quality.model_copy(update={"repeated": cosine + 0.001})}
    )
    report = after(f"{near} {far}", prior, embedder=embedder, settings=strict)
    assert report.quality.repetition.semantic == 0.0


def test_the_default_threshold_is_the_embedders(embedder: OnnxEmbedder) -> None:
    report = after(HARBOUR, HARBOUR, embedder=embedder)
    assert report.thresholds["quality.repeated"] == embedder.thresholds["repeated_sentence"]
    assert report.repetition_level is SEVERE


def test_another_figure_is_news_and_counts_as_repeated_in_literal_only(
    embedder: OnnxEmbedder,
) -> None:
    prior = "The port authority of Rotterdam employs 640 people in its offices."
    here = prior.replace("640", "655")
    assert after(here, prior, embedder=embedder).quality.repetition.semantic == 0.0
    literal = after(here, prior, embedder=embedder, settings=LITERAL)
    assert literal.quality.repetition.semantic == 1.0


@pytest.mark.parametrize("settings", [DpeSettings(), LITERAL], ids=["default", "literal"])
def test_repeated_and_new_windows_are_told_apart(
    embedder: OnnxEmbedder, settings: DpeSettings
) -> None:
    first, *rest = TEXTS
    again = after(first, first, *rest, embedder=embedder, settings=settings)
    fresh = after(first, *rest, embedder=embedder, settings=settings)
    assert again.repetition_level is SEVERE
    assert fresh.repetition_level is NONE


def test_common_words_decide_without_an_embedder_and_the_engine_says_so() -> None:
    report = after("The port employs many people.", "The port employs many people!")
    assert report.quality.repetition.semantic == 1.0
    run = next(run for run in report.stages if run.number == 7)
    assert "no embedder" in run.engine


def test_the_first_window_repeats_nothing() -> None:
    report = after(HARBOUR)
    assert (report.repetition_level, report.repetition_overlap) == (NONE, 0.0)
    assert next(run.engine for run in report.stages if run.number == 7) == "no earlier window"


def test_an_answer_without_a_sentence_repeats_nothing() -> None:
    assert after("…", HARBOUR).quality.repetition.semantic == 0.0
    assert after("", HARBOUR).repetition_level is NONE


@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3))
def test_an_answer_that_was_given_before_is_wholly_repeated(texts: list[str]) -> None:
    answer = "\n\n".join(texts)
    report = after(answer, answer)
    assert report.quality.repetition.semantic == 1.0
    assert report.repetition_overlap == 1.0

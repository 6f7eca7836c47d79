"""Overlap, words and differences."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.language.differences import differ
from crp_integrations.language.lexical_overlap import (
    OverlapIndex,
    best_windows,
    coverage,
    inverse_frequency,
)
from crp_integrations.language.words import content_stems, stem, words


def test_coverage():
    assert coverage("The policy applies", "Policies that apply to firms") == 1.0
    assert coverage("The policy applies", "nothing of it") == 0.0
    assert coverage("the of", "anything") == 1.0
    rare = inverse_frequency(["policy a", "policy b", "policy zebra"])
    assert rare["zebra"] > rare["polici"]
    assert coverage("policy zebra", "policy", rare) < 0.5


def test_a_sentence_is_found_in_a_context_two_hundred_times_as_long():
    random.seed(3)
    vocabulary = [f"word{number}" for number in range(500)]
    claim = "The Zurich office earned 42 crowns from turbines"
    noise = [" ".join(random.choices(vocabulary, k=900)) for _ in range(20)]
    place = len(noise[17])
    noise[17] += " " + claim
    best = best_windows(claim, noise, size=200, count=3)[0]
    assert best.passage == 17
    assert best.start <= place + 1
    assert best.end >= place + len(claim)
    assert best.score == pytest.approx(1.0)


@given(
    st.lists(st.text(alphabet="abc d.", max_size=60), max_size=9),
    st.text(alphabet="abc d", max_size=20),
    st.integers(1, 4),
)
def test_the_nearest_passages_are_those_of_the_best_windows_as_wide(passages, claim, count):
    index = OverlapIndex(passages)
    windows = index.best_windows(claim, size=200, count=count)
    assert index.nearest(claim, count) == [window.passage for window in windows]


@given(
    st.lists(st.text(alphabet="abc d.", max_size=60), max_size=4),
    st.text(alphabet="abc d", max_size=20),
)
def test_windows_lie_in_their_passages(passages, claim):
    windows = OverlapIndex(passages).best_windows(claim, size=20, count=3)
    assert len(windows) <= 3
    for window in windows:
        assert 0 <= window.start < window.end <= len(passages[window.passage])
        assert 0.0 <= window.score <= 1.0
    assert [w.score for w in windows] == sorted((w.score for w in windows), reverse=True)


@pytest.mark.parametrize(
    ("left", "right", "different"),
    [
        ("It earned 4.2 million.", "It earned 4,200,000.", False),
        ("It began on 12 March 2024.", "It began on 2024-03-12.", False),
        ("The road is 5 km long.", "The road is 5,000 m long.", False),
        ("It earned $4.2M.", "It earned $4.8M.", True),
        ("It began in 2024.", "It began in 2023.", True),
        ("It is 5 km long.", "It is 5 miles long.", True),
        ("The policy applies.", "The policy does not apply.", True),
        ("See Article 22.", "See Article 21.", True),
        ("GPT-4 is used.", "GPT-3 is used.", True),
        ("At least 5 users came.", "At most 5 users came.", True),
        ("The same text.", "the same  text.", False),
        (
            "It ran in March 2024 and in March 2024.",
            "It ran in March 2024 and in March 2021.",
            True,
        ),
    ],
)
def test_differences(left, right, different):
    assert differ(left, right) is different
    assert differ(right, left) is different


def test_words_and_stems():
    assert [word.text for word in words("It's U.S. state-of-the-art.")] == [
        "It's",
        "U.S",
        "state-of-the-art",
    ]
    assert stem("Applies") == stem("applied")
    assert content_stems("the of and") == []


@given(st.text(max_size=120))
def test_words_have_exact_offsets(text):
    for word in words(text):
        assert text[word.start : word.end] == word.text

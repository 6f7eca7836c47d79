"""Overlap of texts, what scoring reads of them, and differences between them."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.language.lexical_overlap import (
    OverlapIndex,
    coverage,
    inverse_frequency,
    named_stems,
    profiles,
    question_stems,
    sentence_spans,
)
from crp_integrations.language.negation import differ
from crp_integrations.language.words import content_stems, stem, stems_of, words


def test_coverage():
    assert coverage("The policy applies", "Policies that apply to firms") == 1.0
    assert coverage("The policy applies", "nothing of it") == 0.0
    assert coverage("the of", "anything") == 1.0
    rare = inverse_frequency(["policy a", "policy b", "policy zebra"])
    assert rare["zebra"] > rare["polici"]
    assert coverage("policy zebra", "policy", rare) < 0.5


@given(
    st.lists(st.text(alphabet="abc d.", max_size=60), max_size=9),
    st.text(alphabet="abc d", max_size=20),
    st.integers(1, 4),
)
def test_the_nearest_passages_are_those_that_cover_most_of_a_claim(passages, claim, count):
    index = OverlapIndex(passages)
    shared = [coverage(claim, passage, index.idf) for passage in passages]
    stems = set(content_stems(claim))
    having = [n for n, passage in enumerate(passages) if stems & set(content_stems(passage))]
    ranked = sorted(having, key=lambda n: (-round(shared[n], 9), n))
    found = index.nearest(claim, count)
    assert [round(shared[n], 9) for n in found] == [round(shared[n], 9) for n in ranked[:count]]


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


HOSTILE = {
    "one long word": "a",
    "capitals": "A",
    "controls": "\x00\x1b\u202e",
    "emoji": "👩‍👩‍👧‍👦",
    "no spaces": "漢字",
    "line breaks": "\n",
    "points": ".",
    "names": "Ada of ",
    "abbreviations": "X. ",
    "unseen": "\u200b",
    "marks": "e\u0301",
}
PIECES = st.lists(
    st.sampled_from([*HOSTILE.values(), "word ", "A name. ", "\n\n", " " * 9, "x" * 500, "1,5 % "]),
    max_size=60,
).map("".join)
# Longer than this is cut, shorter than that joins its neighbour.
LONG, SHORT = 480, 40


@settings(max_examples=150)
@given(st.one_of(st.text(max_size=1_500), PIECES))
def test_stretches_hold_every_character_that_is_no_white_space_once_in_order(text: str) -> None:
    place = 0
    for span in sentence_spans(text):
        assert place <= span.start < span.end <= len(text)
        assert not text[place : span.start].strip()
        assert span.end - span.start <= LONG
        place = span.end
    assert not text[place:].strip()


@settings(max_examples=60)
@given(st.one_of(st.text(max_size=600), PIECES))
def test_a_profile_counts_the_stems_of_the_whole_and_of_each_stretch(text: str) -> None:
    (read,) = profiles([text])
    stems = Counter(stems_of(text))
    assert read.words == stems.total()
    assert {stem: read.often(stem) for stem in read.stems} == stems
    for number, (start, end) in enumerate(zip(read.starts, read.ends, strict=True)):
        part = Counter(stems_of(text[start:end]))
        assert read.lengths[number] == part.total()
        within = {
            stem: found.counts[found.parts.index(number)]
            for stem in read.stems
            if number in (found := read.hits(stem)).parts
        }
        assert within == {stem: n for stem, n in part.items() if stem in stems}
    assert profiles([text]) == [read]
    assert profiles([text, "", text]) == [read, *profiles([""]), read]


def test_what_is_said_shortly_joins_its_neighbour_and_a_long_sentence_is_cut_at_a_space() -> None:
    short = "Yes. The Meridian reactor was commissioned on 4 March 2019."
    assert [span.of(short) for span in sentence_spans(short)] == [short]
    long = "and ".join(f"station {n} feeds the grid " for n in range(40)).strip()
    cut = [span.of(long) for span in sentence_spans(long)]
    assert len(cut) > 1
    assert " ".join(cut) == long
    two = f"{'One sentence that is long enough'.ljust(SHORT)}. {'Another of that length'.ljust(SHORT)}."
    assert len(sentence_spans(two)) == 2


def calls(text: str) -> int:
    """Calls that reading a text makes, of functions of its own and of the library alike."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        # Past what is remembered, and names by what is behind the memory.
        profiles([text])
        named_stems.__wrapped__(text)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
def test_work_grows_no_faster_than_the_text(unit: str) -> None:
    small, large = (unit * (size // len(unit)) for size in (9_000, 36_000))
    calls(small)
    assert calls(large) <= 4.5 * calls(small) + 500


def test_a_question_asks_for_each_stem_once_and_for_stop_words_only_without_others() -> None:
    assert question_stems("Who founded the founding company?") == ("found", "compani")
    assert question_stems("who is it, who is the who") == tuple(
        dict.fromkeys(stems_of("who is it, who is the who"))
    )
    assert question_stems("?! …") == question_stems("") == ()


def test_names_have_their_stems_without_stop_words_and_each_once() -> None:
    found = dict(named_stems("Jane Smith of Acme Corp met NATO. NATO met Jane Smith of Acme Corp."))
    assert list(found) == ["Jane Smith of Acme Corp", "NATO"]
    assert found["Jane Smith of Acme Corp"] == ("jane", "smith", "acm", "corp")


def test_stems_do_not_depend_on_another_library_or_on_threads() -> None:
    # PyStemmer, where it is installed, makes "ad" of it.
    assert stem("added") == "add"
    listed = [f"{letter}ingly{number}ations" for letter in "abcdefgh" for number in range(400)]
    one_by_one = [stem.__wrapped__(word) for word in listed]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(stem.__wrapped__, listed)) == one_by_one

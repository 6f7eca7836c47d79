"""What lexical scoring reads of a text: every character in a stretch, in linear work."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.language.lexical_overlap import (
    named_stems,
    profile,
    profiles,
    question_stems,
    sentence_spans,
)
from crp_integrations.language.words import stems_of

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
    read = profile(text)
    stems = Counter(stems_of(text))
    assert read.words == stems.total()
    assert {stem: found.often for stem, found in read.stems.items()} == stems
    for number, (start, end) in enumerate(zip(read.starts, read.ends, strict=True)):
        part = Counter(stems_of(text[start:end]))
        assert read.lengths[number] == part.total()
        within = {
            stem: found.counts[found.parts.index(number)]
            for stem, found in read.stems.items()
            if number in found.parts
        }
        assert within == {stem: n for stem, n in part.items() if stem in stems}
    assert profile(text) == read
    assert profiles([text, "", text]) == [read, profile(""), read]


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
        profile(text)
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

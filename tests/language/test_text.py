"""Folded texts keep a way back to their originals; cached results are bounded and forgotten."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crp_integrations.language.lexical_overlap import named_stems, profiles
from crp_integrations.language.memo import forget, remembered, remembered_within
from crp_integrations.language.text import Span, fold, fold_case_and_space, plain


def test_folding_of_look_alikes():
    assert fold("“It’s” — １２３\u00a0km²").text == '"It\'s" – 123 km²'


def test_invisible_characters_lead_back_to_the_original():
    text = "a 4\u200b2\u00ad0 b"
    folded = fold(text)
    start = folded.text.index("420")
    assert folded.span(start, start + 3).of(text) == "4\u200b2\u00ad0"


@given(st.text(max_size=200))
def test_each_folded_character_has_its_place(text):
    folded = fold(text)
    length = len(folded.text)
    assert length == (len(text) if folded.offsets is None else len(folded.offsets) - 1)
    for place in range(length):
        span = folded.span(place, place + 1)
        assert 0 <= span.start < span.end <= len(text)


@given(st.text(alphabet="a1 \u00a0\r\n\t\u200b", max_size=60))
def test_evening_leads_back_and_joins_no_columns(text):
    even, folded = fold_case_and_space(text), fold(text)
    length = len(even.text)
    assert length == (len(text) if even.offsets is None else len(even.offsets) - 1)
    for place in range(length):
        span = even.span(place, place + 1)
        assert fold(span.of(text)).text == even.text[place]
    assert even.text.replace(" ", "") == folded.text.replace(" ", "")
    assert [line[:1] for line in even.text.split("\n")] == [
        line[:1] for line in folded.text.split("\n")
    ]
    assert fold_case_and_space("1   2").text == "1   2"


def test_a_line_end_of_two_characters_is_one():
    assert fold("a\r\nb\rc").text == "a\nb\nc"


@given(st.text(max_size=200))
@example("\u00c0\u041a")
@example("a\u3164b\uffa0")
@example("\r\u200b\n")
def test_folding_twice_changes_nothing(text):
    once = fold(text).text
    assert fold(once).text == once
    assert plain(plain(text)) == plain(text)


def test_span_holds():
    assert Span(0, 5).holds(Span(1, 5))
    assert not Span(0, 5).holds(Span(1, 6))


def test_only_short_texts_are_remembered():
    from crp_integrations.language.memo import LONGEST, remembered

    seen = []

    @remembered
    def length(text):
        seen.append(len(text))
        return len(text)

    for text in ("ab", "ab", "x" * (LONGEST + 1), "x" * (LONGEST + 1)):
        assert length(text) == len(text)
    assert seen == [2, LONGEST + 1, LONGEST + 1]


def test_texts_are_remembered_within_so_many_characters() -> None:
    read: list[str] = []

    @remembered_within(100, longest=60)
    def length(text: str) -> int:
        read.append(text)
        return len(text)

    one, other, long = "a" * 50, "b" * 50, "c" * 61
    for text in (one, other, one, other, long, long):
        assert length(text) == len(text)
    assert read == [one, other, long, long]
    # The one used longest ago gives way.
    assert [length(text) for text in (one, "d" * 40, one, other)] == [50, 40, 50, 50]
    assert read[4:] == ["d" * 40, other]


@pytest.mark.parametrize("way", [remembered, remembered_within(100, longest=60)])
def test_what_is_forgotten_is_read_anew(
    way: Callable[[Callable[[str], int]], Callable[[str], int]],
) -> None:
    read: list[str] = []

    def length(text: str) -> int:
        read.append(text)
        return len(text)

    known = way(length)
    assert known("text") == known("text") == 4
    forget()
    assert known("text") == 4
    assert read == ["text", "text"]


def test_what_is_read_while_all_is_forgotten_is_not_kept() -> None:
    read: list[str] = []

    @remembered_within(100, longest=60)
    def length(text: str) -> int:
        read.append(text)
        if len(read) == 1:
            # As an erasure in another thread does.
            forget()
        return len(text)

    assert [length("text") for _ in range(3)] == [4, 4, 4]
    assert read == ["text", "text"]


def test_only_texts_of_ordinary_length_have_their_profile_and_names_remembered() -> None:
    short, long = "Ada Lovelace wrote it. " * 9, "Ada Lovelace wrote it. " * 400
    for read in (lambda text: profiles([text])[0], named_stems):
        assert read(short) is read(short)
        assert read(long) == read(long)
        assert read(long) is not read(long)

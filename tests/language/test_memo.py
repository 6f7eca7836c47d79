"""What is remembered of texts: bounded by characters, and gone when something was erased."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crp_integrations.language.lexical_overlap import named_stems, profile
from crp_integrations.language.memo import forget, remembered, remembered_within


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
    for read in (profile, named_stems):
        assert read(short) is read(short)
        assert read(long) == read(long)
        assert read(long) is not read(long)

"""The first look at a text: a rule that it spares finds nothing, and never more nor less than that."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.verifier import values
from crp_integrations.language import dates, identifiers, memo, quantities
from crp_integrations.language.identifiers import Gist, gist

EVERYTHING = Gist(True, None)
MODULES = (dates, identifiers, quantities, values)
PIECES = (
    "12", "3.5", "2024", "March", "may", "sept", "\u00bd", "\u0664", "\u00b2", "half", "twice a day",
    "one", "twenty-first", "Six", "s\u0131x", "\u017feven", "\u212a9", "www.a.org", "https://b.c/d", "e@f.gh",
    "10.1000/x", "Section", "IV", "no.", "\u00a77.4", "ISO", "27001", "a_b", "--flag", "#5", "+44 20 7946",
    "v1.2.3", "per day", "weekly", "[3]", "[1, 2]", "\n2. Run", '"Title"', "\u201cDune\u201d", "and", "the", ".",
    ",", "-", "/", " ", "\n", "a hundred", "once a week", "first", "at first", "FY 23", "12-Mar-2024",
)  # fmt: skip


def everything_of(text: str) -> list[object]:
    memo.forget()
    return [
        identifiers.identifiers(text),
        dates.dates(text),
        quantities.quantities(text),
        values.read(text),
    ]


def without_a_look(text: str, patch: pytest.MonkeyPatch) -> list[object]:
    with patch.context() as patched:
        for module in MODULES:
            patched.setattr(module, "gist", lambda _: EVERYTHING)
        return everything_of(text)


def test_any_two_pieces_are_read_as_without_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, pair in enumerate(itertools.product(PIECES, repeat=2)):
        text = ("", " ")[number % 2].join(("He", *pair, "x"))
        assert everything_of(text) == without_a_look(text, monkeypatch), text
    memo.forget()


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=9))
def test_any_text_is_read_as_without_the_look(pieces: list[str]) -> None:
    text = " ".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        assert everything_of(text) == without_a_look(text, patch)
    memo.forget()


def test_letters_that_only_look_like_others_leave_the_words_open() -> None:
    assert gist("s\u0131x").words is None
    assert not gist("s\u0131x").lacks(frozenset({"six"}))
    assert gist("No figure at all").lacks(frozenset({"six"}))

"""Stems of words against SQLite's FTS5, whose word index the other stores must agree with."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing

from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.language.words import stems_of

ENDS = (
    *("sses", "ies", "eed", "ed", "ing", "y", "e", "ll", "s", "ational", "enci", "izer", "logi"),
    *("bly", "eli", "ization", "alism", "iveness", "biliti", "icate", "ative", "ful", "ness", "al"),
    *("ence", "ible", "ement", "ent", "sion", "ion", "ate", "ive", "ize", "ogy", "ogies", ""),
)
LETTERS = st.text("aeiouybcdlnstvwxz07", max_size=6)
ENGLISH = st.builds("{}{}{}".format, LETTERS, st.sampled_from(ENDS), st.sampled_from(ENDS))
# Characters of old versions of Unicode, which FTS5 knows. Of two letters it keeps the marks.
KNOWN = st.characters(min_codepoint=32, max_codepoint=0x2FFFF, exclude_characters="ǠǡͿ").filter(
    lambda char: unicodedata.ucd_3_2_0.category(char) not in ("Cn", "Co", "Cs")
)
ANY = st.builds("{}{}".format, st.text(KNOWN, max_size=6), st.sampled_from(ENDS))


def fts5_stems(texts: Sequence[str]) -> list[tuple[str, ...]]:
    found: dict[int, list[str]] = defaultdict(list)
    with closing(sqlite3.connect(":memory:")) as raw:
        raw.text_factory = lambda read: read.decode(errors="backslashreplace")
        raw.execute(
            "CREATE VIRTUAL TABLE found USING "
            "fts5 (content, tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        raw.execute("CREATE VIRTUAL TABLE terms USING fts5vocab (found, instance)")
        raw.executemany("INSERT INTO found (rowid, content) VALUES (?, ?)", enumerate(texts))
        for stem, place in raw.execute("SELECT term, doc FROM terms ORDER BY doc, offset"):
            found[place].append(stem)
    return [tuple(found[place]) for place in range(len(texts))]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(ENGLISH, ENGLISH.map(str.title), ANY, ANY.map(str.upper)), max_size=40))
def test_stems_are_those_of_fts5(texts: list[str]) -> None:
    assert [stems_of(text) for text in texts] == fts5_stems(texts)


def test_stems_of_words_that_other_porters_or_foldings_change() -> None:
    text = (
        "Technologies of biology possibly agreed: Straße, новый и ёлка, που πήγε, ΣΊΣΥΦΟΣ, が か "
        "İzmir naïve cafe\u0301 Łódź हिन्दी 10² x\u0345y sses ies eed"
    )
    assert [stems_of(text)] == fts5_stems([text])
    assert {"technolog", "possibl", "новый", "ёлка", "が", "izmir", "naiv", "cafe"} < set(
        stems_of(text)
    )

"""Stems as SQLite's FTS5 makes them with `porter unicode61 remove_diacritics 2`.

The lexical search of every store and engine reads texts and terms through these stems, so that
they find the same facts.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from snowballstemmer.porter_stemmer import PorterStemmer

_TOKEN = re.compile(r"[^\W_]+")
# Bytes of the shortest and the longest word that FTS5 stems; others stay as they are.
_STEMMED = range(3, 65)


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    # The library's own choice would be PyStemmer where that is installed, which stems some words
    # otherwise; and an instance keeps the word it works on, so threads cannot share one.
    return str(PorterStemmer().stemWord(word)) if len(word.encode()) in _STEMMED else word


def stems_of(text: str) -> tuple[str, ...]:
    """Stems of a text's words, lower case and without diacritics, in order.

    >>> stems_of("Re-ranking cafés is")
    ('re', 'rank', 'cafe', 'is')
    """
    bare = text
    if not text.isascii():
        parts = unicodedata.normalize("NFD", text)
        bare = "".join(c for c in parts if not unicodedata.combining(c))
        bare = unicodedata.normalize("NFC", bare)
    return tuple(_stem(word) for word in _TOKEN.findall(bare.lower()))

"""Words, stems, stop words, finite verbs, and the closed word lists of the rules."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from snowballstemmer.english_stemmer import EnglishStemmer

from crp_integrations.language.memo import remembered_of_sentences
from crp_integrations.language.text import fold
from crp_integrations.language.word_lists import LISTS

# Verbs by their base form; `is_finite` uses them to recognize finite verbs.
VERBS: frozenset[str] = frozenset(LISTS["verbs"])

# Irregular past forms and their base verbs.
PAST_OF: dict[str, str] = dict(pair.split("/") for pair in LISTS["past_forms"])
_PARTICIPLES = frozenset(LISTS["participles"])
# Past forms that make a clause finite by themselves.
IRREGULAR: frozenset[str] = (frozenset(PAST_OF) - _PARTICIPLES) | frozenset(
    "cost cut hit hurt let put quit read set shut split spread had lay".split()
)

AUXILIARIES: frozenset[str] = frozenset(LISTS["auxiliaries"])

DETERMINERS: frozenset[str] = frozenset(LISTS["determiners"])

PREPOSITIONS: frozenset[str] = frozenset(LISTS["prepositions"])

PRONOUNS: frozenset[str] = frozenset(LISTS["pronouns"])

# Words that are not names although they often open a sentence with a capital.
ORDINARY: frozenset[str] = frozenset(LISTS["ordinary"])

HONORIFICS: frozenset[str] = frozenset(LISTS["honorifics"])

# Verbs that open an instruction.
IMPERATIVES: frozenset[str] = frozenset(LISTS["imperatives"])


STOP_WORDS: frozenset[str] = frozenset(LISTS["stop_words"])

_WORD = re.compile(r"[^\W_]+(?:['.\-&][^\W_]+)*")
# Calling the named tuple's constructor, a Python function, would halve the speed.
_new = tuple.__new__


class TextWord(NamedTuple):
    """A word of a text.

    Attributes:
        lower: folded and in lower case, for comparing.
    """

    text: str
    start: int
    end: int
    lower: str


@remembered_of_sentences
def words(text: str) -> tuple[TextWord, ...]:
    """The words of a text in order; inner hyphens, apostrophes and points are part of a word."""
    folded = fold(text)
    body = folded.text
    places = [match.span() for match in _WORD.finditer(body)]
    if folded.offsets is None:
        return tuple([_new(TextWord, (text[a:b], a, b, body[a:b].casefold())) for a, b in places])
    tokens = []
    for first, last in places:
        start, end = folded.start(first), folded.end(last)
        tokens.append(TextWord(text[start:end], start, end, body[first:last].casefold()))
    return tuple(tokens)


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The English stem of a word, folded and in lower case."""
    lower = fold(word).text.casefold()
    if lower.endswith("'s"):
        lower = lower[:-2]
    # Not `snowballstemmer.stemmer`: it uses PyStemmer if installed, which stems some words
    # differently. A new instance each time, because instances have state and are not thread-safe.
    return str(EnglishStemmer().stemWord(lower))


def content_stems(text: str) -> list[str]:
    """Stems of all words but stop words, in order, with repeats; hyphenated words are split."""
    lowered = (match.group().casefold() for match in _PART.finditer(fold(text).text))
    return [stem(lower) for lower in lowered if lower not in STOP_WORDS]


class ContentWord(NamedTuple):
    """A stem and the offsets of its word."""

    stem: str
    start: int
    end: int


_PART = re.compile(r"[^\W_]+(?:[.'][^\W_]+)*")


@remembered_of_sentences
def content_words(text: str) -> tuple[ContentWord, ...]:
    """The content stems of a text with their character offsets."""
    folded = fold(text)
    body = folded.text
    occurrences = [
        (lower, start, end)
        for start, end in [match.span() for match in _PART.finditer(body)]
        if (lower := body[start:end].casefold()) not in STOP_WORDS
    ]
    if folded.offsets is None:
        return tuple([_new(ContentWord, (stem(lower), a, b)) for lower, a, b in occurrences])
    return tuple([ContentWord(stem(w), folded.start(a), folded.end(b)) for w, a, b in occurrences])


_TOKEN = re.compile(r"[^\W_]+")
# Lengths in bytes of the words that FTS5 stems; other words stay as they are.
_STEMMED = range(3, 65)
# The last letters of Porter's suffixes; a word that ends otherwise, as most codes do, has none.
_ENDINGS = frozenset("cdegilmnrstuy")


def _endings(pairs: str) -> dict[str, str]:
    return dict(pair.split("/") for pair in pairs.split())


# The suffixes of Porter's steps 2 to 4, each with what replaces it.
_STEP_2 = _endings(
    """ational/ate tional/tion enci/ence anci/ance izer/ize logi/log bli/ble alli/al entli/ent
    eli/e ousli/ous ization/ize ation/ate ator/ate alism/al iveness/ive fulness/ful ousness/ous
    aliti/al iviti/ive biliti/ble"""
)
_STEP_3 = _endings("icate/ic ative/ alize/al iciti/ic ical/ic ful/ ness/")
_STEP_4 = _endings(
    """al/ ance/ ence/ er/ ic/ able/ ible/ ant/ ement/ ment/ ent/ ion/ ou/ ism/ ate/ iti/ ous/ ive/
    ize/"""
)
# Marks that FTS5 drops.
_MARKS = "\u0300-\u0304\u0306-\u030c\u030f\u0311\u031b\u0323-\u0328\u032d\u032e\u0330\u0331"
_MARK = re.compile(f"[{_MARKS}]")


def _shape(word: str) -> str:
    """A word with `v` for each vowel and `c` for each other letter."""
    shape, consonant = "", False
    for letter in word:
        consonant = letter not in "aeiou" and not (letter == "y" and consonant)
        shape += "c" if consonant else "v"
    return shape


def _measure(word: str) -> int:
    """Porter's measure: how often a consonant follows a vowel."""
    return _shape(word).count("vc")


def _is_short(word: str) -> bool:
    """Whether a word ends in its only syllable, a short one, as `hop` does."""
    return word[-1] not in "wxy" and _measure(word) == 1 and _shape(word).endswith("cvc")


def _porter(word: str) -> str:
    """Porter's stem of a word of three letters or more, with the departures that FTS5 has."""
    if word.endswith("s") and not word.endswith("ss"):
        double = word.endswith(("sses", "ies")) and word not in ("sses", "ies")
        word = word[: -2 if double else -1]
    if word.endswith("eed") and word != "eed":
        word = word[:-1] if _measure(word[:-3]) else word
    elif word.endswith(("ed", "ing")):
        rest = word.removesuffix("ed") if word.endswith("d") else word.removesuffix("ing")
        if "v" in _shape(rest):
            word = _completed(rest)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = f"{word[:-1]}i"
    for least, endings in ((1, _STEP_2), (1, _STEP_3), (2, _STEP_4)):
        for length in range(min(7, len(word) - 1), 1, -1):
            rest, ending = word[:-length], word[-length:]
            if ending in endings:
                if _measure(rest) >= least and (ending != "ion" or rest[-1] in "st"):
                    word = rest + endings[ending]
                break
    if word.endswith("e") and _measure(rest := word[:-1]) and not _is_short(rest):
        word = rest
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _completed(rest: str) -> str:
    """What precedes `ed` or `ing`, with the `e` that belongs to it or without a double letter."""
    if rest.endswith(("at", "bl", "iz")) and len(rest) > 2:
        return f"{rest}e"
    if rest[-1] == rest[-2:-1] and rest[-1] not in "aeioulsz":
        return rest[:-1]
    return f"{rest}e" if _is_short(rest) else rest


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    if word[-1] not in _ENDINGS or len(word.encode()) not in _STEMMED:
        return word
    if word.isascii():
        return _porter(word)
    # FTS5 takes each byte for a letter, and may cut a doubled one off a character.
    stemmed = _porter(word.encode().decode("latin-1"))
    return stemmed.encode("latin-1").decode(errors="backslashreplace")


class _Folds(dict[int, str]):
    """Characters as FTS5's `unicode61` folds them: no case, and Latin letters without marks."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if code >= 0x20000 or unicodedata.combining(char):
            # Unchanged, and not kept.
            raise LookupError
        lower = next((c for c in (char.casefold(), char.lower()) if len(c) == 1), char)
        base = unicodedata.normalize("NFD", lower)[0]
        self[code] = base.lower() if base.isascii() and base.isalpha() else lower
        return self[code]


_FOLDS = _Folds()


def stems_of(text: str) -> tuple[str, ...]:
    """Stems of a text's words in order, as SQLite's FTS5 cuts, folds and stems them.

    Only Latin letters lose their marks; a mark that is a character of its own is dropped from any.
    Characters newer than Unicode 6.1, such as some emoji, are words of FTS5 alone.
    """
    bare = text.lower() if text.isascii() else _MARK.sub("", text).translate(_FOLDS)
    return tuple(map(_stem, _TOKEN.findall(bare)))


_NOT_PAST = frozenset("need indeed speed seed feed breed exceed hundred red bed shed based".split())
_ARTICLES = DETERMINERS - PRONOUNS
_BETWEEN = PREPOSITIONS | DETERMINERS | {"and", "or", "also", "then", "not", "never"}


def finite_verb(tokens: Sequence[TextWord], first: int = 0) -> int | None:
    """Index of the first finite verb among the words; None when there is none."""
    for place in range(first, len(tokens)):
        if is_finite(tokens, place):
            return place
    return None


def is_finite(tokens: Sequence[TextWord], place: int) -> bool:
    """Whether the word at an index reads as a finite verb in its context."""
    lower = tokens[place].lower
    before = tokens[place - 1].lower if place else ""
    if lower in AUXILIARIES or lower.endswith("n't"):
        return lower not in ("be", "been")
    if before in _ARTICLES or before in PREPOSITIONS:
        return False
    if lower in IRREGULAR:
        return True
    if tokens[place].text[:1].isupper() and place:
        return False
    if lower.endswith("ed") and len(lower) > 4 and lower not in _NOT_PAST:
        return True
    if _third_person(lower):
        return True
    return lower in VERBS and (
        before in ("i", "you", "we", "they", "who", "which", "that")
        or (before.endswith("s") and before not in _BETWEEN and not before.endswith(("ss", "'s")))
    )


def _third_person(lower: str) -> bool:
    if not lower.endswith("s") or len(lower) < 4:
        return False
    if lower[:-1] in VERBS:
        return True
    if lower.endswith("es") and lower[:-2] in VERBS:
        return True
    return lower.endswith("ies") and lower[:-3] + "y" in VERBS

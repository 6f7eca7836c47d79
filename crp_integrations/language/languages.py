"""The language of a text, guessed from its script and its function words; "" where it is unsure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache
from typing import Final

from crp_integrations.language.memo import remembered
from crp_integrations.language.word_lists import LISTS

# Closed classes: articles, pronouns, prepositions, conjunctions, auxiliaries, negations.
_PREFIX: Final = "function_words_"
_FUNCTION_WORDS: Final = {
    name.removeprefix(_PREFIX): listed for name, listed in LISTS.items() if name.startswith(_PREFIX)
}
# Scripts that one language or few are written in, by the first word of a letter's name.
_SCRIPTS: Final = {
    "GREEK": "el", "HEBREW": "he", "THAI": "th", "HANGUL": "ko", "DEVANAGARI": "hi",
    "BENGALI": "bn", "TAMIL": "ta", "TELUGU": "te", "GEORGIAN": "ka", "ARMENIAN": "hy",
    "HIRAGANA": "ja", "KATAKANA": "ja", "CJK": "zh", "CYRILLIC": "ru", "ARABIC": "ar",
    "LATIN": "latin",
}  # fmt: skip
_LETTERS_OF = (("uk", frozenset("іїєґ")), ("fa", frozenset("پچژگی")))
_WORD = re.compile(r"[^\W\d_]+")
# Code, quotations of names and addresses are of no language.
_ASIDE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+|\S+@\S+", re.DOTALL)
_FEWEST_LETTERS: Final = 8
_FEWEST_HITS: Final = 4
_FEWEST_WORDS: Final = 3  # that differ
# Of the words of running text two in five are function words; in lists of names there are none.
_SHARE: Final = 0.2
_AHEAD: Final = 1.5  # times as many as of the next language, since they share some


@cache
def _hits() -> dict[str, tuple[str, ...]]:
    hits: dict[str, tuple[str, ...]] = {}
    for language, listed in _FUNCTION_WORDS.items():
        for word in listed:
            hits[word] = (*hits.get(word, ()), language)
    return hits


@remembered
def guess_language(text: str) -> str:
    """The ISO 639-1 code of a text's language, "" when it is unsure.

    >>> guess_language("Der Vertrag endet mit dem Ablauf des Jahres und wird nicht verlängert.")
    'de'
    >>> guess_language("Acme Corp, Berlin")
    ''
    """
    words = _WORD.findall(_ASIDE.sub(" ", text).lower())
    script = _script(words)
    if script != "latin":
        letters = frozenset("".join(words))
        return next(
            (code for code, own in _LETTERS_OF if _fits(script, code) and letters & own), script
        )
    counts = dict.fromkeys(_FUNCTION_WORDS, 0)
    different: dict[str, set[str]] = {code: set() for code in counts}
    for word in words:
        for code in _hits().get(word, ()):
            counts[code] += 1
            different[code].add(word)
    best, second = sorted(counts, key=lambda code: (-counts[code], code))[:2]
    sure = (
        counts[best] >= max(_FEWEST_HITS, _SHARE * len(words), _AHEAD * counts[second])
        and len(different[best]) >= _FEWEST_WORDS
    )
    return best if sure else ""


def _fits(script: str, code: str) -> bool:
    return (script, code) in (("ru", "uk"), ("ar", "fa"))


def _script(words: list[str]) -> str:
    """The script that four letters in five are of; Japanese mixes two with Han."""
    counts: dict[str, int] = {}
    for letter, times in Counter("".join(words)).items():
        if unicodedata.category(letter)[0] == "L":
            name = "LATIN" if letter < "\u0250" else unicodedata.name(letter, "").split(" ")[0]
            code = _SCRIPTS.get(name.split("-")[0], "")
            counts[code] = counts.get(code, 0) + times
    if counts.get("ja", 0) * 10 > counts.get("zh", 0):
        counts["ja"] = counts.get("ja", 0) + counts.pop("zh", 0)
    whole = sum(counts.values())
    best = max(counts, key=lambda code: (counts[code], code), default="")
    # Names and terms in Latin letters stand within texts of any script, so half is enough there.
    share = 0.8 if best == "latin" else 0.5
    return best if whole >= _FEWEST_LETTERS and counts[best] >= share * whole else ""


def differs(answer: str, evidence: str) -> str:
    """The code of an answer's language where the evidence is surely in another; else "".

    One paragraph of the evidence in the answer's language is enough to be silent.
    """
    own = guess_language(answer)
    if not own or guess_language(evidence) in ("", own):
        return ""
    parts = (part for part in evidence.split("\n") if part.strip())
    return "" if any(guess_language(part) == own for part in parts) else own

"""The language of a text, guessed from its script and its function words; "" when unsure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple

from crp_integrations.language.memo import remembered
from crp_integrations.language.word_lists import LISTS

# Closed classes: articles, pronouns, prepositions, conjunctions, auxiliaries, negations; elided
# forms such as "l'" include their apostrophe.
_PREFIX: Final = "function_words_"
_FUNCTION_WORDS: Final = {
    name.removeprefix(_PREFIX): listed for name, listed in LISTS.items() if name.startswith(_PREFIX)
}
# Letters that a language uses and English does not.
_OWN_LETTERS: Final = {
    "de": "äöüß", "fr": "àâæçéèêëîïôœùûüÿ", "es": "áéíñóúü", "it": "àèéìòù",
    "pt": "àáâãçéêíóôõú", "nl": "éëïóöü", "pl": "ąćęłńóśźż", "sv": "åäö", "da": "æøå",
    "cs": "áčďéěíňóřšťúůýž", "tr": "âçğıöşü",
}  # fmt: skip
# Scripts used by one or few languages, keyed by the first word of a letter's Unicode name.
_SCRIPTS: Final = {
    "GREEK": "el", "HEBREW": "he", "THAI": "th", "HANGUL": "ko", "DEVANAGARI": "hi",
    "BENGALI": "bn", "TAMIL": "ta", "TELUGU": "te", "GEORGIAN": "ka", "ARMENIAN": "hy",
    "HIRAGANA": "ja", "KATAKANA": "ja", "CJK": "zh", "CYRILLIC": "ru", "ARABIC": "ar",
    "LATIN": "latin",
}  # fmt: skip
_LETTERS_OF = (("uk", frozenset("іїєґ")), ("fa", frozenset("پچژگی")))
_WORD = re.compile(r"[^\W\d_]+")
# Elided words keep their apostrophe; words next to a digit, dot or slash are codes and skipped.
_TOKEN = re.compile(r"(?<![\w./@:=])(?<!\d-)[^\W\d_]++(?![\d_]|[./@:=]\w|-\d)(?:['’](?=[^\W\d_]))?")
# Code, inline code and addresses have no language.
_ASIDE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+|(?<!\S)[^\s@]++@\S+", re.DOTALL)
_FEWEST_LETTERS: Final = 8
_FEWEST_HITS: Final = 4
_FEWEST_WORDS: Final = 3  # distinct words
# In running text about 40% of the words are function words; in lists of names none are.
_SHARE: Final = 0.2
_AHEAD: Final = 1.5  # minimum ratio to the next language, since languages share some words


@cache
def _hits() -> dict[str, tuple[str, ...]]:
    hits: dict[str, tuple[str, ...]] = {}
    for language, listed in _FUNCTION_WORDS.items():
        for word in listed:
            hits[word] = (*hits.get(word, ()), language)
    return hits


@cache
def _writers() -> dict[str, tuple[str, ...]]:
    writers: dict[str, tuple[str, ...]] = {}
    for language, letters in _OWN_LETTERS.items():
        for letter in letters:
            writers[letter] = (*writers.get(letter, ()), language)
    return writers


class _WordCounts(NamedTuple):
    """The script and word count of a text, and per language all hits and the distinct ones."""

    script: str
    words: int
    counts: Mapping[str, int]
    different: Mapping[str, int]

    def best(self, others: Iterable[str]) -> str:
        """The language with most hits if it is clearly ahead of all `others`; "" otherwise.

        Languages that are not in `others` only need to have fewer hits.
        """
        if self.script != "latin":
            return self.script
        best, second = sorted(self.counts, key=lambda code: (-self.counts[code], code))[:2]
        ahead = max((self.counts.get(code, 0) for code in others if code != best), default=0)
        sure = (
            self.counts[best] >= max(_FEWEST_HITS, _SHARE * self.words, _AHEAD * ahead)
            and self.counts[best] > self.counts[second]
            and self.different[best] >= _FEWEST_WORDS
        )
        return best if sure else ""


@remembered
def _count_words(text: str) -> _WordCounts:
    text = _ASIDE.sub(" ", text)
    words = _WORD.findall(text.lower())
    script = _script(words)
    if script != "latin":
        letters = frozenset("".join(words))
        own = (code for code, few in _LETTERS_OF if _fits(script, code) and letters & few)
        return _WordCounts(next(own, script), len(words), {}, {})
    counts = dict.fromkeys(_FUNCTION_WORDS, 0)
    different: dict[str, set[str]] = {code: set() for code in counts}
    hits, writers = _hits(), _writers()
    for token, times in Counter(_TOKEN.findall(text)).items():
        word = token.lower().replace("’", "'")
        languages: Iterable[str] = hits.get(word) or hits.get(word.rstrip("'"), ())
        # Capitalized words may be foreign names, so only lower-case words count here.
        if not languages and token[0].islower() and not token.isascii():
            languages = {code for letter in set(word) for code in writers.get(letter, ())}
        for code in languages:
            counts[code] += times
            different[code].add(word)
    return _WordCounts(
        script, len(words), counts, {code: len(seen) for code, seen in different.items()}
    )


@remembered
def guess_language(text: str) -> str:
    """The ISO 639-1 code of a text's language; "" when unsure.

    >>> guess_language("Der Vertrag endet mit dem Ablauf des Jahres und wird nicht verlängert.")
    'de'
    >>> guess_language("Acme Corp, Berlin")
    ''
    """
    return _count_words(text).best(_FUNCTION_WORDS)


def _fits(script: str, code: str) -> bool:
    return (script, code) in (("ru", "uk"), ("ar", "fa"))


def _script(words: list[str]) -> str:
    """The code of the dominant script, or ""; kana mixed with Han count as Japanese."""
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
    # Texts of any script contain names in Latin letters, so half is enough for other scripts.
    share = 0.8 if best == "latin" else 0.5
    return best if whole >= _FEWEST_LETTERS and counts[best] >= share * whole else ""


def differs(answer: str, evidence: str) -> str:
    """The code of an answer's language if the evidence is certainly in another; else "".

    The languages of the evidence are those of its single lines, because tables and JSON have
    none, and of the whole. One line in the answer's language is enough for "". The answer's
    language must be clearly ahead only of the evidence's languages, not of all others.

    >>> differs("Die Gebühr ist nicht in dem Preis.", "The fee is not in the price of it.")
    'de'
    """
    counts = _count_words(answer)
    if not (guessed := counts.best(())):
        return ""
    lines = {*map(guess_language, evidence.split("\n"))}
    if guessed in lines:
        return ""
    languages = {guess_language(evidence), *lines} - {""}
    own = counts.best(languages)
    return own if languages and own not in languages else ""

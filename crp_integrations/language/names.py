"""Names by capitals and shape: persons, organisations, places, products, codes, addresses.

There is no list of names. The first word of a sentence is a name only when its shape, its
neighbours or another occurrence in the text indicates it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crp_integrations.language.dates import dates
from crp_integrations.language.identifiers import identifiers
from crp_integrations.language.memo import remembered
from crp_integrations.language.numerals import ONES, ORDINALS, SCALES, TENS
from crp_integrations.language.text import Span, fold, split_sentences
from crp_integrations.language.words import (
    AUXILIARIES,
    HONORIFICS,
    IMPERATIVES,
    ORDINARY,
    STOP_WORDS,
    VERBS,
    TextWord,
    is_finite,
    words,
)


@dataclass(frozen=True, slots=True)
class Name:
    """A name and its offsets."""

    start: int
    end: int
    text: str


_LINK = re.compile(r"(?:\.?[^\S\t]{1,2}|[^\S\t]?&[^\S\t]?|/|[*_]{1,3} [*_]{1,3})\Z")
_CONNECTORS = frozenset("of de van von der den la del di da du le al bin ibn y e".split())
_NUMBERS = ONES.keys() | TENS.keys() | SCALES.keys() | ORDINALS.keys()
_OPENERS = frozenset(":(\"'\u201c\u2018[*-\u2022|")
_ADVERB = re.compile(r"(?:ly|ing|wise|ward|wards)\Z")
_COMMON_SHAPE = re.compile(r"(?:tion|tions|ment|ments|ness|ity|ities|ance|ence|ism|ists|ship)\Z")
_CODE_BEFORE = re.compile(r"\b[A-Z]{2}\.\s\Z")
_PARTICIPLES = frozenset("known located situated based founded established built rated".split())
_POSSESSIVE = re.compile(r"'s?\Z")


@remembered
def names(text: str) -> tuple[Name, ...]:
    """The names of a text in order, including identifiers.

    >>> [name.text for name in names("In London, Dr. Jane Smith of Acme Corp met NATO staff.")]
    ['London', 'Jane Smith of Acme Corp', 'NATO']
    """
    codes = identifiers(text)
    result = [Name(span.start, span.end, span.of(text)) for span in codes]
    taken = [*codes, *(Span(m.start, m.end) for m in dates(text) if m.month or len(m.text) > 4)]
    taken.sort(key=lambda span: span.start)
    every = _outside(words(text), taken)
    usual = {word.lower for word in every if word.text[:1].islower()}
    place = 0
    for sentence in split_sentences(text):
        inside: list[TextWord] = []
        while place < len(every) and every[place].start < sentence.end:
            inside.append(every[place])
            place += 1
        result.extend(_in_sentence(text, inside, usual, sentence))
    return tuple(sorted(result, key=lambda name: name.start))


def _outside(every: Sequence[TextWord], taken: list[Span]) -> list[TextWord]:
    outside, at = [], 0
    for word in every:
        while at < len(taken) and taken[at].end <= word.start:
            at += 1
        if at == len(taken) or word.end <= taken[at].start:
            outside.append(word)
    return outside


def _in_sentence(
    text: str, sentence_words: Sequence[TextWord], usual: set[str], sentence: Span
) -> list[Name]:
    lettered = [word for word in sentence_words if word.text[0].isalpha()]
    big = [word for word in lettered if word.text[0].isupper()]
    shouted = len(lettered) > 3 and all(word.text.isupper() for word in lettered)
    titled = len(lettered) > 2 and len(big) * 10 >= len(lettered) * 8
    titled = titled and sentence.of(text)[-1:] not in ".!?"
    result: list[Name] = []
    run: list[TextWord] = []
    for number, word in enumerate(sentence_words):
        capital = not (shouted or word.text.islower()) and _is_capital(word)
        if capital:
            if number == 0 or _opens(text, word):
                capital = not _is_plain(text, sentence_words, number, usual)
            elif _after_stop(text, word) and _opens_clause(text, word):
                capital = False
        if capital and titled and (word.lower in ORDINARY or word.lower in STOP_WORDS):
            capital = False
        if not capital and not run:
            continue
        if run and not _linked(text, run[-1], word):
            _close(text, run, result)
        if capital or (run and word.lower in _CONNECTORS and _leads(sentence_words, number)):
            run.append(word)
        else:
            _close(text, run, result)
    _close(text, run, result)
    return result


def _is_capital(word: TextWord) -> bool:
    body = word.text
    if body in ("I", "I'm", "I've", "I'd", "I'll", "OK", "AM", "PM", "A.M", "P.M"):
        return False
    if body[0].isupper():
        return len(body) > 1 or body.isascii()
    return any(character.isupper() for character in body[1:]) and body[0].isalpha()


def _opens(text: str, word: TextWord) -> bool:
    """Whether a word is in a position where ordinary words are capitalized too."""
    at = word.start - 1
    while at > 0 and text[at] in "*_":
        # Skip emphasis marks; a bullet has a blank between it and the word.
        at -= 1
    while at >= 0 and text[at] in " \t":
        at -= 1
    return at >= 0 and (
        text[at] in _OPENERS and (at == 0 or not text[at - 1].isalnum() or text[at] in ":(")
    )


def _after_stop(text: str, word: TextWord) -> bool:
    """Whether a point precedes a word, be it of a sentence or of an abbreviation."""
    return text[max(0, word.start - 2) : word.start] in (". ", ".\n")


def _opens_clause(text: str, word: TextWord) -> bool:
    """Whether a word opens a sentence rather than continues a name.

    After a state code a participle does: "Goleta, CA. Specializing in sushi, …".
    """
    if word.lower in ORDINARY:
        return True
    coded = _CODE_BEFORE.search(text, max(0, word.start - 6), word.start)
    return coded is not None and (word.lower in _PARTICIPLES or word.lower.endswith("ing"))


def _is_plain(text: str, sentence_words: Sequence[TextWord], number: int, usual: set[str]) -> bool:
    """Whether a capitalized word at the start of a sentence is an ordinary word."""
    word = sentence_words[number]
    lower = _POSSESSIVE.sub("", word.lower)
    if sum(character.isupper() for character in word.text) > 1:
        return False
    if lower in STOP_WORDS or lower in _NUMBERS or lower in usual or lower in AUXILIARIES:
        return True
    after = sentence_words[number + 1] if number + 1 < len(sentence_words) else None
    followed = after is not None and after.text[0].isupper() and after.start - word.end <= 1
    if lower in ORDINARY or lower in IMPERATIVES or _ADVERB.search(lower):
        return True
    if followed or word.lower.endswith("'s"):
        return False
    # A single capitalized word is a name if a verb, a comma or a bracket follows, or "and" with
    # another name, and its ending is not that of a common noun.
    if lower in VERBS or _COMMON_SHAPE.search(lower) or lower.endswith(("ers", "ors", "ees")):
        return True
    if after is None:
        return True
    if text[word.end : word.end + 1] == "," or text[word.end : word.end + 2] == " (":
        return False
    if after.lower in ("and", "or") and number + 2 < len(sentence_words):
        return not sentence_words[number + 2].text[0].isupper()
    return not (is_finite(sentence_words, number + 1) or after.lower in ("also", "then", "never"))


def _linked(text: str, before: TextWord, word: TextWord) -> bool:
    between = text[before.end : word.start]
    if "." in between:
        return _LINK.match(between) is not None and (
            len(before.text) == 1 or before.lower in HONORIFICS or before.lower in ("st", "jr")
        )
    return _LINK.match(between) is not None


def _leads(sentence_words: Sequence[TextWord], number: int) -> bool:
    after = sentence_words[number + 1 : number + 3]
    if not after:
        return False
    if after[0].text[0].isupper():
        return True
    return after[0].lower in ("the", "la", "der", "den") and (
        len(after) > 1
        and after[1].text[0].isupper()
        and sentence_words[number].lower in ("of", "de", "van")
    )


def _close(text: str, run: list[TextWord], result: list[Name]) -> None:
    while run and (run[0].lower in HONORIFICS or run[0].lower in _CONNECTORS):
        run.pop(0)
    while run and run[-1].lower in _CONNECTORS:
        run.pop()
    if run and not (len(run) == 1 and len(run[0].text) == 1):
        start, end = run[0].start, run[-1].end
        tail = _POSSESSIVE.search(fold(run[-1].text).text)
        if tail is not None:
            end -= len(tail.group())
        body = text[start:end]
        head, dash, rest = body.rpartition("-")
        if dash and rest.islower() and (len(rest) > 3 or rest == "led") and " " not in rest:
            end, body = start + len(head), head
        if body:
            result.append(Name(start, end, body))
    run.clear()

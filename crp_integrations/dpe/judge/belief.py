"""Which quotations count, and which claims assert something, by the words alone.

A judge can be talked into a verdict by a text that it reads. So its quotation has to be about what
the claim is about, and a claim with a value of its own is nothing that cannot be checked. The rules
read letters and figures alone, in any language, and stand in JavaScript too (`page/judge.js`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from crp_integrations.language.folded_text import SEPARATORS, UNSPACED
from crp_integrations.language.word_lists import read_word_lists

LISTS: Final = read_word_lists(__package__)

LEAST_WORDS: Final = 3
LEAST_LETTERS: Final = 3
# Letters by which words of one family are the same.
FAMILY: Final = 4
# Of an answer's words, the share that stands in the evidence where both are of one language.
SAME_LANGUAGE: Final = 0.2
# Distinct words of `GERMAN` from which on a capital letter makes no name.
MOST_GERMAN: Final = 3
ENDS: Final = frozenset("|.!?\n…。！？؟।")
_RULE: Final = re.compile(r"[ \t|]*\n[ \t]*\|?[ \t]*:?--")
ASKING: Final = frozenset("?？؟")
CLAUSE_ENDS: Final = frozenset(",;:.!\n。！、，।") | ASKING
STOPS: Final = ("\n", ". ", "! ", "? ", "。", "！", "？", "؟", "।")

# Words that say nothing of a matter: pronouns, articles, prepositions, conjunctions, auxiliaries of
# the languages that the package speaks, as far as they have three letters or more.
FUNCTION_WORDS: Final = frozenset(LISTS["function_words"])
# What a verdict says, and what or whom it is about. A sentence with a word of both is no evidence.
VERDICTS: Final = frozenset(LISTS["verdicts"])
JUDGED: Final = frozenset(LISTS["judged"])
# A language that writes each noun with a capital letter.
GERMAN: Final = frozenset(LISTS["german"])


@dataclass(frozen=True, slots=True)
class Matter:
    """What a text is about.

    Attributes:
        values: words with a figure in them, without separators.
        names: words with a capital letter that no sentence begins with.
        words: families of other words that carry content, names among them.
        count: all words; of a text without blanks between words, its letters.
    """

    values: frozenset[str]
    names: frozenset[str]
    words: frozenset[str]
    count: int

    def shares_word(self, other: Matter) -> bool:
        """Whether a word that carries content is in both."""
        return bool(self.words & other.words)


def matter_of(text: str) -> Matter:
    """What a text is about."""
    values, names, families = set[str](), set[str](), set[str]()
    count, begins, before = 0, True, ""
    for written in _pieces(unicodedata.normalize("NFKC", text)):
        word = written.casefold()
        if written[0].isdigit():
            values.add("".join(sign for sign in word if sign not in SEPARATORS).lstrip("0") or "0")
        elif not _is_letter(written[0]):
            begins = begins or written in ENDS
            before = before if written.isspace() else ""
            continue
        elif _is_unspaced(word[0]):
            # Two letters side by side are the least that says something.
            if before:
                families.add(before + word)
        elif len(word) >= LEAST_LETTERS and word not in FUNCTION_WORDS:
            families.add(_family(word))
            if written[0] != word[0] and not begins:
                names.add(_family(word))
        count += 1
        before, begins = word if _is_unspaced(word[0]) else "", False
    return Matter(frozenset(values), frozenset(names), frozenset(families), count)


def _family(word: str) -> str:
    return word.removesuffix("s")[:FAMILY]


def _pieces(text: str) -> Iterator[str]:
    """Words, figures with their separators, letters of scripts without blanks, and other signs."""
    place = 0
    while place < len(text):
        first = place
        place += 1
        if text[first].isdigit():
            while text[place : place + 1].isdigit() or (
                text[place : place + 1] in SEPARATORS and text[place + 1 : place + 2].isdigit()
            ):
                place += 1
        elif _is_letter(text[first]) and not _is_unspaced(text[first]):
            while place < len(text) and _is_letter(text[place]) and not _is_unspaced(text[place]):
                place += 1
        yield text[first:place]


def _is_letter(sign: str) -> bool:
    return (sign.isalnum() or unicodedata.category(sign)[0] == "M") and not sign.isdigit()


def _is_unspaced(sign: str) -> bool:
    return any(low <= ord(sign) <= high for low, high in UNSPACED)


def sentence_around(text: str, start: int, end: int) -> str:
    """The sentence or line that some words stand in."""
    first = max(
        (at + len(stop) for stop in STOPS if (at := text.rfind(stop, 0, start)) >= 0), default=0
    )
    last = min((at for stop in STOPS if (at := text.find(stop, end)) >= 0), default=len(text))
    return text[first:last]


def heads_table(answer: str, end: int) -> bool:
    """Whether what ends at a place in an answer is the header row of a table."""
    return _RULE.match(answer, end) is not None


def _is_row(line: str) -> bool:
    """Whether a line is one of a table or a record: cells, or a name before a colon."""
    head, colon, rest = line.partition(":")
    return "|" in line or bool(colon and rest.strip() and len(head.split()) <= LEAST_WORDS)


def _longest(quotation: str) -> Matter:
    """What a quotation is about; of one with an ellipsis the piece with the most words."""
    return max(
        map(matter_of, quotation.replace("...", "…").split("…")), key=lambda matter: matter.count
    )


# Signs between which a word is a whole cell of a table, a list or a record.
CELL_BEGINS: Final = frozenset("|{[(,:;=\t\n")
CELL_ENDS: Final = frozenset("|}]),;\t\n")
_CELL_EDGES: Final = frozenset(" \"'*`")
# "[2]" and "(source 2)" point at a passage, and their figures are none of a claim's.
CITATION: Final = r"\[\^?\d{1,3}(?:\s?[,;]\s?\d{1,3})*\]|\((?:source|passage)s?\s\d{1,3}\)"
_CITATION: Final = re.compile(CITATION, re.IGNORECASE)


def claim_matter(text: str) -> Matter:
    """What a claim is about, without its citations."""
    return matter_of(_CITATION.sub(" ", text))


def is_cell(text: str, start: int, end: int) -> bool:
    """Whether some words are a whole cell of a table, a list or a record."""
    before, behind = start - 1, end
    while before >= 0 and text[before] in _CELL_EDGES:
        before -= 1
    while behind < len(text) and text[behind] in _CELL_EDGES:
        behind += 1
    begins = before < 0 or text[before] in CELL_BEGINS
    return begins and (behind == len(text) or text[behind] in CELL_ENDS)


@dataclass(frozen=True, slots=True)
class QuotedWords:
    """A quotation where it stands, and what the others of its claim quote.

    Attributes:
        source: the text that they stand in, from `start` to `end`.
        values: of all quotations of the claim that stand.
        own_orders: the source is the system prompt, whose orders are no evidence.
    """

    said: str
    source: str
    start: int
    end: int
    values: frozenset[str]
    own_orders: bool = False


@dataclass(frozen=True, slots=True)
class Belief:
    """What all claims of an answer are held against.

    Attributes:
        topic: what answer and question are about.
        translated: the answer is not in the language of its evidence.
    """

    question: Matter
    topic: Matter
    known: frozenset[str]
    translated: bool

    def counts(self, claim: Matter, quoted: QuotedWords) -> bool:
        """Whether a quotation says anything of a claim.

        It counts if it shares a value with the claim. It counts as well if it has three words, a
        value, a name or a whole cell, and its sentence is about the claim, the answer or the
        question: the links of a chain of reasoning share nothing with its end. A claim with a
        value that no text states needs quoted values to follow from.
        """
        matter = _longest(quoted.said)
        line = sentence_around(quoted.source, quoted.start, quoted.end)
        around = matter_of(line)
        if _is_verdict(line):
            # The line may hold more than the verdict: the quotation has to be about the claim.
            return len(matter.values & claim.values) + len(matter.words & claim.words) > 1
        if not quoted.values and not claim.values <= self.known:
            return False
        if matter.values & claim.values:
            return True
        cell = is_cell(quoted.source, quoted.start, quoted.end)
        if matter.count < LEAST_WORDS and not self._is_telling(claim, matter, around, quoted, cell):
            return False
        if around.shares_word(claim) or around.values & claim.values:
            return True
        if quoted.own_orders or (claim.values - self.question.values and not quoted.values):
            return False
        if self.translated and (quoted.values or not (claim.values or claim.names)):
            # Translated, no word is the same: values to reckon with, or nothing to look up.
            return matter.count >= LEAST_WORDS
        row = cell or _is_row(line)
        return around.shares_word(self.topic) or (
            row and matter_of(quoted.source).shares_word(self.topic)
        )

    def _is_telling(
        self, claim: Matter, matter: Matter, around: Matter, quoted: QuotedWords, cell: bool
    ) -> bool:
        """Whether fewer than three words say something: a name, a cell, values to reckon with."""
        if matter.values:
            return len(quoted.values) > 1 or not claim.values
        return bool(matter.words) and (cell or bool(matter.words & around.names))

    def is_stated(self, claim: Matter, question: str, end: int) -> bool:
        """Whether the question states what a claim says, by half of its words, and does not ask it.

        A claim is a question's words in another person, so that not every word is the same.
        """
        behind = next((sign for sign in question[end:] if sign in CLAUSE_ENDS), "")
        if behind in ASKING or not claim.values <= self.question.values:
            return False
        alike = len(claim.words & self.question.words)
        return bool(claim.values or claim.words) and 2 * alike >= len(claim.words)

    def asserts(self, claim: str) -> bool:
        """Whether a claim has a value or a name that the question does not state."""
        matter = claim_matter(claim)
        german = {piece.casefold() for piece in _pieces(claim)} & GERMAN
        names = matter.names if len(german) < MOST_GERMAN else frozenset[str]()
        return not (matter.values <= self.question.values and names <= self.question.words)


def belief_of(answer: str, question: str, passages: Sequence[str]) -> Belief:
    """What all claims of an answer are held against."""
    own, there = _letters_of(answer), _letters_of("\n".join(passages))
    asked = matter_of(question)
    return Belief(
        asked,
        matter_of(f"{answer}\n{question}"),
        asked.values.union(*(matter_of(text).values for text in passages)),
        len(own & there) < SAME_LANGUAGE * len(own),
    )


def _letters_of(text: str) -> set[str]:
    return {piece.casefold() for piece in _pieces(text) if _is_letter(piece[0])}


def _is_verdict(line: str) -> bool:
    """Whether a sentence says of claims or to their judge that they hold."""
    own = _letters_of(line)
    return bool(own & VERDICTS) and bool(own & JUDGED)

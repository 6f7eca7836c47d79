"""Decides by words alone which quotations count and which claims assert something.

A text that a judge reads can manipulate its verdict. Therefore a quotation must be about the same
matter as its claim, and a claim with a value of its own is always checkable. The rules use only
letters and figures, in any language; `page/judge.js` has the same rules in JavaScript.
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
# Number of first letters that words of one family share.
FAMILY: Final = 4
# Minimum share of an answer's words in the evidence if both are in the same language.
SAME_LANGUAGE: Final = 0.2
# Minimum number of distinct words of `GERMAN` at which a capital letter no longer marks a name.
MOST_GERMAN: Final = 3
ENDS: Final = frozenset("|.!?\n…。！？؟।")
_RULE: Final = re.compile(r"[ \t|]*\n[ \t]*\|?[ \t]*:?--")
ASKING: Final = frozenset("?？؟")
CLAUSE_ENDS: Final = frozenset(",;:.!\n。！、，।") | ASKING
STOPS: Final = ("\n", ". ", "! ", "? ", "。", "！", "？", "؟", "।")
_STOP: Final = re.compile("|".join(map(re.escape, STOPS)))
# A claim that shares less with every sentence is too short to compare places by it.
LEAST_SHARED: Final = 4

# Words without content of their own: pronouns, articles, prepositions, conjunctions, auxiliaries of
# the supported languages. Shorter words than three letters are skipped anyway.
FUNCTION_WORDS: Final = frozenset(LISTS["function_words"])
# Words of a verdict, and words for what is judged. A sentence with a word of both is not evidence.
VERDICTS: Final = frozenset(LISTS["verdicts"])
JUDGED: Final = frozenset(LISTS["judged"])
# Common words of German, which writes each noun with a capital letter.
GERMAN: Final = frozenset(LISTS["german"])


@dataclass(frozen=True, slots=True)
class Matter:
    """What a text is about.

    Attributes:
        values: its figures, without separators.
        names: capitalised words that do not begin a sentence.
        words: families of its content words, names included.
        count: number of all words; in scripts without blanks, of letters.
    """

    values: frozenset[str]
    names: frozenset[str]
    words: frozenset[str]
    count: int

    def shared(self, other: Matter) -> int:
        """How many content words and values both have in common."""
        return len(self.words & other.words) + len(self.values & other.values)

    def shares_word(self, other: Matter) -> bool:
        """Whether both have a content word in common."""
        return bool(self.words & other.words)


def matter_of(text: str) -> Matter:
    """What a text is about."""
    values, names, families = set[str](), set[str](), set[str]()
    count, begins, before = 0, True, ""
    for written in pieces_of(unicodedata.normalize("NFKC", text)):
        word = written.casefold()
        if written[0].isdigit():
            values.add("".join(sign for sign in word if sign not in SEPARATORS).lstrip("0") or "0")
        elif not _is_letter(written[0]):
            begins = begins or written in ENDS
            before = before if written.isspace() else ""
            continue
        elif _is_unspaced(word[0]):
            # In scripts without blanks, a pair of letters counts as a word.
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


def pieces_of(text: str) -> Iterator[str]:
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
    """The sentence or line that contains a stretch of text."""
    first = max(
        (at + len(stop) for stop in STOPS if (at := text.rfind(stop, 0, start)) >= 0), default=0
    )
    last = min((at for stop in STOPS if (at := text.find(stop, end)) >= 0), default=len(text))
    return text[first:last]


def sentences_of(text: str) -> list[tuple[int, int]]:
    """The start and end of each sentence or line that is not blank."""
    edges = [0, *(edge for match in _STOP.finditer(text) for edge in match.span()), len(text)]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if text[a:b].strip()]


def heads_table(answer: str, end: int) -> bool:
    """Whether the text that ends at `end` is the header row of a table."""
    return _RULE.match(answer, end) is not None


def _is_row(line: str) -> bool:
    """Whether a line is a row of a table or a record: cells, or a name before a colon."""
    head, colon, rest = line.partition(":")
    return "|" in line or bool(colon and rest.strip() and len(head.split()) <= LEAST_WORDS)


def _longest(quotation: str) -> Matter:
    """What a quotation is about; for one with ellipses, its piece with the most words."""
    return max(
        map(matter_of, quotation.replace("...", "…").split("…")), key=lambda matter: matter.count
    )


# Characters that delimit a whole cell of a table, a list or a record.
CELL_BEGINS: Final = frozenset("|{[(,:;=\t\n")
CELL_ENDS: Final = frozenset("|}]),;\t\n")
_CELL_EDGES: Final = frozenset(" \"'*`")
# "[2]" and "(source 2)" cite a passage; their figures do not belong to the claim.
CITATION: Final = r"\[\^?\d{1,3}(?:\s?[,;]\s?\d{1,3})*\]|\((?:source|passage)s?\s\d{1,3}\)"
_CITATION: Final = re.compile(CITATION, re.IGNORECASE)


def without_citations(text: str) -> str:
    """The text with a blank in place of each citation of a passage."""
    return _CITATION.sub(" ", text)


def claim_matter(text: str) -> Matter:
    """What a claim is about, without its citations."""
    return matter_of(without_citations(text))


def is_cell(text: str, start: int, end: int) -> bool:
    """Whether a stretch of text is a whole cell of a table, a list or a record."""
    before, after = start - 1, end
    while before >= 0 and text[before] in _CELL_EDGES:
        before -= 1
    while after < len(text) and text[after] in _CELL_EDGES:
        after += 1
    begins = before < 0 or text[before] in CELL_BEGINS
    return begins and (after == len(text) or text[after] in CELL_ENDS)


@dataclass(frozen=True, slots=True)
class QuotedWords:
    """A quotation in its source, with the values of all quotations of its claim.

    Attributes:
        source: the text that contains the quotation from `start` to `end`.
        values: values of all quotations of the claim that were found.
        own_orders: True if the source is the system prompt, whose orders are not evidence.
    """

    text: str
    source: str
    start: int
    end: int
    values: frozenset[str]
    own_orders: bool = False


def is_elsewhere(claim: Matter, quoted: Sequence[QuotedWords], evidence: Sequence[Matter]) -> bool:
    """Whether a claim is about another place of the evidence than the one that is quoted.

    One sentence of the evidence then shares twice as many words and values with the claim as all
    quotations do, together with the sentences before and after them. Two quoted values may be
    terms from which the claim follows, so their sentences may share nothing with it.

    Args:
        evidence: the matter of each sentence of the passages and the system prompt.
    """
    best = max((claim.shared(sentence) for sentence in evidence), default=0)
    if best < LEAST_SHARED or any(len(words.values) > 1 for words in quoted):
        return False
    around = [matter_of(_with_neighbours(words)) for words in quoted]
    words = frozenset[str]().union(*(matter.words for matter in around))
    values = frozenset[str]().union(*(matter.values for matter in around))
    return 2 * (len(claim.words & words) + len(claim.values & values)) <= best


def _with_neighbours(quoted: QuotedWords) -> str:
    """The sentences of a quotation, with the one before and the one after them.

    With a row of a table or a record come all rows beside it, since one of them names its subject.
    """
    source = quoted.source
    sentences = sentences_of(source)
    own = [at for at, (a, b) in enumerate(sentences) if a < quoted.end and quoted.start < b]
    if not own:
        return quoted.text
    rows = [_is_row(source[a:b]) for a, b in sentences]
    first, last = own[0], own[-1]
    while first > 0 and rows[first] and rows[first - 1]:
        first -= 1
    while last + 1 < len(rows) and rows[last] and rows[last + 1]:
        last += 1
    return source[sentences[max(0, first - 1)][0] : sentences[min(len(rows) - 1, last + 1)][1]]


@dataclass(frozen=True, slots=True)
class Belief:
    """The texts' matter, by which the quotations for all claims of an answer are checked.

    Attributes:
        topic: what answer and question are about; `known`: the values of question and evidence.
        translated: True if the answer is not in the language of its evidence.
    """

    question: Matter
    topic: Matter
    known: frozenset[str]
    translated: bool

    def counts(self, claim: Matter, quoted: QuotedWords) -> bool:
        """Whether a quotation is relevant to a claim.

        It counts if it shares a value with the claim. It also counts if it has three words, a
        value, a name or a whole cell, and its sentence is about the claim, the answer or the
        question, since a step of a longer derivation may share no word with the claim. A claim
        with a value that no text states needs a quoted value, other than those that it repeats from
        the question, from which it can follow.
        """
        matter = _longest(quoted.text)
        line = sentence_around(quoted.source, quoted.start, quoted.end)
        around = matter_of(line)
        if is_verdict(line):
            # The line may contain more than a verdict: the quotation must be about the claim.
            return len(matter.values & claim.values) + len(matter.words & claim.words) > 1
        if not claim.values <= self.known and not quoted.values - (
            claim.values & self.question.values
        ):
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
            # No word matches in translation: accept quoted values, or a claim without any to find.
            return matter.count >= LEAST_WORDS
        row = cell or _is_row(line)
        return around.shares_word(self.topic) or (
            row and matter_of(quoted.source).shares_word(self.topic)
        )

    def _is_telling(
        self, claim: Matter, matter: Matter, around: Matter, quoted: QuotedWords, cell: bool
    ) -> bool:
        """Whether fewer than three words suffice: a name, a whole cell, values to compute with."""
        if matter.values:
            return len(quoted.values) > 1 or not claim.values
        return bool(matter.words) and (cell or bool(matter.words & around.names))

    def is_stated(self, claim: Matter, question: str, end: int) -> bool:
        """Whether the question states, and does not ask, what a claim says.

        Half of the claim's words suffice, as an answer puts the user's words in another person.
        """
        after = next((sign for sign in question[end:] if sign in CLAUSE_ENDS), "")
        if after in ASKING or not claim.values <= self.question.values:
            return False
        alike = len(claim.words & self.question.words)
        return bool(claim.values or claim.words) and 2 * alike >= len(claim.words)

    def asserts(self, claim: str) -> bool:
        """Whether a claim has a value or a name that the question does not state."""
        matter = claim_matter(claim)
        german = {piece.casefold() for piece in pieces_of(claim)} & GERMAN
        names = matter.names if len(german) < MOST_GERMAN else frozenset[str]()
        return not (matter.values <= self.question.values and names <= self.question.words)


def belief_of(answer: str, question: str, passages: Sequence[str]) -> Belief:
    """The `Belief` for the claims of an answer."""
    own, there = _letters_of(answer), _letters_of("\n".join(passages))
    asked = matter_of(question)
    return Belief(
        asked,
        matter_of(f"{answer}\n{question}"),
        asked.values.union(*(matter_of(text).values for text in passages)),
        len(own & there) < SAME_LANGUAGE * len(own),
    )


def _letters_of(text: str) -> set[str]:
    return {piece.casefold() for piece in pieces_of(text) if _is_letter(piece[0])}


def is_verdict(line: str) -> bool:
    """Whether a sentence states a verdict on claims or addresses their judge with one."""
    own = _letters_of(line)
    return bool(own & VERDICTS) and bool(own & JUDGED)

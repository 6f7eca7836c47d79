"""Index of the passages' sentences by words and values; cuts a sentence into clauses on demand."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Final

from crp_integrations.dpe.comparison.clause_words import (
    DENIALS,
    Token,
    figures,
    folded_keys,
    qualified,
    qualified_beside,
    readings_of,
    shape_of,
    tokens_of,
    without_denial,
)
from crp_integrations.dpe.verifier.values import Value, same_value
from crp_integrations.language.blocks import TextBlock, blocks
from crp_integrations.language.claims import clauses
from crp_integrations.language.dates import DateMention, DateParts, dates, stated
from crp_integrations.language.folded_text import Folded
from crp_integrations.language.measures import to_base
from crp_integrations.language.memo import LONGEST as LONGEST_KEPT
from crp_integrations.language.memo import remembered_within
from crp_integrations.language.numerals import WORDED
from crp_integrations.language.quantities import Quantity, quantities
from crp_integrations.language.text import plain, split_sentences
from crp_integrations.language.words import PREPOSITIONS, stem

# Text between two clauses that hold independently of each other.
_AND: Final = re.compile(r"(?i)[\s,]*(?:;\s*)?(?:and\s+)?")
_RELATIVE: Final = re.compile(r"(?i)(?:which|who|whose|where|because|since|so|as|while|whereas)\b")
_DATA: Final = re.compile(r"\s*[\[{|]|\"\s*:\s|^[^|]*\|[^|]*\|", re.M)
# Longer sentences, in characters, are data without full stops, and are not cut into clauses.
LONGEST: Final = 1_000
WORD: Final = re.compile(r"\w+")
_NUMBER: Final = re.compile(r"\d+(?:[.,'\u2009\u00a0\u202f]\d+)*")


# Common numbers of hours, days, weeks and months, by which prices per period are multiplied.
_PERIODS: Final = tuple(map(Decimal, (2, 4, 7, 12, 24, 30, 52, 60, 365)))
# Maximum relative rounding of a computed value.
_ROUNDED: Final = Decimal("0.005")
# Maximum number of figures: with more, almost any number follows from two of them by chance.
_MAX_NUMBERS: Final = 60
# Times are not multiplied by periods: "24 years" does not follow from "24 months".
_TIME: Final = to_base(Decimal(1), "h")[1]


@dataclass(frozen=True)
class EvidenceClause:
    """A clause of a passage with the subject that it borrows, or a whole sentence.

    Attributes:
        parts: start and end in the passage of subject and clause, or of the sentence.
        free: True if nothing else in its sentence qualifies it.
    """

    tokens: tuple[Token, ...]
    parts: tuple[tuple[int, int], ...]
    whole: bool
    free: bool

    @cached_property
    def shape(self) -> tuple[str, ...]:
        """See `shape_of`."""
        return shape_of(self.tokens)

    @cached_property
    def denials(self) -> int:
        """The number of its denials."""
        return sum(key in DENIALS for key in self.shape)

    @cached_property
    def stems(self) -> list[str]:
        """Its stems without denials; see `without_denial`."""
        return without_denial(self.tokens)[0]


@dataclass
class Sentence:
    """A sentence, row or line of a passage.

    Attributes:
        text: the passage's characters from `start` to `end`.
        keys: its words with their offsets in the passage.
        lead: the line that introduces its list, or its heading.
        first: True for the first sentence of its passage.
    """

    start: int
    end: int
    text: str
    keys: list[tuple[str, int, int]]
    lead: str
    first: bool
    before: Sentence | None = None
    words: frozenset[str] = field(default=frozenset())
    is_code: bool = False

    @cached_property
    def is_prose(self) -> bool:
        """Whether it is a statement in words, not a row, data, code or question."""
        if (
            self.is_code
            or self.end - self.start > LONGEST
            or self.text.rstrip("\"' )").endswith(("?", ":"))
        ):
            return False
        return _DATA.search(self.text) is None

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The words of the whole sentence as they are compared."""
        return self.clauses[0].tokens

    @cached_property
    def clauses(self) -> list[EvidenceClause]:
        """The sentence itself, then each of its clauses if it has several."""
        return list(self._cut())

    def _cut(self) -> Iterator[EvidenceClause]:
        every = tokens_of(self.text, self.keys, self.start)
        free = not (self.lead and qualified(self.lead))
        yield EvidenceClause(tuple(every), ((self.start, self.end),), True, free)
        if not self.is_prose:
            return
        sentence_clauses = clauses(self.text)
        if len(sentence_clauses) < 2:
            return
        for place, clause in enumerate(sentence_clauses):
            before = sentence_clauses[place - 1].end if place else 0
            after = (
                sentence_clauses[place + 1].start
                if place + 1 < len(sentence_clauses)
                else len(self.text)
            )
            joints = [self.text[before : clause.start], self.text[clause.end : after]]
            apart = all(_AND.fullmatch(joint) for joint in joints if joint.strip(" .!"))
            following = self.text[after:]
            opening = self.text[clause.start :]
            if _RELATIVE.match(opening) or _RELATIVE.match(following):
                apart = False
            parts = [(self.start + clause.start, self.start + clause.end)]
            rest = self.text[: clause.start], self.text[clause.end :]
            if clause.subject is not None:
                parts.insert(
                    0, (self.start + clause.subject.start, self.start + clause.subject.end)
                )
            for subject in self._subjects(parts, every):
                inside = tuple(
                    t for t in every if any(a <= t.start and t.end <= b for a, b in subject)
                )
                ok = free and apart and not qualified_beside(*rest)
                yield EvidenceClause(inside, tuple(subject), False, ok)

    def _subjects(
        self, parts: list[tuple[int, int]], every: Sequence[Token]
    ) -> Iterator[list[tuple[int, int]]]:
        """The parts; then, for some, the same without a leading "In 2023" of another clause."""
        yield parts
        if len(parts) < 2:
            return
        opening = [t for t in every if parts[0][0] <= t.start and t.end <= parts[0][1]]
        if len(opening) > 2 and opening[0].key in PREPOSITIONS and opening[1].value is not None:
            here = [t for t in every if parts[1][0] <= t.start]
            # Another tense: in "In 2023 it reported … and employs …" the year is the first verb's.
            if here and here[0].key.endswith("s"):
                yield [(opening[2].start, parts[0][1]), parts[1]]


class PassageReading:
    """A passage or the question, read once for all claims and cached for later answers."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def folded(self) -> Folded:
        """The form in which quotations are compared."""
        return Folded(self.text)

    @cached_property
    def sentences(self) -> list[Sentence]:
        """Its sentences in order."""
        text, sentences = self.text, list[Sentence]()
        keys = folded_keys(text, self.folded)
        starts = [start for _, start, _ in keys]
        parts = blocks(text)
        leads = leads_of(text, parts)
        code = {block.start for block in parts if block.kind == "code"}
        before: Sentence | None = None
        for span in split_sentences(text):
            own = keys[bisect_left(starts, span.start) : bisect_left(starts, span.end)]
            before = Sentence(
                span.start, span.end, span.of(text), own,
                lead_at(leads, span.start), before is None, before,
                frozenset(word for key, _, _ in own for word in readings_of(key)),
                span.start in code,
            )  # fmt: skip
            sentences.append(before)
        return sentences

    @cached_property
    def words(self) -> frozenset[str]:
        """Its words; the words within codes and paths count separately."""
        return frozenset(WORD.findall(plain(self.text)))

    @cached_property
    def digits(self) -> frozenset[str]:
        """The digits of its numbers; see `digits_of`."""
        digits = {
            re.sub(r"\D", "", number).strip("0") or "0" for number in _NUMBER.findall(self.text)
        }
        for word in set(WORD.findall(self.text.casefold())) & WORDED:
            digits |= {digits_of(quantity.value) for quantity in quantities(word)}
        return frozenset(digits)

    @cached_property
    def dates(self) -> tuple[DateMention, ...]:
        """Its dates, sentence by sentence."""
        texts = (s.text for s in self.sentences if any(map(str.isdigit, s.text)))
        return tuple(date for text in texts for date in dates(text))


# The facts of some tens of answers, since reading them is a tenth of a call; a reading takes about
# seventy times the size of its passage.
_read_passage = remembered_within(1 << 17, longest=LONGEST_KEPT)(PassageReading)


def digits_of(number: Decimal) -> str:
    """The digits of a number without its scale: the same for "4.2 million" and "4,200,000"."""
    return "".join(map(str, abs(number).as_tuple().digits)).strip("0") or "0"


class EvidenceIndex:
    """The passages and the question, indexed for the comparison with claims."""

    def __init__(self, passages: Sequence[tuple[str, str]], question: str) -> None:
        self.passages, self.question = passages, question
        self.readings = [_read_passage(text) for _, text in passages]

    @cached_property
    def sentences(self) -> list[tuple[int, Sentence]]:
        """The sentences of all passages in order, each with its passage's number from 0."""
        return [(n, sentence) for n, own in enumerate(self.readings) for sentence in own.sentences]

    @cached_property
    def known_words(self) -> frozenset[str]:
        """The words of the passages and of the question."""
        own = PassageReading(self.question).words
        return own.union(*(reading.words for reading in self.readings))

    @cached_property
    def known_digits(self) -> frozenset[str]:
        """The digits of all numbers of the passages and of the question."""
        own = PassageReading(self.question).digits
        return own.union(*(reading.digits for reading in self.readings))

    @cached_property
    def known_dates(self) -> frozenset[DateParts]:
        """The dates of the passages and the question, each with and without each of its parts."""
        own = {date for reading in self.readings for date in reading.dates}
        return frozenset(part for date in own.union(dates(self.question)) for part in stated(date))

    @cached_property
    def vocabulary(self) -> dict[str, list[int]]:
        """Each word of the passages with the positions of the sentences that contain it."""
        places: dict[str, list[int]] = {}
        for number, (_, sentence) in enumerate(self.sentences):
            for word in sentence.words:
                places.setdefault(word, []).append(number)
        return places

    def near(self, wanted: frozenset[str]) -> list[tuple[int, Sentence]]:
        """The sentences that lack at most one of the wanted words, with their passages' numbers."""
        places = self.vocabulary
        # A sentence that lacks at most one word contains one of the two rarest.
        rarest = sorted(wanted, key=lambda word: (len(places.get(word, ())), word))[:2]
        numbers = sorted({n for word in rarest for n in places.get(word, ())})
        return [self.sentences[n] for n in numbers if len(wanted - self.sentences[n][1].words) <= 1]

    def about(self, wanted: Sequence[str]) -> list[Sentence]:
        """The sentences, rows and lines that contain a wanted word in any form."""
        stems = {stem(word) for word in wanted}
        places = self.vocabulary
        words = [word for word in places if word in wanted or stem(word) in stems]
        return [self.sentences[n][1] for n in sorted({n for word in words for n in places[word]})]

    def explains(self, value: Value, content: Sequence[str]) -> bool:
        """Whether a claim's value occurs in the question or in a sentence with one of the claim's
        content words, or follows from their values by arithmetic.
        """
        asked = figures(self.question)
        near = [v for sentence in self.about(content) for v in figures(sentence.text)]
        if any(
            same_value(value, other) or value.text.casefold() == other.text.casefold()
            for other in (*asked, *near)
        ):
            return True
        if not isinstance(value.of, Quantity):
            return False
        return follows(value.of, [v.of for v in (*asked, *near) if isinstance(v.of, Quantity)])

    def gives(self, token: Token, following: str) -> bool:
        """Whether any sentence has the same value, with its unit or before the same word.

        Args:
            following: the word after a number without a unit.
        """
        value = token.value
        assert value is not None
        for _, sentence in self.sentences:
            if not any(c.isdigit() for c in sentence.text) and not sentence.words & WORDED:
                continue
            for place, other in enumerate(sentence.tokens):
                if other.value is None or not same_value(value, other.value):
                    continue
                after = sentence.tokens[place + 1].key if place + 1 < len(sentence.tokens) else ""
                unit = value.of.unit if isinstance(value.of, Quantity) else ""
                if unit or isinstance(value.of, DateMention) or after == following:
                    return True
        return False


def follows(own: Quantity, others: Iterable[Quantity]) -> bool:
    """Whether a quantity is computable from others; a clock time, never computed, always is."""
    size, dimension = to_base(own.value, own.unit)
    known = {to_base(q.value, q.unit) for q in others if q.unit != "clock"}
    if own.unit == "clock" or not size:
        return own.unit == "clock"
    alike = sorted({number for number, kind in known if kind == dimension and number})[
        :_MAX_NUMBERS
    ]
    bare = sorted({number for number, kind in known if not kind and number})[:_MAX_NUMBERS]
    made: set[Decimal] = set()
    for a, b in itertools.combinations(alike, 2):
        made |= {a + b, abs(a - b)}
    for a in alike:
        for b in (*bare, *(() if dimension == _TIME else _PERIODS)):
            made |= {a * b, a / b}
    made.add(sum(alike, Decimal(0)))
    if own.kind == "percent":
        for a, b in itertools.permutations({number for number, _ in known if number}, 2):
            made |= {100 * a / b, abs(100 * a / b - 100)}
    return any(abs(number - size) <= _ROUNDED * abs(size) for number in made)


def leads_of(text: str, parts: Sequence[TextBlock] | None = None) -> list[tuple[int, str]]:
    """The start of each block, with the line that introduces its list or the heading above it."""
    leads: list[tuple[int, str]] = []
    heading = lead = ""
    for block in blocks(text) if parts is None else parts:
        own = text[block.start : block.end]
        leads.append((block.start, lead or heading))
        if block.kind == "heading":
            heading, lead = own, ""
        elif block.kind == "paragraph":
            lead = own if own.rstrip("*_ ").endswith(":") else ""
    return leads


def lead_at(leads: Sequence[tuple[int, str]], place: int) -> str:
    """The lead of the block that contains an offset."""
    at = bisect_right(leads, place, key=lambda row: row[0])
    return leads[at - 1][1] if at else ""

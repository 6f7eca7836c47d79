"""The sentences of the passages, found by their words; each is read when a claim comes near."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from crp_integrations.dpe.comparison.clause_words import (
    Token,
    folded_keys,
    qualified,
    readings_of,
    tokens_of,
)
from crp_integrations.language.blocks import TextBlock, blocks
from crp_integrations.language.claims import clauses
from crp_integrations.language.dates import DateMention, dates
from crp_integrations.language.folded_text import Folded
from crp_integrations.language.text import split_sentences
from crp_integrations.language.words import PREPOSITIONS, stem

# What parts two clauses of which each holds without the other.
_AND: Final = re.compile(r"(?i)[\s,]*(?:;\s*)?(?:and\s+)?")
_RELATIVE: Final = re.compile(r"(?i)(?:which|who|whose|where|because|since|so|as|while|whereas)\b")
_DATA: Final = re.compile(r"\s*[\[{|]|\"\s*:\s|^[^|]*\|[^|]*\|", re.M)
# Longer sentences are data without stops, which no clause is cut from.
LONGEST: Final = 1_000


@dataclass(frozen=True, slots=True)
class EvidenceClause:
    """A clause of a passage with the subject that it borrows, or a whole sentence.

    Attributes:
        tokens: its words.
        parts: first and last offset in the passage of subject and clause, or of the sentence.
        whole: it is a whole sentence.
        free: nothing else in its sentence bears on it.
    """

    tokens: tuple[Token, ...]
    parts: tuple[tuple[int, int], ...]
    whole: bool
    free: bool


@dataclass(slots=True)
class Sentence:
    """A sentence, row or line of a passage.

    Attributes:
        passage: its number, from 0.
        text: as it stands there, from `start` to `end`.
        keys: its words with their offsets in the passage.
        lead: the line above its list, or its heading.
        first: no sentence of its passage stands before it.
    """

    passage: int
    start: int
    end: int
    text: str
    keys: list[tuple[str, int, int]]
    lead: str
    first: bool
    before: Sentence | None = None
    words: frozenset[str] = field(default=frozenset())
    is_code: bool = False
    _clauses: list[EvidenceClause] | None = None

    @property
    def is_prose(self) -> bool:
        """Whether it asserts something in words: no row, no data, no question."""
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

    @property
    def clauses(self) -> list[EvidenceClause]:
        """The sentence itself, and each of its clauses where it has several."""
        if self._clauses is None:
            self._clauses = list(self._cut())
        return self._clauses

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
            rest = self.text[: clause.start] + " " + self.text[clause.end :]
            if clause.subject is not None:
                parts.insert(
                    0, (self.start + clause.subject.start, self.start + clause.subject.end)
                )
            for subject in self._subjects(parts, every):
                inside = tuple(
                    t for t in every if any(a <= t.start and t.end <= b for a, b in subject)
                )
                ok = free and apart and not qualified(rest)
                yield EvidenceClause(inside, tuple(subject), False, ok)

    def _subjects(
        self, parts: list[tuple[int, int]], every: Sequence[Token]
    ) -> Iterator[list[tuple[int, int]]]:
        """The parts, and again without the "In 2023" that opens another clause's subject."""
        yield parts
        if len(parts) < 2:
            return
        opening = [t for t in every if parts[0][0] <= t.start and t.end <= parts[0][1]]
        if len(opening) > 2 and opening[0].key in PREPOSITIONS and opening[1].value is not None:
            here = [t for t in every if parts[1][0] <= t.start]
            # Another tense: "In 2023 it reported … and employs …" says when it reported.
            if here and here[0].key.endswith("s"):
                yield [(opening[2].start, parts[0][1]), parts[1]]


class EvidenceIndex:
    """The passages as claims are compared with them.

    Attributes:
        passages: id and text of each.
    """

    def __init__(self, passages: Sequence[tuple[str, str]]) -> None:
        """Read nothing yet."""
        self.passages = passages

    @cached_property
    def folded(self) -> list[Folded]:
        """Each passage in the form in which quotations are compared."""
        return [Folded(text) for _, text in self.passages]

    @cached_property
    def sentences(self) -> list[Sentence]:
        """The sentences of all passages in order."""
        sentences: list[Sentence] = []
        for number, (_, text) in enumerate(self.passages):
            keys = folded_keys(text, self.folded[number])
            starts = [start for _, start, _ in keys]
            parts = blocks(text)
            leads = leads_of(text, parts)
            code = {block.start for block in parts if block.kind == "code"}
            before: Sentence | None = None
            for span in split_sentences(text):
                low, high = bisect_left(starts, span.start), bisect_left(starts, span.end)
                own = keys[low:high]
                sentence = Sentence(
                    number, span.start, span.end, text[span.start : span.end], own,
                    lead_at(leads, span.start), before is None, before,
                    frozenset(word for key, _, _ in own for word in readings_of(key)),
                    span.start in code,
                )  # fmt: skip
                sentences.append(sentence)
                before = sentence
        return sentences

    @cached_property
    def dates(self) -> list[DateMention]:
        """The dates of all passages."""
        with_figures = (
            sentence.text for sentence in self.sentences if any(map(str.isdigit, sentence.text))
        )
        return [date for text in with_figures for date in dates(text)]

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for number, sentence in enumerate(self.sentences):
            for word in sentence.words:
                places.setdefault(word, []).append(number)
        return places

    @property
    def vocabulary(self) -> dict[str, list[int]]:
        """Each word of the passages with the numbers of the sentences that have it."""
        return self._places

    def near(self, wanted: frozenset[str]) -> list[Sentence]:
        """The sentences that lack at most one of some words."""
        places = self._places
        # What lacks one of them has one of the two rarest.
        rarest = sorted(wanted, key=lambda word: (len(places.get(word, ())), word))[:2]
        numbers = sorted({n for word in rarest for n in places.get(word, ())})
        return [self.sentences[n] for n in numbers if len(wanted - self.sentences[n].words) <= 1]

    def about(self, wanted: Sequence[str]) -> list[Sentence]:
        """The sentences, rows and lines that share a word with some, in any form of it."""
        stems = {stem(word) for word in wanted}
        words = [word for word in self._places if word in wanted or stem(word) in stems]
        numbers = sorted({n for word in words for n in self._places[word]})
        return [self.sentences[n] for n in numbers]


def leads_of(text: str, parts: Sequence[TextBlock] | None = None) -> list[tuple[int, str]]:
    """Where each block begins, and the line that introduces its list or the heading above it."""
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
    """The lead of the block in which a place lies."""
    at = bisect_right(leads, place, key=lambda row: row[0])
    return leads[at - 1][1] if at else ""

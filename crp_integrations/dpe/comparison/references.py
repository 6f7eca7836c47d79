"""Finds quotations and citations without a source, and values that are in no passage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from crp_integrations.dpe.comparison.clause_words import claim_tokens
from crp_integrations.dpe.comparison.evidence_index import WORD, EvidenceIndex, digits_of
from crp_integrations.dpe.records import Claim, Entity
from crp_integrations.dpe.verifier.values import PERIOD, Value, read
from crp_integrations.language.dates import DateMention, readings_of
from crp_integrations.language.folded_text import locate
from crp_integrations.language.quantities import Quantity
from crp_integrations.language.text import plain

# Fewer quoted words may be a term or a title.
MIN_QUOTED_WORDS: Final = 4
# Minimum share of a quotation's words in the passages; below it the language may be another one.
MIN_KNOWN_SHARE: Final = 0.5
# Short quotations match too, so that a closing mark is not taken for an opening one.
_QUOTED: Final = re.compile(
    r"\"(?P<plain>[^\"\n]{0,400})\""
    r"|[\u201c\u201e](?P<high>[^\u201c\u201d\u201e\n]{0,400})[\u201d\u201c]"
    r"|\u00ab(?P<angle>[^\u00ab\u00bb\n]{0,400})\u00bb"
)
_CODE: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\$\$.*?\$\$", re.S)
_LEFT_OUT: Final = re.compile(r"\s?(?:\[?\u2026\]?|\[?\.\.\.\]?|\[[^\]]*\])\s?")
_MARKUP: Final = re.compile(r"<[^<>\n]{1,80}>|\]\([^()\s]{1,300}\)|\\[nrt\"/]")
_CITATION: Final = re.compile(
    r"(?<=[\w.,;:!?)\"'\u201d*`\]])\s?\[(?:(?:source|passage|context|document|doc|fact|ref)s?[\s-]?)?"
    r"(?P<square>\d{1,3}(?:\s?[,;]\s?\d{1,3})*)\](?!\()"
    r"|\((?:source|passage|context|document|fact)s?\s(?P<round>\d{1,3}(?:\s?(?:,|and)\s?\d{1,3})*)\)",
    re.I,
)
_INDEXED: Final = re.compile(r"[\w)`](?:\[[^\[\]\n]{0,20}\])*\Z")


def missing_quotations(answer: str, evidence: EvidenceIndex) -> Iterator[tuple[int, int]]:
    """Quotations of several words that neither a passage nor the question has, as offsets."""
    if not evidence.passages or answer.lstrip()[:1] in ("{", "["):
        # The strings of structured output are not quotations.
        return
    code = [match.span() for match in _CODE.finditer(answer)]
    for match in _QUOTED.finditer(answer):
        kind = str(match.lastgroup)
        words = match[kind].split()
        if len(words) < MIN_QUOTED_WORDS or _is_inch(answer, match, kind):
            continue
        if any(low < match.end() and match.start() < high for low, high in code):
            continue
        if _occurs(match[kind], evidence) or not _known(match[kind], evidence):
            continue
        yield match.span(kind)


def _is_inch(answer: str, match: re.Match[str], kind: str) -> bool:
    """Whether the marks do not quote: blanks just inside, or a figure or mark just outside."""
    inner = match[kind]
    before = answer[max(0, match.start() - 1) : match.start()]
    after = answer[match.end() : match.end() + 1]
    return inner[0].isspace() or inner[-1].isspace() or before.isalnum() or '"' in (before, after)


def _occurs(quotation: str, evidence: EvidenceIndex) -> bool:
    if any(locate(quotation, reading.folded) is not None for reading in evidence.readings):
        return True
    # Else compare the words alone, without punctuation, tags, links and escapes.
    pieces = [_row(piece) for piece in _LEFT_OUT.split(quotation)]
    whole = " ".join(
        f" {_row(form)} "
        for _, text in (*evidence.passages, ("", evidence.question))
        for form in (text, _MARKUP.sub(" ", text))
    )
    return all(f" {piece} " in whole for piece in pieces if piece)


def _known(quotation: str, evidence: EvidenceIndex) -> bool:
    keys = [token.key for token in claim_tokens(quotation)]
    return sum(key in evidence.vocabulary for key in keys) >= MIN_KNOWN_SHARE * len(keys)


def _row(text: str) -> str:
    return " ".join(word.strip("_") for word in WORD.findall(plain(text)))


def missing_citations(answer: str, evidence: EvidenceIndex) -> Iterator[tuple[int, int]]:
    """Offsets of the citations of passages that do not exist.

    A bracketed number that also occurs in a passage or in the question is not a citation.
    """
    count = len(evidence.passages)
    citations = list(_CITATION.finditer(answer)) if count else []
    numbers = {id(match): _numbers(match) for match in citations}
    if any(0 in cited for cited in numbers.values()):
        # They count from 0, or are not citations.
        return
    code = [match.span() for match in _CODE.finditer(answer)]
    for match in citations:
        beyond = [number for number in numbers[id(match)] if number > count]
        if not beyond or any(low < match.end() and match.start() < high for low, high in code):
            continue
        before = answer[: match.start()]
        # "items[3]" and "a[0][3]" are list indexes.
        glued = match["square"] is not None and match.group()[0] == "["
        if before.rstrip().endswith((":", "=", "[")) or (glued and _INDEXED.search(before)):
            continue
        own = [f"[{number}]" for number in beyond]
        # The answer has its own list of references, or a passage uses the mark itself.
        if any(re.search(rf"(?m)^\W{{0,4}}{re.escape(mark)}", answer) for mark in own):
            continue
        if any(
            mark in text
            for mark in own
            for text in (evidence.question, *(t for _, t in evidence.passages))
        ):
            continue
        if any(_labelled(number, text) for number in beyond for _, text in evidence.passages):
            continue
        start = match.start() + len(match.group()) - len(match.group().lstrip())
        yield start, match.end()


def _labelled(number: int, text: str) -> bool:
    return (
        re.search(rf"(?i)\b(?:passage|source|document|fact|ref)\W{{0,2}}{number}\b", text)
        is not None
    )


def _numbers(match: re.Match[str]) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", match["square"] or match["round"])]


def hints_of(claim: Claim, evidence: EvidenceIndex) -> tuple[Entity, ...]:
    """Figures, names, dates and identifiers of a claim in neither the evidence nor the question."""
    if not evidence.passages:
        return ()
    return tuple(
        Entity(
            text=value.text, kind=value.kind,
            start=claim.start + value.start, end=claim.start + value.end,
        )
        for value in read(claim.text).values
        if not _is_known(value, evidence)
    )  # fmt: skip


def _is_known(value: Value, evidence: EvidenceIndex) -> bool:
    keys = WORD.findall(plain(value.text))
    if keys and evidence.known_words.issuperset(keys):
        return True
    if isinstance(value.of, Quantity):
        ends = {digits_of(value.of.low), digits_of(value.of.high)}
        return value.of.unit.startswith(PERIOD) or not ends.isdisjoint(evidence.known_digits)
    if isinstance(value.of, DateMention):
        return not evidence.known_dates.isdisjoint(readings_of(value.of))
    return False

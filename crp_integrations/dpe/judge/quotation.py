"""Which claims need no judge, because the evidence has them word for word."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from crp_integrations.dpe.judge.records import Quotation
from crp_integrations.dpe.records import REJECTED, Claim, Report
from crp_integrations.dpe.verifier.values import MARKER
from crp_integrations.language.folding import Folded, folded_words
from crp_integrations.language.negation import dropped_conditions, polarity_differs
from crp_integrations.language.text import split_sentences
from crp_integrations.language.words import content_stems
from crp_integrations.vocabulary import Checked, ClaimStatus, ClaimType, ErrorKind

# Shorter ones match by chance.
LEAST_WORDS: Final = 3

_BETWEEN: Final = re.compile(r"[\W_]+")

# Words that answer a question alone.
ANSWERS: Final = frozenset({"yes", "no", "ja", "nein", "oui", "non", "sí", "si"})

# Which error each finding of the stages without a model call stands for.
ERRORS: Final = {
    "NUMBER_CHANGED": ErrorKind.NUMBER,
    "MAGNITUDE_ALTERED": ErrorKind.NUMBER,
    "DATE_SHIFTED": ErrorKind.DATE,
    "ENTITY_SUBSTITUTED": ErrorKind.NAME,
    "NEGATION_FLIP": ErrorKind.NEGATION,
    "CONTEXT_STRIPPED": ErrorKind.CONDITION,
    "contradiction": ErrorKind.RELATION,
    "fabrication": ErrorKind.INVENTION,
    "CITATION_WRONG": ErrorKind.INVENTION,
    REJECTED: ErrorKind.INVENTION,
}


def screened(report: Report, passages: Sequence[tuple[str, str]]) -> Report:
    """A report whose claims have the statuses that the stages without a model call give.

    SUPPORTED is what the evidence has word for word or value for value; CONTRADICTED and
    UNSUPPORTED is what a finding says; everything else is NOT_CHECKED. They raise no level.
    """
    units = _Units(passages)
    claims = tuple(_screened(claim, units, passages) for claim in report.claims)
    return report.model_copy(update={"claims": claims})


def without_doubt(claims: Sequence[Claim]) -> bool:
    """Whether every claim is matched, one at least; talk may stand between them.

    A bare yes or no, and talk with a figure or a name, says something that nobody matched.
    """
    talk = [claim for claim in claims if claim.status is not ClaimStatus.SUPPORTED]
    return len(talk) < len(claims) and all(map(_is_talk, talk))


def _is_talk(claim: Claim) -> bool:
    first = folded_words(claim.text).partition(" ")[0].strip(".,;:!")
    return (
        claim.status is ClaimStatus.NOT_CHECKABLE
        and claim.claim_type is ClaimType.META
        and first not in ANSWERS
        and not claim.entities
    )


def _screened(claim: Claim, units: _Units, passages: Sequence[tuple[str, str]]) -> Claim:
    if claim.checked is Checked.NOT_CHECKABLE:
        return claim.model_copy(update={"status": ClaimStatus.NOT_CHECKABLE})
    typed = [one for one in claim.findings if one.kind in ERRORS]
    if typed:
        first = typed[0]
        invented = ERRORS[first.kind] is ErrorKind.INVENTION
        status = ClaimStatus.UNSUPPORTED if invented else ClaimStatus.CONTRADICTED
        quotations: tuple[Quotation, ...] = ()
        if first.evidence is not None:
            found = _quoted(
                first.evidence.fact_id, first.evidence.start, first.evidence.end, passages
            )
            quotations = (found,) if found else ()
        return claim.model_copy(
            update={
                "status": status,
                "error": ERRORS[first.kind],
                "wrong": (first.start, first.end),
                "quotations": quotations,
                "reason": next((one.reason for one in typed if one.kind == REJECTED), ""),
            }
        )
    if claim.findings:
        return claim.model_copy(
            update={"status": ClaimStatus.UNSUPPORTED, "error": ErrorKind.OVERREACH}
        )
    place = units.matched(MARKER.sub("", claim.text).strip())
    if place is None:
        return claim
    found = _quoted(*place, passages)
    return claim.model_copy(
        update={"status": ClaimStatus.SUPPORTED, "quotations": (found,) if found else ()}
    )


def _quoted(
    fact_id: str, start: int, end: int, passages: Sequence[tuple[str, str]]
) -> Quotation | None:
    for number, (name, text) in enumerate(passages, 1):
        if name == fact_id and 0 <= start < end <= len(text):
            return Quotation(
                fact_id=name, passage=number, start=start, end=end, text=text[start:end]
            )
    return None


class _Units:
    """The sentences and lines of the evidence, in the form that claims are looked for in."""

    def __init__(self, passages: Sequence[tuple[str, str]]) -> None:
        self._passages = passages
        self._folded: dict[int, Folded] = {}
        self._letters: dict[int, str] = {}
        self._units: list[tuple[int, int, int, str, str]] | None = None

    def matched(self, claim: str) -> tuple[str, int, int] | None:
        """Fact and offsets of what says a claim word for word or value for value."""
        if len(claim.split()) < LEAST_WORDS:
            return None
        words, letters = folded_words(claim), _letters(claim)
        for number, (fact_id, text) in enumerate(self._passages):
            # Folding every passage takes a fifth of an examination: only where it may stand.
            if letters not in self._letters_of(number):
                continue
            place = self._folded_of(number).find(words)
            if place is not None and not self._conditioned(claim, text, place):
                return fact_id, *place
        return self._by_value(claim)

    def _letters_of(self, number: int) -> str:
        if number not in self._letters:
            self._letters[number] = _letters(self._passages[number][1])
        return self._letters[number]

    def _folded_of(self, number: int) -> Folded:
        if number not in self._folded:
            self._folded[number] = Folded(self._passages[number][1])
        return self._folded[number]

    def _conditioned(self, claim: str, text: str, place: tuple[int, int]) -> bool:
        """Whether the sentence around words has a condition or a negation that they leave out."""
        for span in split_sentences(text):
            if span.start <= place[0] < span.end:
                around = text[span.start : max(span.end, place[1])]
                return bool(dropped_conditions(claim, around)) or polarity_differs(claim, around)
        return False

    def _by_value(self, claim: str) -> tuple[str, int, int] | None:
        stems = content_stems(claim)
        if len(stems) < LEAST_WORDS:
            return None
        wanted = f" {' '.join(stems)} "
        if self._units is None:
            self._units = [
                (
                    number,
                    span.start,
                    span.end,
                    span.of(text),
                    f" {' '.join(content_stems(span.of(text)))} ",
                )
                for number, (_, text) in enumerate(self._passages)
                for span in split_sentences(text)
            ]
        for number, start, end, unit, told in self._units:
            if (
                wanted in told
                and not dropped_conditions(claim, unit)
                and not polarity_differs(claim, unit)
            ):
                return self._passages[number][0], start, end
        return None


def _letters(text: str) -> str:
    """The letters and figures of a text alone: what stands in it word for word stands here too."""
    return _BETWEEN.sub("", unicodedata.normalize("NFKC", text).casefold())

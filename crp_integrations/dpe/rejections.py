"""Finds repetitions of claims that a sub-agent's report rejected."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from crp_integrations.dpe.records import LONGEST, REJECTED, Claim, Finding, RejectedClaim, Report
from crp_integrations.dpe.state import State
from crp_integrations.dpe.verifier.opposition import canonical
from crp_integrations.dpe.verifier.values import read
from crp_integrations.language.negation import polarity_differs
from crp_integrations.language.text import split_sentences
from crp_integrations.language.words import content_stems
from crp_integrations.vocabulary import Checked, ClaimStatus, ErrorKind

MOST: Final = 20
# Minimum share of the rejected claim's words in a repeat, and of the repeat's words in the claim.
MIN_CLAIM_SHARE: Final = 0.7
MIN_OWN_SHARE: Final = 0.5
LEAST_WORDS: Final = 3
# Replaces a repeated claim in a tool's result.
REMOVED: Final = "…"


def rejected_claims(report: Report) -> tuple[RejectedClaim, ...]:
    """The claims for which a report flags its answer, at most 20, and why; none at a LOW risk.

    Spec: related facts §8
    """
    rejected = []
    flagged = [claim for claim in report.claims if claim.flagged] if report.flagged else []
    for claim in flagged[:MOST]:
        start, end = claim.wrong or (claim.start, claim.start)
        wrong = claim.text[max(0, start - claim.start) : max(0, end - claim.start)]
        rejected.append(
            RejectedClaim(
                text=claim.reads_as[:LONGEST],
                said=claim.text[:LONGEST],
                wrong=wrong[:LONGEST],
                reason=(claim.reason or _reason(claim))[:LONGEST],
                window_id=report.window_id,
            )
        )
    return tuple(rejected)


def _reason(claim: Claim) -> str:
    """Why the exact comparison flags a claim: the kind of error, and the evidence's words."""
    kind = claim.error.value if claim.error else claim.status.value
    quoted = " ".join(claim.quotations[0].text.split()) if claim.quotations else ""
    return f"{kind}: the evidence says “{quoted}”" if quoted else kind


def find_repeats(state: State) -> list[Finding]:
    """A finding for each claim that repeats a rejected claim, unless a passage states it.

    Spec: related facts §8
    """
    if not state.dossier.rejected:
        return []
    units = [
        _Words.of(span.of(text))
        for _, text in state.dossier.passages
        for span in split_sentences(text)
    ]
    claims = [
        claim
        for claim in state.claims
        if claim.checked is not Checked.NOT_CHECKABLE
        and claim.status is not ClaimStatus.NOT_CHECKABLE
    ]
    claim_words = [_Words.of(claim.reads_as) for claim in claims]
    findings = []
    sentences: dict[int, set[str]] = {}
    for claim, words in zip(claims, claim_words, strict=True):
        sentences.setdefault(claim.sentence_index, set()).update(words.figures)
    for rejected in state.dossier.rejected:
        known = _Words.of(rejected.text)
        if any(unit.repeat(known, rejected.wrong) for unit in units):
            continue
        right = _Words.of(rejected.reason).figures - known.figures
        for claim, words in zip(claims, claim_words, strict=True):
            # A sentence that also gives the right figure corrects the rejected claim.
            corrects = not right.isdisjoint(sentences[claim.sentence_index])
            if words.repeat(known, rejected.wrong) and not corrects:
                start, end = _place(claim, rejected.wrong)
                findings.append(
                    Finding(
                        stage=3,
                        kind=REJECTED,
                        claim_id=claim.claim_id,
                        start=start,
                        end=end,
                        reason=rejected.reason,
                    )
                )
    return findings


def with_repeats(claims: tuple[Claim, ...], repeats: Sequence[Finding]) -> tuple[Claim, ...]:
    """The claims with these findings added after their own."""
    if not repeats:
        return claims
    return tuple(
        claim.model_copy(
            update={
                "findings": (*claim.findings, *(f for f in repeats if f.claim_id == claim.claim_id))
            }
        )
        for claim in claims
    )


def with_rejection(claim: Claim) -> Claim:
    """The claim, marked UNSUPPORTED if it repeats a rejected one without support."""
    finding = claim.rejection
    if finding is None or claim.status in (ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED):
        return claim
    return claim.model_copy(
        update={
            "status": ClaimStatus.UNSUPPORTED,
            "error": ErrorKind.INVENTION,
            "wrong": (finding.start, finding.end),
            "quotations": (),
            "reason": finding.reason,
        }
    )


def _place(claim: Claim, wrong: str) -> tuple[int, int]:
    """Offsets in the answer of the wrong words, or of the claim if they are not known."""
    at = claim.text.find(wrong) if wrong else -1
    return (claim.start, claim.end) if at < 0 else (claim.start + at, claim.start + at + len(wrong))


def without_rejected(text: str, rejected: Sequence[RejectedClaim]) -> str:
    """A tool's result without the sentences that repeat a rejected claim.

    >>> said = RejectedClaim(text="The fare is 14 euros.", wrong="14 euros")
    >>> without_rejected("The fare is 14 euros. It is paid on board.", [said])
    '… It is paid on board.'
    """
    if not rejected:
        return text
    for claim in rejected:
        for statement in (claim.said, claim.text):
            # Shorter statements may occur within other text; as sentences they are found below.
            if len(statement.split()) < LEAST_WORDS:
                continue
            for form in (statement, json.dumps(statement, ensure_ascii=False)[1:-1]):
                text = text.replace(form, REMOVED)
    known = [(_Words.of(claim.text), claim.wrong) for claim in rejected]
    pieces, place = [], 0
    for span in split_sentences(text):
        sentence = _Words.of(span.of(text))
        if any(sentence.repeat(claim, wrong) for claim, wrong in known):
            pieces += [text[place : span.start], REMOVED]
            place = span.end
    return "".join(pieces) + text[place:]


@dataclass(frozen=True, slots=True)
class _Words:
    """The words and figures of a sentence, for comparison with another."""

    text: str
    stems: frozenset[str]
    figures: frozenset[str]

    @classmethod
    def of(cls, text: str) -> _Words:
        values = read(text).values
        figures = frozenset(canonical(value) for value in values if value.family != "name")
        return cls(text, frozenset(content_stems(text)), figures)

    def repeat(self, rejected: _Words, wrong: str) -> bool:
        """Whether they repeat a rejected claim: its figures, and most of its words.

        A denial of the claim does not repeat it.
        """
        if not self.stems or rejected.figures - self.figures:
            return False
        if wrong and _folded(wrong) not in _folded(self.text):
            return False
        both = len(self.stems & rejected.stems)
        if both < MIN_CLAIM_SHARE * len(rejected.stems) or both < MIN_OWN_SHARE * len(self.stems):
            return False
        return not polarity_differs(self.text, rejected.text)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def unique_claims(*lists: Iterable[RejectedClaim]) -> tuple[RejectedClaim, ...]:
    """The rejected claims of several lists, each text once."""
    return tuple({claim.text: claim for some in lists for claim in some}.values())

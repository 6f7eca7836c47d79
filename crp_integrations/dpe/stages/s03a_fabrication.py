"""Stage 3a: names, dates and figures that no source has.

Spec: CRP-SPEC-005 §5.2
"""

from __future__ import annotations

import re

from crp_integrations.dpe.records import Claim, Finding
from crp_integrations.dpe.state import State
from crp_integrations.dpe.verifier.calibrated import says_nothing
from crp_integrations.dpe.verifier.readings import MARKER, Value
from crp_integrations.language.blocks import code_of
from crp_integrations.language.text import plain
from crp_integrations.vocabulary import Attribution, Checked, ClaimType

KIND = "fabrication"
_FORMATS = frozenset("JSON CSV HTML XML YAML SQL Markdown".split())
_LENGTH = re.compile(r"(?i)[\s-](?:words?|sentences?|paragraphs?|bullets?|points?|steps?)\b")
_FIRST = {Attribution.UNVERIFIABLE: 0, Attribution.PARAMETRIC: 1, Attribution.MIXED: 2}


def order_of_search(state: State) -> list[int]:
    """Positions of the claims in the order in which they are searched, ungrounded first.

    Spec: CRP-SPEC-005 §5.2 (decision D10)
    """
    places = [p for p, claim in enumerate(state.claims) if claim.checked is not Checked.NOT_CHECKED]
    return sorted(places, key=lambda p: (_rank(state.claims[p]), p))


def _rank(claim: Claim) -> int:
    return len(_FIRST) if claim.attribution is None else _FIRST.get(claim.attribution, len(_FIRST))


def fabrications(state: State) -> list[Finding]:
    """A finding for each value without a source, and for each citation of a fact not there.

    Spec: CRP-SPEC-005 §5.2
    """
    found: list[Finding] = []
    answer = state.dossier.answer
    code = code_of(answer)
    for place in order_of_search(state):
        claim, alignment = state.claims[place], state.alignments[place]
        if alignment is None or says_nothing(claim, state.dossier.question):
            continue
        for value in alignment.untraced:
            if claim.claim_type is ClaimType.META and (
                plain(value.text) in plain(state.dossier.question) or _of_itself(claim, value)
            ):
                continue
            span = in_answer(claim, value)
            if span is not None and not code.names(*span):
                found.append(_finding(claim, *span))
        found.extend(_false_markers(state, claim))
    return found


def _of_itself(claim: Claim, value: Value) -> bool:
    """Whether an announcement says how long the answer is, or how it is written."""
    if value.text in _FORMATS:
        return True
    return _LENGTH.match(claim.reads_as, value.end) is not None


def in_answer(claim: Claim, value: Value) -> tuple[int, int] | None:
    """A value's offsets in the answer, None when it stands in a borrowed subject.

    The clause that the subject was borrowed from is a claim of its own and reports it.
    """
    shift = claim.start - (len(claim.reads_as) - (claim.end - claim.start))
    start, end = shift + value.start, shift + value.end
    return (start, end) if start >= claim.start else None


def _false_markers(state: State, claim: Claim) -> list[Finding]:
    """Citations such as "[7]" where the context has five facts and no such text."""
    found = []
    for match in MARKER.finditer(claim.reads_as):
        numbers = [int(number) for number in (match[1] or match[2]).split(",")]
        if all(1 <= number <= len(state.dossier.passages) for number in numbers):
            continue
        if any(match.group() in text for _, text in state.dossier.passages):
            continue
        shift = claim.start - (len(claim.reads_as) - (claim.end - claim.start))
        if shift + match.start() >= claim.start:
            found.append(_finding(claim, shift + match.start(), shift + match.end()))
    return found


def _finding(claim: Claim, start: int, end: int) -> Finding:
    return Finding(stage=3, kind=KIND, claim_id=claim.claim_id, start=start, end=end)

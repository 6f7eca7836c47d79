"""Compares each claim exactly with the evidence: supported, contradicted, or no result.

A claim is supported when it uses every word of one clause of one passage, and contradicted when
exactly one value, unit or negation of the predicate differs there and nothing explains the
difference. A doubtful claim stays unread.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from crp_integrations.dpe.comparison.clause_words import (
    DENIALS,
    Token,
    claim_tokens,
    content_keys,
    identifies,
    is_indefinite,
    is_vague,
    points_back,
    qualified,
    qualified_beside,
    same_token,
    shape_of,
    without_denial,
)
from crp_integrations.dpe.comparison.evidence_index import (
    EvidenceClause,
    EvidenceIndex,
    Sentence,
    lead_at,
    leads_of,
)
from crp_integrations.dpe.comparison.references import (
    hints_of,
    missing_citations,
    missing_quotations,
)
from crp_integrations.dpe.comparison.structures import FieldChange, FieldVerdict, compare_structures
from crp_integrations.dpe.records import CONTRADICTION, LONGEST, Claim, Finding
from crp_integrations.dpe.records import Evidence as Place
from crp_integrations.dpe.report_parts import Quotation
from crp_integrations.dpe.verifier.values import change_kind
from crp_integrations.language.claim_kinds import asserts_nothing
from crp_integrations.language.coverage import reasoning_spans, without_reasoning
from crp_integrations.language.text import Span, split_sentences
from crp_integrations.vocabulary import ClaimStatus, ClaimType, ErrorKind

ENGINE: Final = "comparison@1"
STAGE: Final = 3
QUOTE_NOT_FOUND: Final = "QUOTE_NOT_FOUND"
CITATION_WRONG: Final = "CITATION_WRONG"
NEGATION_FLIP: Final = "NEGATION_FLIP"
# A claim with fewer content words would match clauses about many different things.
MIN_CONTENT_WORDS: Final = 1


@dataclass(frozen=True, slots=True)
class Match:
    """A clause of the evidence that a claim is compared with.

    Attributes:
        own, other: the differing word of claim and clause; None if no word differs.
        denied: True if the two differ only in that one of them is negated.
    """

    passage: int
    sentence: Sentence
    clause: EvidenceClause
    own: Token | None = None
    other: Token | None = None
    denied: bool = False

    @property
    def same(self) -> bool:
        """Whether claim and clause are equal."""
        return self.own is None and not self.denied


def compare_claims(
    answer: str,
    claims: Sequence[Claim],
    passages: Sequence[tuple[str, str]],
    question: str,
    *,
    numbered: bool = True,
) -> tuple[Claim, ...]:
    """Compare the claims of an answer with the passages, word for word.

    Args:
        claims: the answer's claims, in order, not read yet.
        passages: id and text of each passage, in the order in which the model saw them.
        numbered: whether the model saw numbered passages; a citation above the last is then wrong.

    Returns:
        The claims with status, error, findings, quotations and hints.
    """
    # A model's reasoning must not qualify the sentence after it; offsets stay the same.
    answer = without_reasoning(answer, reasoning_spans(answer))
    evidence = EvidenceIndex(passages, question)
    structured = compare_structures(answer, evidence)
    comparison = _Comparison(answer, evidence)
    compared = [
        _by_structure(claim, structured, evidence) or comparison.compared(claim) for claim in claims
    ]
    wrong = [(span, QUOTE_NOT_FOUND) for span in missing_quotations(answer, evidence)]
    if numbered:
        wrong += [(span, CITATION_WRONG) for span in missing_citations(answer, evidence)]
    if wrong:
        compared = [_with_references(claim, wrong) for claim in compared]
    return tuple(
        claim.model_copy(update={"hints": hints_of(claim, evidence)})
        if claim.status is ClaimStatus.NOT_CHECKED
        else claim
        for claim in compared
    )


class _Comparison:
    """Compares the claims of one answer with the evidence."""

    def __init__(self, answer: str, evidence: EvidenceIndex) -> None:
        self.answer, self.evidence = answer, evidence
        self._sentences = split_sentences(answer)
        self._leads = leads_of(answer)

    def compared(self, claim: Claim) -> Claim:
        """The claim with the result of the comparison."""
        heading = claim.claim_type is ClaimType.META and self._opens_heading(claim)
        if asserts_nothing(claim.reads_as, heading=heading):
            return claim.model_copy(update={"status": ClaimStatus.NOT_CHECKABLE})
        tokens = claim_tokens(claim.reads_as)
        content = content_keys(tokens)
        if len(content) < MIN_CONTENT_WORDS or claim.text.rstrip().endswith(("?", ":")):
            return claim
        matches = self._matches(tokens)
        if not matches:
            return claim
        alike = [match for match in matches if match.same]
        # Exclude matches whose differing value only shows that another thing is meant.
        apart = [
            match
            for match in matches
            if not match.same
            and not (match.own is not None and identifies(match.own, tokens, claim.reads_as))
        ]
        if alike:
            sure = None if apart else next((m for m in alike if self._unqualified(claim, m)), None)
            if sure is None:
                return claim
            return claim.model_copy(
                update={"status": ClaimStatus.SUPPORTED, "quotations": self._quoted(sure)}
            )
        if len(apart) < len(matches):
            # In at least one match the differing value says which thing is meant.
            return claim
        return self._contradicted(claim, tokens, content, apart)

    def _opens_heading(self, claim: Claim) -> bool:
        line = self.answer.rfind("\n", 0, claim.start) + 1
        return self.answer[line : claim.start].lstrip().startswith("#")

    def _matches(self, tokens: Sequence[Token]) -> list[Match]:
        shape = shape_of(tokens)
        matches = (_matched(tokens, shape, clause) for clause in self._clauses_near(tokens, shape))
        return [match for match in matches if match is not None]

    def _clauses_near(self, tokens: Sequence[Token], shape: tuple[str, ...]) -> Iterable[Match]:
        """Each clause that may match, in order."""
        del shape
        wanted = frozenset(
            t.key for t in tokens if t.value is None and t.key not in ("not", "never")
        ) - {"do", "does", "did"}
        if not wanted:
            return
        for passage, sentence in self.evidence.near(wanted):
            if sentence.is_prose:
                for clause in sentence.clauses:
                    yield Match(passage, sentence, clause)

    def _unqualified(self, claim: Claim, match: Match) -> bool:
        """Whether the surrounding text changes the meaning of neither the claim nor the clause."""
        sentence = self._sentences[min(claim.sentence_index, len(self._sentences) - 1)]
        same_before = self._follows_same_sentence(claim, match)
        # A sentence that was copied as a whole includes its own qualifications.
        entire = match.same and match.sentence.clauses[0].free and self._is_copy(sentence, match)
        if not (match.clause.free or entire):
            return False
        if points_back(claim.reads_as) or (is_vague(claim.reads_as) and not match.sentence.first):
            whole = claim.start <= sentence.start + 4 and claim.end >= sentence.end - 1
            if not (whole and match.clause.whole and same_before):
                return False
        # The rest of its sentence, its list's lead or its heading may qualify the claim.
        rest = self.answer[sentence.start : claim.start], self.answer[claim.end : sentence.end]
        return (entire or not qualified_beside(*rest)) and not self._has_qualified_lead(claim)

    def _is_copy(self, sentence: Span, match: Match) -> bool:
        return _equal(claim_tokens(sentence.of(self.answer)), match.sentence.tokens)

    def _has_qualified_lead(self, claim: Claim) -> bool:
        lead = lead_at(self._leads, claim.start)
        return bool(lead) and qualified(lead)

    def _follows_same_sentence(self, claim: Claim, match: Match) -> bool:
        before = match.sentence.before
        if before is None or claim.sentence_index < 1:
            return False
        own = claim_tokens(self._sentences[claim.sentence_index - 1].of(self.answer))
        return _equal(own, before.tokens)

    def _quoted(self, match: Match, place: int | None = None) -> tuple[Quotation, ...]:
        """The parts of the clause; the one that contains `place` first, as reasons quote it."""
        id_, text = self.evidence.passages[match.passage]
        parts = match.clause.parts
        if place is not None:
            parts = tuple(sorted(parts, key=lambda part: not part[0] <= place < part[1]))
        return tuple(
            Quotation(fact_id=id_, passage=match.passage + 1, start=a, end=b, text=text[a:b])
            for a, b in parts
        )

    def _contradicted(
        self, claim: Claim, tokens: Sequence[Token], content: Sequence[str], apart: list[Match]
    ) -> Claim:
        first = apart[0]
        for match in apart[1:]:
            if match.denied != first.denied or match.own is not first.own:
                return claim
            if match.other is not None and not same_token(match.other, first.other or match.other):
                return claim
        # Text before the claim in the answer must not change a finding.
        if points_back(claim.reads_as) or not self._unqualified(claim, first):
            return claim
        shift = claim.end - len(claim.reads_as)
        expected: str | None
        if first.denied:
            kind, error = NEGATION_FLIP, ErrorKind.NEGATION
            denials = without_denial(tokens)[1]
            verb = denials[0] if denials else None
            start, end = (
                (verb.start + shift, verb.end + shift) if verb else (claim.start, claim.end)
            )
            expected = None
            place = (first.clause.parts[0][0], first.clause.parts[-1][1])
        else:
            own, other = first.own, first.other
            assert own is not None
            assert own.value is not None
            assert other is not None
            assert other.value is not None
            changed = change_kind(own.value, other.value)
            if changed is None or self.evidence.explains(own.value, content):
                return claim
            at = tokens.index(own) + 1
            after = tokens[at].key if at < len(tokens) else ""
            if is_vague(claim.reads_as) and self.evidence.gives(own, after):
                # "The deposit" may be that of another passage.
                return claim
            kind, error = changed
            start, end = own.start + shift, own.end + shift
            expected = other.value.text
            place = (other.start, other.end)
        if start < claim.start:
            # The difference is in the subject that the claim borrows from an earlier clause.
            return claim
        id_, _ = self.evidence.passages[first.passage]
        there = Place(fact_id=id_, start=place[0], end=place[1], score=1.0, engine=ENGINE)
        change = FieldChange(kind, error, expected)
        return _wrong(claim, (start, end), change, there, self._quoted(first, place[0]))


def compare_with_each_other(
    answer: str, claims: Sequence[Claim], passages: Sequence[tuple[str, str]], question: str
) -> tuple[Claim, ...]:
    """The claims, with a finding on each that denies an earlier one or changes one value of it.

    Spec: CRP-SPEC-005 §5.4
    """
    if len(claims) < 2:
        return tuple(claims)
    answer = without_reasoning(answer, reasoning_spans(answer))
    comparison = _AnswerComparison(answer, passages, question)
    compared: list[Claim] = []
    for claim in claims:
        first = comparison.opposite(claim, compared)
        if first is not None:
            finding = Finding(
                stage=STAGE, kind=CONTRADICTION, claim_id=claim.claim_id, start=claim.start,
                end=claim.end, other_claim_id=first.claim_id,
                reason=f"the answer also says “{first.text}”"[:LONGEST],
            )  # fmt: skip
            claim = claim.model_copy(update={"findings": (*claim.findings, finding)})
        compared.append(claim)
    return tuple(compared)


class _AnswerComparison(_Comparison):
    """Compares the claims of one answer with each other, by the rules for evidence."""

    def __init__(self, answer: str, passages: Sequence[tuple[str, str]], question: str) -> None:
        super().__init__(answer, EvidenceIndex([("", answer)], ""))
        self._passages, self._question = passages, question
        self._by_shape: dict[tuple[str, ...], list[Match]] = {}
        self._by_stems: dict[tuple[str, ...], list[Match]] = {}
        clauses = [
            Match(0, sentence, clause)
            for _, sentence in self.evidence.sentences
            if sentence.is_prose
            for clause in sentence.clauses
        ]
        denied = any(clause.clause.denials for clause in clauses)
        for clause in clauses:
            self._by_shape.setdefault(clause.clause.shape, []).append(clause)
            if denied:
                self._by_stems.setdefault(tuple(clause.clause.stems), []).append(clause)

    def _clauses_near(self, tokens: Sequence[Token], shape: tuple[str, ...]) -> Iterable[Match]:
        alike = self._by_shape.get(shape, [])
        if self._by_stems:
            alike = alike + self._by_stems.get(tuple(without_denial(tokens)[0]), [])
        return sorted(alike, key=_ends)

    def opposite(self, claim: Claim, earlier: Sequence[Claim]) -> Claim | None:
        """The first earlier claim that cannot be true together with a claim; None for none."""
        text = claim.reads_as
        if claim.status is ClaimStatus.NOT_CHECKABLE or is_indefinite(text) or points_back(text):
            return None
        tokens = claim_tokens(text)
        content = content_keys(tokens)
        if not content:
            return None
        matches = self._matches(tokens)
        apart = [match for match in matches if not match.same and _ends(match) <= claim.start]
        same = [match for match in matches if match.same]
        # A claim that the answer repeats, or whose sentence qualifies it, is left to a reader.
        if not apart or not same or not all(_is_of(match, claim) for match in same):
            return None
        here, match = same[0], apart[0]
        lead = here.sentence.lead
        if lead != match.sentence.lead or lead.rstrip("*_ ").endswith(":"):
            return None
        # "The deposit" may be another one some sentences later.
        near = match.sentence in (here.sentence, here.sentence.before)
        if not (here.clause.free and match.clause.free) or (is_vague(claim.reads_as) and not near):
            return None
        if match.own is not None and identifies(match.own, tokens, claim.reads_as):
            return None
        if self._stated(match, tokens, content) or _is_cut(claim, match):
            return None
        return next((first for first in earlier if _is_of(match, first)), None)

    def _stated(self, match: Match, tokens: Sequence[Token], content: Sequence[str]) -> bool:
        """Whether the passages state both, so that both may hold."""
        evidence = EvidenceIndex(self._passages, self._question)
        if len({other.same for other in _Comparison("", evidence)._matches(tokens)}) > 1:
            return True
        values = [
            t.value for t in (match.own, match.other) if t is not None and t.value is not None
        ]
        if match.denied:
            return False
        return change_kind(*values) is None or all(
            evidence.explains(value, content) for value in values
        )


def _is_cut(claim: Claim, match: Match) -> bool:
    """Whether the sentence may be cut at the point of an ordinal, as in "am 5. März"."""
    number = match.own.value.text if match.own is not None and match.own.value is not None else ""
    return number.isdigit() and len(number) < 3 and claim.text.rstrip().endswith(f"{number}.")


def _ends(match: Match) -> int:
    return match.clause.parts[-1][1]


def _is_of(match: Match, claim: Claim) -> bool:
    return match.clause.parts[-1][0] < claim.end and claim.start < _ends(match)


def _equal(own: Sequence[Token], other: Sequence[Token]) -> bool:
    return len(own) == len(other) and all(map(same_token, own, other))


def _matched(tokens: Sequence[Token], shape: tuple[str, ...], same: Match) -> Match | None:
    """The match of a claim and a clause that are equal or differ in one value or one negation."""
    clause = same.clause
    other = clause.tokens
    if len(tokens) == len(other):
        if shape != clause.shape:
            return None
        pairs = list(zip(tokens, other, strict=True))
        # Of two clauses of one shape mostly a value differs.
        apart = [(a, b) for a, b in pairs if a.value is not None and not same_token(a, b)]
        if len(apart) > 1 or not all(a.value is not None or same_token(a, b) for a, b in pairs):
            return None
        if not apart:
            return same
        own, theirs = apart[0]
        return None if theirs.value is None else replace(same, own=own, other=theirs)
    if abs(len(tokens) - len(other)) > 2:
        return None
    denials = sum(key in DENIALS for key in shape)
    if abs(denials - clause.denials) != 1 or without_denial(tokens)[0] != clause.stems:
        return None
    if _bounds([*tokens, *other]):
        return None
    ours, others = ([t for t in side if t.value is not None] for side in (tokens, other))
    return replace(same, denied=True) if all(map(same_token, ours, others)) else None


# These words after "not" make no denial: "not more than" limits a figure.
_BOUNDING: Final = frozenset(
    "only more less fewer later earlier longer than just necessarily".split()
)


def _bounds(tokens: Sequence[Token]) -> bool:
    return any(
        token.key in ("not", "never") and following.key in _BOUNDING
        for token, following in itertools.pairwise(tokens)
    )


def _by_structure(
    claim: Claim, structured: Sequence[FieldVerdict], evidence: EvidenceIndex
) -> Claim | None:
    """The result for a claim that is a table row or an object; None for other claims."""
    own = [row for row in structured if claim.start < row.end and row.start < claim.end]
    if not own:
        return None
    wrong = next((row for row in own if row.other is not None), None)
    if wrong is None:
        if not all(row.supported for row in own):
            return claim
        return claim.model_copy(
            update={
                "status": ClaimStatus.SUPPORTED,
                "quotations": tuple(dict.fromkeys(_place_of(row, evidence) for row in own)),
            }
        )
    assert wrong.other is not None
    quotation = _place_of(wrong, evidence)
    there = Place(
        fact_id=quotation.fact_id,
        start=quotation.start,
        end=quotation.end,
        score=1.0,
        engine=ENGINE,
    )
    return _wrong(claim, (wrong.start, wrong.end), wrong.other, there, (quotation,))


def _wrong(
    claim: Claim,
    span: tuple[int, int],
    change: FieldChange,
    there: Place,
    quotations: tuple[Quotation, ...],
) -> Claim:
    """A claim that the evidence contradicts, with the finding on it."""
    finding = Finding(
        stage=STAGE, kind=change.kind, claim_id=claim.claim_id, start=span[0], end=span[1],
        evidence=there, expected=change.expected,
    )  # fmt: skip
    return claim.model_copy(
        update={
            "status": ClaimStatus.CONTRADICTED, "error": change.error, "wrong": span,
            "quotations": quotations, "findings": (*claim.findings, finding),
        }
    )  # fmt: skip


def _place_of(row: FieldVerdict, evidence: EvidenceIndex) -> Quotation:
    id_, text = evidence.passages[row.passage]
    start, end = row.place
    return Quotation(
        fact_id=id_, passage=row.passage + 1, start=start, end=end, text=text[start:end]
    )


def _with_references(claim: Claim, wrong: Sequence[tuple[tuple[int, int], str]]) -> Claim:
    """The claim with a finding for each quotation and citation in it that has no source."""
    own = [row for row in wrong if claim.start <= row[0][0] < claim.end]
    if not own:
        return claim
    findings = tuple(
        Finding(
            stage=STAGE, kind=kind, claim_id=claim.claim_id, start=start, end=min(end, claim.end)
        )
        for (start, end), kind in own
    )
    update: dict[str, object] = {"findings": (*claim.findings, *findings)}
    if claim.status is not ClaimStatus.CONTRADICTED:
        span = (findings[0].start, findings[0].end)
        update |= {"status": ClaimStatus.UNSUPPORTED, "error": ErrorKind.INVENTION, "wrong": span}
    return claim.model_copy(update=update)

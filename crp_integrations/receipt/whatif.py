"""What-if questions on a receipt: pack its candidates, or decide on its answer, with a change.

Spec: CRP-SPEC-005 §15.4
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from crp_integrations.dpe.records import Report
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.near_duplicates import as_pairs
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.policy.verdict import DELIVER, decide_answer, judge_answer, needs_review
from crp_integrations.receipt.predicate import Content
from crp_integrations.receipt.reconstruction import (
    MALFORMED,
    MissingTextError,
    Texts,
    budget_of,
    content_of,
    malformed,
)
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.replay import policy_of, terms_of
from crp_integrations.receipt.replay_context import ReplayedContext
from crp_integrations.receipt.replay_examination import Verdict
from crp_integrations.receipt.replay_records import (
    NOTHING,
    Difference,
    Differs,
    NotRun,
    ReplayTools,
)
from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import QualityTier

REVIEW: Final = "review"
LIMITS: Final = (
    "The candidates and their scores are the recorded ones; nothing is searched again.",
    "The answer is the recorded one, and its verdict is for the recorded context.",
)


@dataclass(frozen=True, slots=True)
class Supposition:
    """The values to change; None keeps the recorded one."""

    budget_tokens: int | None = None
    without: tuple[str, ...] = ()
    policy: str | None = None


class ContextChange(Part):
    """How the context would change.

    Attributes:
        facts_in, facts_out: ids of added and removed facts, in the order of the context.
    """

    facts_in: tuple[str, ...] = ()
    facts_out: tuple[str, ...] = ()
    tokens_before: int
    tokens_after: int
    tier_before: QualityTier
    tier_after: QualityTier
    before: str = ""
    after: str = ""


class VerdictChange(Part):
    """How another policy would decide on the answer.

    Attributes:
        decision_before, decision_after: `deliver`, `withhold`, `unreachable` or `review`.
    """

    decision_before: str
    decision_after: str
    violations_before: tuple[str, ...] = ()
    violations_after: tuple[str, ...] = ()


class Supposed(Record):
    """Result of a what-if question.

    Attributes:
        context: change of the context; None unless budget or facts were changed.
        verdict: change of the decision; None unless the policy was changed.
        notes: reasons why one of the two could not be computed.
    """

    SCHEMA = "receipt-supposed/1"

    receipt_id: str
    context: ContextChange | None = None
    verdict: VerdictChange | None = None
    notes: tuple[str, ...] = ()
    limits: tuple[str, ...] = LIMITS


def whatif(receipt: Receipt, change: Supposition, tools: ReplayTools = NOTHING) -> Supposed:
    """Pack the recorded candidates, or decide on the recorded answer, with something changed.

    Args:
        tools: engines; a changed context needs the token counter of the receipt's model.

    Raises:
        RequestError: a fact is not a candidate, or a value of the change is invalid.
    """
    content, texts = content_of(receipt), Texts(receipt)
    _check(content, change)
    notes: list[str] = []
    context = verdict = None
    try:
        if change.without or change.budget_tokens is not None:
            made = ReplayedContext(receipt.content["envelope"] or {}, content, texts, tools)
            try:
                context = _context_change(made, change)
            except NotRun as error:
                notes.append(f"context not run: {error}")
            except Differs as error:
                notes.append(f"the recorded context cannot be made again: {error.difference.place}")
        if change.policy is not None:
            try:
                report = Verdict(receipt, content, texts, tools).report
                verdict = _verdict_change(content, report, change.policy)
            except (NotRun, MissingTextError) as error:
                notes.append(f"the verdict was not made again: {error}")
    except MALFORMED as error:
        raise malformed("content", error) from error
    return Supposed(
        receipt_id=receipt.receipt_id, context=context, verdict=verdict, notes=tuple(notes)
    )


def _check(content: Content, change: Supposition) -> None:
    known = {candidate.id for candidate in content.candidates}
    unknown = [fact_id for fact_id in change.without if fact_id not in known]
    if unknown and not known:
        raise RequestError(
            f"fact {unknown[0]!r:.80} cannot be left out: the receipt names no candidates, since "
            "its context was made elsewhere or there was none"
        )
    if unknown:
        raise RequestError(f"fact {unknown[0]!r:.80} is not among the {len(known)} candidates")
    if change.budget_tokens is not None and change.budget_tokens < 0:
        raise RequestError(f"the budget is {change.budget_tokens}, wanted 0 or more tokens")
    if change.policy is not None:
        parse_policy(change.policy)


def _context_change(made: ReplayedContext, change: Supposition) -> ContextChange:
    fit = made.fit
    candidates, hidden = made.seam
    if hidden:
        # Their fillers have other numbers of tokens, so the result would be wrong.
        lacking = "1 text is" if len(hidden) == 1 else f"{len(hidden)} texts are"
        raise NotRun(f"{lacking} not in this copy")
    before, counter = made.envelope, made.tools.counter
    if counter is None or counter.identity != made.tokenizer.identity:
        raise NotRun(f"the tokenizer {made.tokenizer.identity!r:.80} is not at hand")
    budget = change.budget_tokens
    after = made.assembled(
        _without(candidates, frozenset(change.without)),
        counter,
        budget_tokens=fit.budget_tokens if budget is None else budget,
        automatic=budget is None and made.automatic,
    )
    was, would_be = _shown(before), _shown(after)
    return ContextChange(
        facts_in=tuple(fact_id for fact_id in would_be if fact_id not in was),
        facts_out=tuple(fact_id for fact_id in was if fact_id not in would_be),
        tokens_before=before.token_count,
        tokens_after=after.token_count,
        tier_before=before.quality_tier,
        tier_after=after.quality_tier,
        before=before.text,
        after=after.text,
    )


def _without(candidates: Candidates, gone: frozenset[str]) -> Candidates:
    places = [place for place, fact in enumerate(candidates.facts) if fact.fact_id not in gone]
    moved = {place: number for number, place in enumerate(places)}
    return replace(
        candidates,
        facts=tuple(candidates.facts[place] for place in places),
        duplicates=as_pairs(candidates.duplicates).among(moved),
        conflicts=as_pairs(candidates.conflicts).among(moved),
    )


def _shown(envelope: Envelope) -> list[str]:
    return [fact.fact_id for fact in envelope.facts]


def _verdict_change(content: Content, report: Report | Difference, policy: str) -> VerdictChange:
    if isinstance(report, Difference):
        raise NotRun(f"the recorded one cannot be: {report.place}")
    decision, violations = _decision(content, content.policy.text, report)
    supposed, violated = _decision(content, policy, report)
    return VerdictChange(
        decision_before=decision,
        decision_after=supposed,
        violations_before=violations,
        violations_after=violated,
    )


def _decision(content: Content, text: str, report: Report) -> tuple[str, tuple[str, ...]]:
    """The decision on the answer under a policy and the caller's terms, and the violations."""
    policy, terms, tier = policy_of(text, "policy"), terms_of(content.policy), content.policy.tier
    judgement = judge_answer(policy, report, tier=tier, oversight=content.request.oversight)
    settled = decide_answer(report, tier, judgement, terms, unread=policy.allows_unread)
    budget = budget_of(content.policy.safety_budget)
    wanted = needs_review(judgement, budget, terms) and not terms.unanswered
    decision = REVIEW if wanted and settled.word == DELIVER else settled.word
    return decision, tuple(violation.directive for violation in judgement.violations)

"""Replay of a receipt: rank, pack, render, examine, judge, and the policy's verdict again.

Each part ends as `equal`, as `differs` with the place of the first difference, or as `not-run`
with the reason. Nothing is read but the receipt and the engines that are handed over.

Spec: CRP-SPEC-005 §15.4
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from crp_integrations.dpe.records import Report
from crp_integrations.dpe.risk import ceiling
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.errors import PolicySyntaxError, ReceiptBroken
from crp_integrations.policy.policy_text import parse_policy, policy_hash
from crp_integrations.policy.records import Policy, PolicyJudgement
from crp_integrations.policy.verdict import (
    DELIVER,
    UNREACHABLE,
    WITHHOLD,
    AnswerDecision,
    AnswerTerms,
    apply_oversight,
    decide_answer,
    judge_answer,
    needs_review,
)
from crp_integrations.receipt import outline
from crp_integrations.receipt import replay_context as making
from crp_integrations.receipt import replay_examination as judging
from crp_integrations.receipt.predicate import Content
from crp_integrations.receipt.predicate_verdict import PolicyTold
from crp_integrations.receipt.reconstruction import (
    MALFORMED,
    LeftOutError,
    Texts,
    budget_of,
    content_of,
    malformed,
)
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.replay_examination import Verdict, settings_of
from crp_integrations.receipt.replay_records import (
    DIFFERS,
    EQUAL,
    NOT_RUN,
    NOTHING,
    Again,
    Difference,
    Differs,
    NotRun,
    Outcome,
    Replayed,
    Tools,
    first,
)
from crp_integrations.vocabulary import HaltReason, QualityTier

# How a window ends with each decision.
_OUTCOMES: Final = {DELIVER: "released", WITHHOLD: "halted", UNREACHABLE: "refused"}


def policies(verdict: Verdict) -> Outcome:
    """What the policies in force say of the report, and what is decided by that.

    Spec: CRP-SPEC-005 §7.4; related facts §6
    """
    content, told = verdict.content, verdict.content.policy
    policy = policy_of(told.text, "content.policy.text")
    found = first(told.hash, policy_hash(policy), "policy.hash")
    if found is not None or told.judgement is None:
        return found, "" if found else "no answer was judged"
    report = verdict.report
    if isinstance(report, Difference):
        return report, ""
    tier = _tier(verdict, report)
    found = first(told.tier and told.tier.value, tier and tier.value, "policy.tier")
    judgement = judge_answer(policy, report, tier=tier, oversight=content.request.oversight)
    found = found or first(told.judgement, outline.plain(judgement), "policy.judgement")
    reported = None
    if told.report_only is not None:
        only = policy_of(told.report_only, "content.policy.report_only")
        reported = outline.plain(judge_answer(only, report, tier=tier, enforced=False))
    found = found or first(told.reported, reported, "policy.reported")
    found = found or first(told.catalogue, report.classification.engine, "policy.catalogue")
    return found or _decision(verdict, report, judgement, tier), ""


def _tier(verdict: Verdict, report: Report) -> QualityTier | None:
    envelope = verdict.content.envelope
    if envelope is None:
        return None
    return capped(envelope.quality_tier, report, settings_of(verdict.content, verdict.tools))


def _decision(
    verdict: Verdict, report: Report, judgement: PolicyJudgement, tier: QualityTier | None
) -> Difference | None:
    """What becomes of the answer, decided again; that a person approved it is told."""
    told = verdict.content.policy
    if told.terms is None:
        if verdict.content.fit is not None:
            raise NotRun("what the answer was held against besides the policies is not told")
        # Somebody else's call: the policy alone was asked.
        terms, wanted = AnswerTerms(), False
        halt = judgement.halt
        found = AnswerDecision(DELIVER) if halt is None else AnswerDecision(WITHHOLD, halt)
    else:
        terms = terms_of(told)
        wanted = needs_review(judgement, budget_of(told.safety_budget), terms)
        unread = policy_of(told.text, "content.policy.text").allows_unread
        found = decide_answer(report, tier, judgement, terms, unread=unread)
    if told.reason == HaltReason.JUDGE_FAILED and found.word == DELIVER:
        # That its owner wants the answer withheld then is told; that the judge failed is not.
        if report.judge is None or not report.judge.failed:
            return Difference("policy.reason", told.reason, "the judge did not fail")
        found = AnswerDecision(WITHHOLD, HaltReason.JUDGE_FAILED)
    asked = wanted and found.word == DELIVER and not terms.unanswered
    found = apply_oversight(found, wanted=wanted, approved=told.approved, terms=terms)
    recorded = {
        "decision": told.decision,
        "reason": told.reason,
        "reviewed": told.reviewed,
        "approved": told.approved,
    }
    replayed = {
        "decision": found.word,
        "reason": found.reason.value if found.reason else "",
        "reviewed": wanted,
        "approved": told.approved and asked,
    }
    return first(recorded, replayed, "policy") or first(
        verdict.receipt.chain.outcome, _OUTCOMES[found.word], "chain.outcome"
    )


def terms_of(told: PolicyTold) -> AnswerTerms:
    """What an answer was held against besides the policies; nothing where that is not told."""
    if told.terms is None:
        return AnswerTerms()
    return AnswerTerms(**{**dict(told.terms), "review_below": budget_of(told.terms.review_below)})


def capped(tier: QualityTier, report: Report, settings: DpeSettings) -> QualityTier:
    """What the policies are told of an envelope: its tier, capped by the answer's quality."""
    return tier.capped(ceiling(report.rqa_score, settings.quality)[0])


def policy_of(text: str, place: str) -> Policy:
    """A policy of content."""
    try:
        return parse_policy(text)
    except PolicySyntaxError as error:
        raise ReceiptBroken(place, str(error)) from None


def replay(receipt: Receipt, tools: Tools = NOTHING) -> Replayed:
    """Do again what a receipt tells of, from nothing but the receipt.

    Signature, tree and chain are `verify`'s.

    Spec: CRP-SPEC-005 §15.4

    Args:
        tools: engines at hand; what they say is compared where the receipt names the same ones.

    Returns:
        What each part came to; `Replayed.require` refuses a receipt that something differs from.

    Raises:
        ReceiptBroken: the content is malformed; names the place.
    """
    content, texts = content_of(receipt), Texts(receipt)
    made = making.Context(receipt.content["envelope"] or {}, content, texts, tools)
    verdict = judging.Verdict(receipt, content, texts, tools)
    run: Mapping[str, Callable[[], Outcome]] = {
        "budget": lambda: making.budget(made),
        "selection": lambda: making.selection(made),
        "context": lambda: making.context(made),
        "prompt": lambda: making.prompt(made),
        "counts": lambda: making.counts(made),
        "answer": lambda: judging.answer(content, texts),
        "examination": lambda: judging.examination(verdict),
        "judge": lambda: judging.judged(verdict),
        "policy": lambda: policies(verdict),
        "catalogue": lambda: judging.catalogue(content, texts, tools),
        "signals": lambda: judging.signals(content, texts, tools),
    }
    if content.examined is None or content.examined.judged is None:
        # Of most windows nobody expects a judge; where one was configured, it is told.
        run = {name: one for name, one in run.items() if name != "judge"}
    parts = tuple(_part(name, one) for name, one in run.items())
    return Replayed(
        receipt_id=receipt.receipt_id,
        same=all(one.state != DIFFERS for one in parts),
        whole=_whole(content, {one.name: one.state for one in parts}),
        parts=parts,
    )


def _part(name: str, run: Callable[[], Outcome]) -> Again:
    try:
        difference, why = run()
    except Differs as error:
        difference, why = error.difference, ""
    except (NotRun, LeftOutError) as error:
        return Again(name=name, state=NOT_RUN, why=str(error))
    except MALFORMED as error:
        raise malformed(f"content ({name})", error) from error
    if difference is None:
        return Again(name=name, state=EQUAL, why=why)
    return Again(
        name=name,
        state=DIFFERS,
        place=difference.place,
        recorded=difference.recorded,
        replayed=difference.replayed,
        why=why,
    )


def _whole(content: Content, states: Mapping[str, str]) -> bool:
    """Whether everything was run that the receipt has something to run of."""
    wanted = {"context", "answer", "policy"}
    if content.envelope is not None:
        wanted.add("selection")
    if content.calls:
        wanted.add("prompt")
    if content.examined is not None:
        wanted.add("examination")
        if content.examined.judged is not None and content.examined.judged.calls:
            wanted.add("judge")
    return all(states[name] == EQUAL for name in wanted)

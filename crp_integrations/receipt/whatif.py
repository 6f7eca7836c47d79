"""What else a window could have been: the same candidates and answer under something other.

Spec: CRP-SPEC-005 §15.4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from crp_integrations.dpe.engine_signals import Live, Remembered, Signals, SignalsMissing
from crp_integrations.dpe.judge.verdict import of_judge
from crp_integrations.dpe.pipeline import Examination, examine, stand_ins
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.continuation import is_summary
from crp_integrations.envelope.near_duplicates import as_pairs
from crp_integrations.envelope.prompt import marker_text
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import CRPError, RequestError
from crp_integrations.messages import Message
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.policy.verdict import DELIVER, decide_answer, judge_answer, needs_review
from crp_integrations.receipt.outline import fixed
from crp_integrations.receipt.predicate import Content
from crp_integrations.receipt.reconstruction import (
    MALFORMED,
    LeftOutError,
    Texts,
    budget_of,
    content_of,
    examination_of,
    malformed,
)
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.replay import capped, policy_of, terms_of
from crp_integrations.receipt.replay_context import ReplayedContext
from crp_integrations.receipt.replay_examination import settings_of, with_judge
from crp_integrations.receipt.replay_records import NOTHING, Differs, NotRun, ReplayTools
from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import Exactness, QualityTier, RiskLevel

REVIEW: Final = "review"
LIMITS: Final = (
    "The candidates and their scores are the recorded ones; nothing is searched again.",
    "The answer is the recorded one; what a model would have said to another context is not known.",
)


@dataclass(frozen=True, slots=True)
class Supposition:
    """What is to be other than it was; None leaves it.

    Attributes:
        budget_tokens: tokens that the context may have.
        without: ids of facts that are no candidates.
        policy: safety policy in place of the one in force.
    """

    budget_tokens: int | None = None
    without: tuple[str, ...] = ()
    policy: str | None = None

    @property
    def of_context(self) -> bool:
        """Whether it can change the context."""
        return bool(self.without) or self.budget_tokens is not None


class Two(Part):
    """A number as it was and as it would be."""

    before: int
    after: int


class ContextChange(Part):
    """How the context would change.

    Attributes:
        facts_in, facts_out: ids that come and go, in the order in which they stand.
        tokens, budget: of the rendered text.
        before, after: the rendered texts.
    """

    facts_in: tuple[str, ...] = ()
    facts_out: tuple[str, ...] = ()
    tokens: Two
    budget: Two
    tier_before: QualityTier
    tier_after: QualityTier
    before: str = ""
    after: str = ""

    @property
    def same(self) -> bool:
        """Whether the text would be the same."""
        return self.before == self.after


class ClaimChange(Part):
    """A claim of the answer that would be judged otherwise; scores in millionths."""

    claim_id: str
    attribution_before: str
    attribution_after: str
    entailment_before: int | None = None
    entailment_after: int | None = None


class VerdictChange(Part):
    """How the verdict on the answer would change; scores in millionths.

    Attributes:
        risk: None where one of the two is UNKNOWN, which has no score.
        decision_before, decision_after: `deliver`, `withhold`, `unreachable` or `review`.
        violations_before, violations_after: directives that are not met.
    """

    risk: Two | None
    level_before: RiskLevel
    level_after: RiskLevel
    grounding: Two
    claims: tuple[ClaimChange, ...] = ()
    decision_before: str
    decision_after: str
    violations_before: tuple[str, ...] = ()
    violations_after: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether risk, claims and decision would be the same."""
        return (
            not self.claims
            and self.level_before == self.level_after
            and (self.risk is None or self.risk.before == self.risk.after)
            and self.decision_before == self.decision_after
            and self.violations_before == self.violations_after
        )


class Supposed(Record):
    """What would have been.

    Attributes:
        context, verdict: None where they could not be made; the notes say why.
        limits: what is not supposed.
    """

    SCHEMA = "receipt-supposed/1"

    receipt_id: str
    context: ContextChange | None = None
    verdict: VerdictChange | None = None
    notes: tuple[str, ...] = ()
    limits: tuple[str, ...] = LIMITS


def whatif(receipt: Receipt, change: Supposition, tools: ReplayTools = NOTHING) -> Supposed:
    """Pack and judge once more, with something changed.

    The scores of the candidates stay as they are recorded, and so does the answer: no model is
    asked what it would have said.

    Args:
        tools: the counter of the model for exact tokens; embedder and verifier for the verdict on
            the answer beside another context.

    Raises:
        RequestError: a fact is no candidate, or the change has no usable value.
        ReceiptBroken: the content is malformed.
    """
    content = content_of(receipt)
    _check(content, change)
    try:
        return _supposed(receipt, content, change, tools)
    except MALFORMED as error:
        raise malformed("content", error) from error


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


def _supposed(
    receipt: Receipt, content: Content, change: Supposition, tools: ReplayTools
) -> Supposed:
    texts = Texts(receipt)
    notes: list[str] = []
    context: ContextChange | None = None
    verdict: VerdictChange | None = None
    after: Envelope | None = None
    if content.envelope is None or content.fit is None:
        if change.of_context:
            notes.append("the context was made elsewhere, so it cannot be packed otherwise")
    else:
        made = ReplayedContext(receipt.content["envelope"] or {}, content, texts, tools)
        try:
            _refuse_lacking_texts(made)
            before = made.envelope
            after = _packed(made, change, notes) if change.of_context else before
            context = _context_change(before, after)
        except NotRun as error:
            notes.append(f"context not run: {error}")
        except Differs as error:
            notes.append(f"the recorded context cannot be made again: {error.difference.place}")
    if change.of_context and after is None and content.fit is not None:
        # Beside the context as it was, it would look as if the change made no difference.
        notes.append("the verdict was not made again: it depends on the context")
    else:
        verdict = _verdict(content, texts, change, tools, after, notes)
    return Supposed(
        receipt_id=receipt.receipt_id, context=context, verdict=verdict, notes=tuple(notes)
    )


# --- the context -----------------------------------------------------------------------


def _refuse_lacking_texts(made: ReplayedContext) -> None:
    """Refuse to pack where texts of candidates are left out.

    The fillers in their places have other sizes in bytes and tokens, so no figure would be true.
    """
    lacking = len(made.seam[1])
    if lacking:
        texts = "1 text is" if lacking == 1 else f"{lacking} texts are"
        raise NotRun(f"{texts} not in this copy")


def _packed(made: ReplayedContext, change: Supposition, notes: list[str]) -> Envelope:
    """The envelope under a change."""
    candidates, _ = made.seam
    identity = made.tokenizer.identity
    counter = made.tools.counter
    if counter is None or counter.identity != identity:
        notes.append("tokens of the text as a whole are in proportion to the recorded counts")
        counter = ProportionalCounter(candidates, identity)
    asked = change.budget_tokens
    return made.assembled(
        replace(without(candidates, frozenset(change.without)), tokenizer=identity),
        counter,
        made.settings,
        budget_tokens=made.fit.budget_tokens if asked is None else asked,
        automatic=asked is None and made.automatic,
        model=made.content.model.asked,
    )


def without(candidates: Candidates, gone: frozenset[str]) -> Candidates:
    """Candidates without some of them."""
    if not gone:
        return candidates
    places = [place for place, fact in enumerate(candidates.facts) if fact.fact_id not in gone]
    moved = {place: number for number, place in enumerate(places)}
    return replace(
        candidates,
        facts=tuple(candidates.facts[place] for place in places),
        duplicates=as_pairs(candidates.duplicates).among(moved),
        conflicts=as_pairs(candidates.conflicts).among(moved),
    )


class ProportionalCounter:
    """Counts tokens in proportion to characters, as recorded counts of facts have them."""

    exactness = Exactness.ESTIMATE
    source = "in proportion to recorded counts"

    def __init__(self, candidates: Candidates, identity: str) -> None:
        """Take the proportion of candidates."""
        self.identity = identity
        around = len(marker_text(""))
        self._characters = max(1, sum(len(fact.content) + around for fact in candidates.facts))
        self._tokens = sum(fact.tokens for fact in candidates.facts)

    def count(self, text: str) -> int:
        """Tokens of a text, rounded up."""
        return -(-len(text) * self._tokens // self._characters)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of the messages' texts."""
        return sum(self.count(message.content) for message in messages)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """None are counted."""
        return 0


def _context_change(before: Envelope, after: Envelope) -> ContextChange:
    was = [fact.fact_id for fact in before.facts]
    would_be = [fact.fact_id for fact in after.facts]
    return ContextChange(
        facts_in=tuple(fact_id for fact_id in would_be if fact_id not in was),
        facts_out=tuple(fact_id for fact_id in was if fact_id not in would_be),
        tokens=Two(before=before.token_count, after=after.token_count),
        budget=Two(before=before.token_budget, after=after.token_budget),
        tier_before=before.quality_tier,
        tier_after=after.quality_tier,
        before=before.text,
        after=after.text,
    )


# --- the verdict -----------------------------------------------------------------------


def _verdict(
    content: Content,
    texts: Texts,
    change: Supposition,
    tools: ReplayTools,
    after: Envelope | None,
    notes: list[str],
) -> VerdictChange | None:
    if content.examined is None:
        notes.append("no answer was examined")
        return None
    try:
        examination = examination_of(content, content.examined, texts)
        settings = settings_of(content, tools)
        flags = content.examined.flags
        passages = examination.dossier.passages
        if after is not None:
            passages = _passages_beside(examination, after, content)
        before = report = _examined(
            examination, settings, Remembered(examination.entries), stand_ins(examination.engines)
        )
        if passages != examination.dossier.passages:
            report = _examined_beside(examination, settings, tools, passages, after, notes)
            if examination.judged is not None:
                # Beside a verdict that read it, one that did not would look like a change.
                notes.append("no judge is asked again; both verdicts are those without one")
                examination = replace(examination, judged=None)
                flags = tuple(flag for flag in flags if not of_judge(flag))
        before, report = (
            with_judge(made, examination, flags, settings) for made in (before, report)
        )
    except (NotRun, LeftOutError) as error:
        notes.append(f"the verdict was not made again: {error}")
        return None
    policy, tier = content.policy.text, content.policy.tier
    decision, violations = _decision(content, policy, before, tier)
    if change.policy is not None:
        policy = change.policy
    if after is not None and change.of_context:
        tier = capped(after.quality_tier, report, settings)
    supposed, violated = _decision(content, policy, report, tier)
    risks = before.risk_score, report.risk_score
    return VerdictChange(
        risk=None if None in risks else _two(*risks),
        level_before=before.risk_level,
        level_after=report.risk_level,
        grounding=_two(before.grounding_pct, report.grounding_pct),
        claims=_claim_changes(before, report),
        decision_before=decision,
        decision_after=supposed,
        violations_before=violations,
        violations_after=violated,
    )


def _passages_beside(
    examination: Examination, envelope: Envelope, content: Content
) -> tuple[tuple[str, str], ...]:
    """The passages of another envelope, and what was evidence and no candidate."""
    own = {candidate.id for candidate in content.candidates}
    packed = [
        (fact.fact_id, "" if is_summary(fact.source_id) else fact.content)
        for fact in envelope.facts
    ]
    return (*packed, *(named for named in examination.dossier.passages if named[0] not in own))


def _examined_beside(
    examination: Examination,
    settings: DpeSettings,
    tools: ReplayTools,
    passages: tuple[tuple[str, str], ...],
    after: Envelope | None,
    notes: list[str],
) -> Report:
    """The report on the answer beside other passages."""
    dossier, engines = examination.dossier, examination.engines
    measured = settings.decides == "composite"
    verifier = tools.verifier if measured or engines.verifier else None
    embedder = tools.embedder if measured or engines.embedder else None
    if (verifier is None and (measured or engines.verifier)) or (
        embedder is None and (measured or engines.embedder)
    ):
        raise NotRun("another context needs verifier and embedder at hand")
    if tools.policy is None:
        notes.append("without a policy engine the use is not classified")
    importances: tuple[float, ...] = ()
    if dossier.importances and after is not None:
        names = [name for name, _ in dossier.passages]
        weights = dict(zip(names, dossier.importances, strict=True))
        weights |= {fact.fact_id: fact.importance_weight for fact in after.facts}
        importances = tuple(weights.get(name, 0.0) for name, _ in passages)
    dossier = replace(dossier, passages=passages, importances=importances, vectors=None)
    at_hand = {
        "verifier": verifier,
        "embedder": embedder,
        "recognisers": tools.recognisers,
        "policy": tools.policy,
    }
    return _examined(
        replace(examination, dossier=dossier), settings, Live(), stand_ins(engines) | at_hand
    )


def _examined(
    examination: Examination, settings: DpeSettings, signals: Signals, engines: Mapping[str, Any]
) -> Report:
    try:
        return examine(examination.dossier, settings=settings, signals=signals, **engines)
    except SignalsMissing as error:
        raise NotRun(f"the recorded signals do not answer to it: {error}") from None
    except CRPError as error:
        raise NotRun(f"an engine failed: {error}") from None


def _decision(
    content: Content, text: str, report: Report, tier: QualityTier | None
) -> tuple[str, tuple[str, ...]]:
    """What becomes of the answer by a policy and the caller's own terms, and what it violates."""
    policy, terms = policy_of(text, "policy"), terms_of(content.policy)
    judgement = judge_answer(policy, report, tier=tier, oversight=content.request.oversight)
    settled = decide_answer(report, tier, judgement, terms, unread=policy.allows_unread)
    budget = budget_of(content.policy.safety_budget)
    wanted = needs_review(judgement, budget, terms) and not terms.unanswered
    decision = REVIEW if wanted and settled.word == DELIVER else settled.word
    return decision, tuple(violation.directive for violation in judgement.violations)


def _two(before: float | None, after: float | None) -> Two:
    return Two(before=fixed(before) or 0, after=fixed(after) or 0)


def _claim_changes(before: Report, after: Report) -> tuple[ClaimChange, ...]:
    return tuple(
        ClaimChange(
            claim_id=old.claim_id,
            attribution_before=old.attribution.value if old.attribution else "",
            attribution_after=new.attribution.value if new.attribution else "",
            entailment_before=fixed(old.entailment),
            entailment_after=fixed(new.entailment),
        )
        for old, new in zip(before.claims, after.claims, strict=False)
        if (old.attribution, old.entailment) != (new.attribution, new.entailment)
    )

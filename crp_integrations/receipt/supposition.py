"""What would have been, beside what was; and counts for whoever has not the tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from crp_integrations.dpe.records import Claim, Report
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.prompt import marker_text
from crp_integrations.envelope.records import Envelope
from crp_integrations.messages import Message
from crp_integrations.policy.records import PolicyJudgement
from crp_integrations.policy.verdict import AnswerDecision
from crp_integrations.receipt.outline import fixed
from crp_integrations.receipt.replay_records import in_text
from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import Exactness, HaltReason, QualityTier, RiskLevel


class Proportion:
    """Counts tokens in proportion to characters, as recorded counts of facts have them."""

    exactness = Exactness.ESTIMATE
    source = "in proportion to recorded counts"

    def __init__(self, candidates: Candidates, identity: str) -> None:
        """Take the proportion of candidates."""
        self.identity = identity
        around = len(marker_text(""))
        self._characters = max(1, sum(len(one.content) + around for one in candidates.facts))
        self._tokens = sum(one.tokens for one in candidates.facts)

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


_REVIEW: Final = "review"
LIMITS = (
    "The candidates and their scores are the recorded ones; nothing is searched again.",
    "The answer is the recorded one; what a model would have said to another context is not known.",
)


class Two(Part):
    """A number as it was and as it would be."""

    before: int
    after: int


class ContextChange(Part):
    """How the context would change.

    Attributes:
        facts_in, facts_out: ids that come and go, in the order in which they stand.
        moved: ids that stay at another place among those that stay.
        tokens, budget, bytes: of the rendered text.
        place: of the first byte that differs; empty where none does.
        before, after: the rendered texts.
    """

    facts_in: tuple[str, ...] = ()
    facts_out: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    tokens: Two
    budget: Two
    bytes: Two
    tier_before: QualityTier
    tier_after: QualityTier
    place: str = ""
    before: str = ""
    after: str = ""

    @property
    def same(self) -> bool:
        """Whether the text would be the same."""
        return not self.place and not self.facts_in and not self.facts_out and not self.moved


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
        decision_before, decision_after: `deliver`, `withhold`, `unreachable` or `review`.
        violations_before, violations_after: directives that are not met.
    """

    risk: Two
    level_before: RiskLevel
    level_after: RiskLevel
    grounding: Two
    quality: Two
    claims: tuple[ClaimChange, ...] = ()
    decision_before: str
    decision_after: str
    reason_before: HaltReason | None = None
    reason_after: HaltReason | None = None
    violations_before: tuple[str, ...] = ()
    violations_after: tuple[str, ...] = ()
    class_before: str = ""
    class_after: str = ""

    @property
    def same(self) -> bool:
        """Whether risk, claims and decision would be the same."""
        pairs = (
            (self.risk.before, self.risk.after),
            (self.decision_before, self.decision_after),
            (self.violations_before, self.violations_after),
            (self.class_before, self.class_after),
        )
        return not self.claims and all(left == right for left, right in pairs)


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


def context_change(before: Envelope, after: Envelope) -> ContextChange:
    """Two envelopes beside each other, made of texts that are all at hand."""
    was = [fact.fact_id for fact in before.facts]
    is_ = [fact.fact_id for fact in after.facts]
    earlier, later = set(was), set(is_)
    stay_before = [one for one in was if one in later]
    stay_after = [one for one in is_ if one in earlier]
    found = in_text(before.text, after.text, "context")
    return ContextChange(
        facts_in=tuple(one for one in is_ if one not in earlier),
        facts_out=tuple(one for one in was if one not in later),
        moved=tuple(
            one for one, other in zip(stay_after, stay_before, strict=True) if one != other
        ),
        tokens=Two(before=before.token_count, after=after.token_count),
        budget=Two(before=before.token_budget, after=after.token_budget),
        bytes=Two(before=len(before.text.encode()), after=len(after.text.encode())),
        tier_before=before.quality_tier,
        tier_after=after.quality_tier,
        place=found.place if found else "",
        before=before.text,
        after=after.text,
    )


class Ruling(NamedTuple):
    """What becomes of an answer.

    Attributes:
        review: a person must look at an answer that nothing else withholds.
    """

    judgement: PolicyJudgement
    settled: AnswerDecision
    review: bool


def verdict_change(before: Report, after: Report, was: Ruling, would: Ruling) -> VerdictChange:
    """Two reports and what becomes of the answer by each, beside each other."""
    return VerdictChange(
        risk=_two(before.risk_score, after.risk_score),
        level_before=before.risk_level,
        level_after=after.risk_level,
        grounding=_two(before.grounding_pct, after.grounding_pct),
        quality=_two(before.rqa_score, after.rqa_score),
        claims=tuple(
            changed
            for old, new in zip(before.claims, after.claims, strict=False)
            if (changed := _claim(old, new)) is not None
        ),
        decision_before=_REVIEW if was.review else was.settled.word,
        decision_after=_REVIEW if would.review else would.settled.word,
        reason_before=was.settled.reason,
        reason_after=would.settled.reason,
        violations_before=tuple(one.directive for one in was.judgement.violations),
        violations_after=tuple(one.directive for one in would.judgement.violations),
        class_before=before.eu_ai_act_class.value,
        class_after=after.eu_ai_act_class.value,
    )


def _two(before: float, after: float) -> Two:
    return Two(before=fixed(before) or 0, after=fixed(after) or 0)


def _claim(old: Claim, new: Claim) -> ClaimChange | None:
    if old.attribution is new.attribution and old.entailment == new.entailment:
        return None
    return ClaimChange(
        claim_id=old.claim_id,
        attribution_before=old.attribution.value if old.attribution else "",
        attribution_after=new.attribution.value if new.attribution else "",
        entailment_before=fixed(old.entailment),
        entailment_after=fixed(new.entailment),
    )

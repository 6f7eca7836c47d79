"""What a receipt is made of: the values of one window, handed in by whoever ran it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from crp_integrations.dpe.examination import Examination
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.envelope.budget import EnvelopeInputs
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.messages import Message
from crp_integrations.policy.records import Policy, PolicyJudgement
from crp_integrations.policy.verdict import AnswerTerms
from crp_integrations.vocabulary import GroundingMode, Oversight, QualityTier, Strategy


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked, and what was sent around the context.

    Attributes:
        instructions: what was added to the system message for this call, as remedies are.
        results: how many of the history's last messages were sent behind the question.
        shaped: the messages were made by `prompt@1`; False for a caller's own.
    """

    query: str
    system_prompt: str = ""
    history: tuple[Message, ...] = ()
    results: int = 0
    instructions: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    grounding: GroundingMode = GroundingMode.PREFERRED
    strategy: Strategy = Strategy.PUSH
    oversight: Oversight | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    shaped: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """Messages as they were sent to a model.

    Attributes:
        purpose: what the call was for, such as `answer` or `judge`.
    """

    purpose: str
    model: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """What the policies in force said of an answer, and what became of it.

    Attributes:
        judgement, reported: of the policy, and of the one that is only reported on; None where
            no answer was judged.
        tier: quality tier that the policies were told.
        decision: `deliver`, `withhold`, `unreachable`, or empty where nothing was judged.
        approved: a person had to approve the answer, and has.
        safety_budget: what was left of it before the answer, [0, 1].
        reviewed: a person had to look at the answer.
        terms: what the answer was held against besides the policies; None where it was held
            against none of that.
    """

    policy: Policy = field(default_factory=Policy)
    report_only: Policy | None = None
    judgement: PolicyJudgement | None = None
    reported: PolicyJudgement | None = None
    tier: QualityTier | None = None
    decision: str = ""
    reason: str = ""
    approved: bool = False
    safety_budget: float = 1.0
    reviewed: bool = False
    terms: AnswerTerms | None = None


@dataclass(frozen=True, slots=True)
class InForce:
    """Settings in force.

    Attributes:
        digest: of the whole tree of settings; equal digests stand for equal settings.
        disclose: whether weights of the operator's own are told (decision D18).
    """

    digest: str
    envelope: EnvelopeSettings = field(default_factory=EnvelopeSettings, compare=False)
    dpe: DpeSettings = field(default_factory=DpeSettings, compare=False)
    disclose: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """One window.

    Attributes:
        fit: what its envelope was made of; None where there was none, or another made it.
        envelope: as it was fitted; None where there was none.
        calls: those for the answer, in order; the first one carries the envelope.
        text: the model's text, empty without a reply.
        answered_by: the model that answered, empty without a reply.
        report: of the window, with identity and hash.
        examined: what was examined and heard; None where the report is of nothing.
        flags_before: how many of the report's flags are the examination's own; those behind
            them were added by whoever ran the window.
        state: further hashes of the window, which go into a leaf of their own.
    """

    asked: Asked
    report: Report
    settings: InForce
    fit: EnvelopeInputs | None = None
    envelope: Envelope | None = None
    calls: tuple[Call, ...] = ()
    text: str = ""
    answered_by: str = ""
    finish_reason: str = ""
    examined: Examination | None = None
    flags_before: int = 0
    decided: Decided = field(default_factory=Decided)
    embedder: str = ""
    reranker: str = ""
    state: Mapping[str, str] = field(default_factory=dict)

    def sealed(self, report: Report, **state: str) -> Told:
        """The same window once its report has its identity."""
        return replace(self, report=report, state={**self.state, **state})

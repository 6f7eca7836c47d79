"""What the content of a receipt says of the examination and of the policies."""

from __future__ import annotations

from typing import Any

from crp_integrations.receipt.numbers import Count, Decimal, Piece, Whole
from crp_integrations.receipt.predicate_judged import JudgedTold
from crp_integrations.records import Part
from crp_integrations.vocabulary import GroundingMode, PersonalCategory, QualityTier, RiskLevel


class EntryTold(Part):
    """What an engine said to one question, in millionths.

    Attributes:
        at: stage and what was asked.
    """

    at: str
    value: Any


class PriorTold(Part):
    """An earlier answer that the examination was told of.

    Attributes:
        leaf: of its text, or of a summary.
    """

    window_id: str
    number: Whole
    leaf: Count
    summarised: bool = False
    outdated: bool = False


class RegisteredSystem(Part):
    """What is registered of the AI system (CRP-SPEC-005 §14.1)."""

    domain: str | None = None
    sector: str | None = None
    decides: bool = False
    evidence: tuple[str, ...] = ()


class EnginesTold(Part):
    """What the engines of the examination were; thresholds as decimals."""

    embedder: str | None = None
    embedder_thresholds: dict[str, Decimal] = {}
    dimensions: Count = 0
    verifier: str
    verifier_thresholds: dict[str, Decimal] = {}
    passage: Count
    reads: bool
    recognisers: tuple[tuple[str, dict[str, PersonalCategory]], ...] = ()
    policy: str = ""


class Passage(Part):
    """A fact as the model was shown it."""

    id: str
    pieces: tuple[Piece, ...]
    importance: Count | None = None


class Examined(Part):
    """What the answer was examined beside, and what engines said.

    Attributes:
        answer: leaf of what was examined; another than the answer's where that was withheld.
        question: leaf of the question; None where it was not known.
        passages: None for the facts of the envelope.
        needs: what the answer was to cover.
        prompt: `conversation` where it is system prompt, history and question; else a leaf, or
            None for the question alone.
        flags: what was added to the report's flags behind the examination's own.
        judged: what a judge was asked; None where none was configured.
    """

    answer: Count
    question: Count | None = None
    passages: tuple[Passage, ...] | None = None
    needs: tuple[Count, ...] = ()
    prior: tuple[PriorTold, ...] = ()
    windows_left: Whole = 0
    prompt: Count | str | None = None
    system: RegisteredSystem = RegisteredSystem()
    grounding: GroundingMode
    loop_depth: Count = 0
    no_store: bool = False
    engines: EnginesTold
    signals: tuple[EntryTold, ...] = ()
    flags: tuple[str, ...] = ()
    judged: JudgedTold | None = None


class TermsTold(Part):
    """What an answer was held against besides the policies.

    Attributes:
        part: other windows could go on with the answer.
        unanswered: the reply asked for tools and said nothing yet.
        review_below: the safety budget below which a person must look, in millionths.
    """

    accept_risk: RiskLevel | None = None
    accept_quality: tuple[QualityTier, ...] = ()
    part: bool = False
    unanswered: bool = False
    review_below: Count = 0


class PolicyTold(Part):
    """The policies in force, and what was decided.

    Attributes:
        text, report_only: canonical texts.
        judgement, reported: as `policy.verdict` gives them; None where nothing was judged.
        tier: what the policies were told of the envelope.
        safety_budget: before the answer, in millionths.
        catalogue: engine, name and digest of the bundle that classified the use.
        terms: None where nothing was judged, or only the policy was asked.
    """

    text: str
    hash: str
    report_only: str | None = None
    judgement: dict[str, Any] | None = None
    reported: dict[str, Any] | None = None
    tier: QualityTier | None = None
    decision: str = ""
    reason: str = ""
    approved: bool = False
    reviewed: bool = False
    safety_budget: Count
    catalogue: str = ""
    terms: TermsTold | None = None

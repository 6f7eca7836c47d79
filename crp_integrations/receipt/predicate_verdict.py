"""What the content of a receipt says of the examination, of its judge and of the policies."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from crp_integrations.records import Part
from crp_integrations.vocabulary import GroundingMode, PersonalCategory, QualityTier, RiskLevel

_MOST: Final = 2**53 - 1

Whole = Annotated[int, Field(strict=True, ge=-_MOST, le=_MOST)]
Count = Annotated[int, Field(strict=True, ge=0, le=_MOST)]
# What a share of 1 is a million of; `outline.declared` makes it of a float.
SHARE: Final = "a share"
Millionths = Annotated[Whole, SHARE]
# What is a number of a leaf, and what a position among the candidates: both mean something in one
# receipt alone.
LEAF: Final = "a leaf"
CANDIDATE: Final = "a candidate"
LeafNumber = Annotated[Count, LEAF]
LeafOrNone = Annotated[Count | None, LEAF]
LeafNumbers = Annotated[tuple[Count, ...], LEAF]
# Number of a leaf; a stretch of one, from and to a character; or a literal between such.
Stretch = tuple[Count, Count, Count]
Piece = Count | Stretch | str
# A decimal as Python prints it, so that it is read back to the same float.
Decimal = Annotated[str, Field(pattern=r"^-?(\d+(\.\d+)?([eE][-+]?\d+)?|inf|nan)$")]


class JudgeCallTold(Part):
    """One call of a judge.

    Attributes:
        id: hash of what was asked, which the reply repeats.
        first, last: numbers of the claims that were asked about, from 1.
        passages: numbers of the passages that were shown, from 1.
        pieces: number, start and end of each of them that was shown in part.
        prompt_hash: of the messages that were sent.
        error: name of the error in the place of a reply; empty for none.
        cost: in USD; None where no price is known.
        leaf: of the reply's text; None where no reply came.
    """

    id: str
    first: Count
    last: Count
    passages: tuple[Count, ...] = ()
    pieces: tuple[tuple[Count, Count, Count], ...] = ()
    prompt_hash: str
    model: str = ""
    error: str = ""
    cached: bool = False
    milliseconds: Count = 0
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    cost: Decimal | None = None
    leaf: LeafOrNone = None


class Spoken(Part):
    """A message before the question, as the judge was told of it.

    Attributes:
        leaf: of its text.
    """

    role: str
    leaf: LeafNumber


class JudgedTold(Part):
    """What a judge was asked about the answer.

    Attributes:
        model: the judge as it was named.
        prompt: name of its prompt, and hash of the system message.
        own_answer: the model judged an answer of its own.
        skipped: why none was asked; empty where one was.
        language: of the reasons.
        passages: how many there are.
        left_out: id and reason of each passage that no call showed whole.
        calls: in order.
        conversation: messages before the question, as far as they were spoken.
        instructions: leaf of the system prompt; None for none.
    """

    model: str = ""
    prompt: str = ""
    own_answer: bool = False
    skipped: str = ""
    language: str = "en"
    passages: Count = 0
    left_out: tuple[tuple[str, str], ...] = ()
    calls: tuple[JudgeCallTold, ...] = ()
    conversation: tuple[Spoken, ...] = ()
    instructions: LeafOrNone = None


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
    leaf: LeafNumber
    summarised: bool = False
    outdated: bool = False


class RejectedTold(Part):
    """A claim of a sub-agent's answer that its report flags.

    Attributes:
        leaf: of its text.
        said: leaf of the sub-agent's words; None where they are not known.
        wrong: leaf of the wrong words in it; None where they are not known.
        reason: leaf of why; None where it is not known.
    """

    leaf: LeafNumber
    said: LeafOrNone = None
    wrong: LeafOrNone = None
    reason: LeafOrNone = None
    window_id: str = ""


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
    verifier: str = ""
    verifier_thresholds: dict[str, Decimal] = {}
    passage: Count = 0
    recognisers: tuple[tuple[str, dict[str, PersonalCategory]], ...] = ()
    policy: str = ""


class Passage(Part):
    """A fact as the model was shown it."""

    id: str
    pieces: Annotated[tuple[Piece, ...], LEAF]
    importance: Annotated[Count | None, SHARE] = None


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

    answer: LeafNumber
    question: LeafOrNone = None
    passages: tuple[Passage, ...] | None = None
    needs: LeafNumbers = ()
    prior: tuple[PriorTold, ...] = ()
    rejected: tuple[RejectedTold, ...] = ()
    windows_left: Whole = 0
    prompt: Annotated[Count | str | None, LEAF] = None
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
    review_below: Annotated[Count, SHARE] = 0


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
    safety_budget: Annotated[Count, SHARE]
    catalogue: str = ""
    terms: TermsTold | None = None

"""The content of a receipt (`receipt-content/1`): what was asked, selected, sent, found, decided.

Whole numbers, texts of closed lists, ids and names. A score is a number of millionths, a number of
the settings a decimal as it is printed. No text of a fact, a question or an answer stands here:
those are leaves, and a number of a leaf stands for each. So the content tells of a redacted copy
what it tells of the whole receipt.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from crp_integrations.records import Part
from crp_integrations.vocabulary import (
    DropReason,
    Exactness,
    GroundingMode,
    Oversight,
    PersonalCategory,
    QualityTier,
    RiskLevel,
    SaturationLabel,
    Strategy,
)

SCHEMA: Final = "receipt-content/1"
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
        first, last, passages: numbers of claims and passages, from 1.
        pieces: number, start and end of each passage that was shown in part.
        error: name of the error in place of a reply.
        cost: in USD.
        leaf: of the reply's text.
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
    """A message before the question, as the judge was told of it."""

    role: str
    leaf: LeafNumber


class JudgedTold(Part):
    """What a judge was asked about the answer.

    Attributes:
        prompt: name of its prompt, and hash of the system message.
        own_answer: the model judged an answer of its own.
        skipped: why none was asked; empty where one was.
        left_out: id and reason of each passage that no call showed whole.
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
    """What an engine said (in millionths) to one question of a stage (`at`)."""

    at: str
    value: Any


class PriorTold(Part):
    """An earlier answer, or a summary of it, that the examination was told of."""

    window_id: str
    number: Whole
    leaf: LeafNumber
    summarised: bool = False
    outdated: bool = False


class RejectedTold(Part):
    """A claim of a sub-agent's answer that its report flags.

    Attributes:
        said: leaf of the sub-agent's words; None where they are not known.
        wrong: leaf of the wrong words in it; None where they are not known.
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
        judgement, reported: as `policy.verdict` gives them; None where nothing was judged.
        tier: what the policies were told of the envelope.
        safety_budget: before the answer.
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


class Package(Part):
    """What made the receipt."""

    name: str
    version: str


class MessageSent(Part):
    """A message of a conversation; its name and tool calls, if any, are a leaf (`frame`)."""

    role: str
    leaf: LeafNumber
    frame: LeafOrNone = None


class AskedFor(Part):
    """The request, its texts by numbers of leaves.

    Attributes:
        needs: what the question was taken apart into; empty for the question itself.
        results: how many of the history's last messages stand behind the question.
        temperature: None for the model's own.
        shaped: the messages are those of `prompt@1`.
    """

    question: LeafNumber
    needs: LeafNumbers = ()
    system_prompt: LeafOrNone = None
    instructions: LeafNumbers = ()
    history: tuple[MessageSent, ...] = ()
    results: Count = 0
    tools: LeafOrNone = None
    grounding: GroundingMode
    strategy: Strategy
    oversight: Oversight | None = None
    max_tokens: Count | None = None
    temperature: Decimal | None = None
    seed: Annotated[str, Field(pattern=r"^-?\d+$")] | None = None
    shaped: bool = True


class CallMade(Part):
    """A call of the answer; one that `follows` goes on behind the first call's messages."""

    purpose: str
    model: str
    follows: bool = False
    messages: tuple[MessageSent, ...]


class Tokenizer(Part):
    """Whose tokens were counted."""

    identity: str
    exactness: Exactness
    source: str


class ModelsRecord(Part):
    """The model that the envelope was packed for, and the one that says it answered."""

    asked: str
    answered: str
    finish_reason: str
    tokenizer: Tokenizer | None = None
    embedder: str = ""
    reranker: str = ""


class SettingsInForce(Part):
    """Settings that everything behind the scores used, by name; numbers as decimals.

    Attributes:
        withheld: names of weights of the operator's own that are not told (decision D18).
    """

    digest: str
    envelope: dict[str, Any]
    dpe: dict[str, Any]
    withheld: tuple[str, ...] = ()


class CandidateTold(Part):
    """A candidate with its scores, in millionths.

    Attributes:
        characters: of the leaf.
        community: a number; labels are made of words of facts and stand in the leaf `communities`.
        stretches: first and last character and score of each part that could be shown alone, one
            after the other.
        spans: what of a longer fact the leaf is, in the fact's characters; empty for all.
        decay: the decay function in the place of freshness.
        decision: id of the guard's decision that let it be read.
        refused: why it may not be shown at all.
        passages: of a long text the first and last character, relevance, score, words, hop and
            tokens of each passage, one after the other.
    """

    id: str
    leaf: Count
    source: str
    relevance: Count
    importance: Count
    tokens: Count
    characters: Count
    score: Count | None = None
    lexical: Count = 0
    hop: Count = 0
    ingested_at: str | None = None
    stale: bool = False
    community: Whole | None = None
    stretches: tuple[Count, ...] = ()
    spans: tuple[tuple[Count, Count], ...] = ()
    decay: str | None = None
    decision: str = ""
    refused: DropReason | None = None
    passages: tuple[Count, ...] = ()


class Selected(Part):
    """What ranking, packing and rendering depend on besides each candidate.

    Attributes:
        duplicates, conflicts: near-identical pairs of positions, as far as they were asked for.
        all_pairs: every pair was asked for.
    """

    duplicates: tuple[tuple[Count, Count], ...] = ()
    conflicts: tuple[tuple[Count, Count], ...] = ()
    all_pairs: bool = True
    memory_tier_hit: Count = 3
    tier_hits: tuple[Count, Count, Count, Count] = (0, 0, 0, 0)
    algorithms: tuple[str, ...] = ()
    relevant_floor: Count | None = None


class RoomTold(Part):
    """How the budget was reckoned, in tokens (§7.2); `automatic` takes what the question needs."""

    limit: Count
    around: Whole
    question: Count
    answer: Count | None = None
    asked: Whole | None = None
    automatic: bool = False


class FitTold(Part):
    """What the envelope was made with.

    Attributes:
        room: None for a budget that was given.
        counts: what the tokenizer was asked on the way, in order.
        previous: ids of the previous envelope's facts, for a cache-stable layout.
    """

    now: str
    room: RoomTold | None = None
    budget_tokens: Count
    counts: tuple[Count, ...]
    k: Count | None = None
    max_age_seconds: Count | None = None
    window_number: Count = 1
    tiers_before: tuple[QualityTier, ...] = ()
    salted: bool = False
    temporal: bool = False
    pinned: tuple[str, ...] = ()
    previous: tuple[str, ...] = ()


class FactShown(Part):
    """A fact of the envelope, and the characters of its leaf that are shown if not all."""

    at: Annotated[Count, CANDIDATE]
    position: Count
    tokens: Count
    composite: Count
    freshness: Count
    diversity: Count
    spans: tuple[tuple[Count, Count], ...] = ()


class FactDropped(Part):
    """A candidate that is not in the envelope, or the duplicate of one that is (`kept`)."""

    at: Annotated[Count, CANDIDATE]
    reason: DropReason
    kept: Annotated[Count | None, CANDIDATE] = None


class EnvelopeTold(Part):
    """The envelope, its scores in millionths."""

    facts: tuple[FactShown, ...]
    dropped: tuple[FactDropped, ...]
    conflicts: tuple[tuple[str, str], ...] = ()
    caps: tuple[tuple[QualityTier, str], ...] = ()
    advice: tuple[tuple[str, str], ...] = ()
    deferred: tuple[str, ...] = ()
    promoted: tuple[str, ...] = ()
    communities: tuple[Whole, ...] = ()
    layout: str
    quality_tier: QualityTier
    envelope_score: Millionths
    coverage_score: Millionths
    relevance_mean: Millionths
    saturation: Millionths
    saturation_label: SaturationLabel
    token_count: Count
    token_budget: Count
    facts_available: Count
    prefix_tokens: Count = 0
    prefix_characters: Count = 0
    etag: str
    algorithms: tuple[str, ...]


class Content(Part):
    """Everything that a receipt says of a window besides its texts and its place in the chain.

    Attributes:
        selected, fit: None where the envelope was made elsewhere, or there was none.
        report: the report's own fields, numbers in millionths, texts left out.
    """

    content: str = Field(alias="schema", pattern=r"^receipt-content/1$")
    scale: Literal[1_000_000]
    package: Package
    request: AskedFor
    model: ModelsRecord
    settings: SettingsInForce
    candidates: tuple[CandidateTold, ...]
    selected: Selected | None = None
    fit: FitTold | None = None
    envelope: EnvelopeTold | None = None
    calls: tuple[CallMade, ...] = ()
    report: dict[str, Any]
    examined: Examined | None = None
    policy: PolicyTold
    seal: Count


def content_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the predicate's `content` as it is signed."""
    made = Content.model_json_schema()
    made["properties"]["schema"] = {"const": SCHEMA}
    # What a reader refuses to be without: every key is written, also where it says nothing.
    made["required"] = sorted(made["properties"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **made}


def published_schema() -> str:
    """The published file's text."""
    return json.dumps(content_schema(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"

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

from crp_integrations.receipt.predicate_verdict import (
    CANDIDATE,
    Count,
    Decimal,
    Examined,
    LeafNumber,
    LeafNumbers,
    LeafOrNone,
    Millionths,
    PolicyTold,
    Whole,
)
from crp_integrations.records import Part
from crp_integrations.vocabulary import (
    DropReason,
    Exactness,
    GroundingMode,
    Oversight,
    QualityTier,
    SaturationLabel,
    Strategy,
)

SCHEMA: Final = "receipt-content/1"


class Package(Part):
    """What made the receipt."""

    name: str
    version: str


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


class MessageSent(Part):
    """A message of a conversation.

    Attributes:
        leaf: of its text.
        frame: leaf of its name and tool calls as JSON; None for neither.
    """

    role: str
    leaf: LeafNumber
    frame: LeafOrNone = None


class CallMade(Part):
    """A call of the answer, as it was sent.

    Attributes:
        follows: its messages come behind those of the first call.
    """

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
    """Which models took part.

    Attributes:
        asked: the model that the envelope was packed for and the call was made to.
        answered: the one that answered, as it said itself; empty without a reply.
    """

    asked: str
    answered: str
    finish_reason: str
    tokenizer: Tokenizer | None = None
    embedder: str = ""
    reranker: str = ""


class SettingsInForce(Part):
    """Settings that everything behind the scores used, by name; numbers as decimals.

    Attributes:
        digest: of the whole tree of settings.
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
    """How the budget was reckoned, in tokens (§7.2).

    Attributes:
        automatic: the envelope took what its question needs, and the budget was the most of it.
    """

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
        temporal: the question asks for recent knowledge.
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
    """A fact of the envelope.

    Attributes:
        at: its position among the candidates.
        spans: what of it is shown, in characters of its leaf; empty for all.
    """

    at: Annotated[Count, CANDIDATE]
    position: Count
    tokens: Count
    composite: Count
    freshness: Count
    diversity: Count
    spans: tuple[tuple[Count, Count], ...] = ()


class FactDropped(Part):
    """A candidate that is not in the envelope, and why.

    Attributes:
        kept: position of the fact that stands for a duplicate.
    """

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
        scale: what a score of 1 is written as.
        candidates: by id.
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


AskedFor.model_rebuild()


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

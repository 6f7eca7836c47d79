"""The content of a receipt (`receipt-content/1`): what was asked, selected, sent, found, decided.

It consists of integers, enum values, ids and names. Scores are integers in millionths; numbers in
the settings are decimals in text form. It contains no text of a fact, a question or an answer:
those are leaves, referred to by number. So a redacted copy has the same content as the original.
"""

from __future__ import annotations

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
# The only key of the content that a writer leaves out: where no answer was repaired.
OPTIONAL: Final = frozenset({"repaired"})
# Largest integer that every JSON parser reads exactly.
_LARGEST: Final = 2**53 - 1

Whole = Annotated[int, Field(strict=True, ge=-_LARGEST, le=_LARGEST)]
Count = Annotated[int, Field(strict=True, ge=0, le=_LARGEST)]
# Marks a field in millionths; `outline.declared` converts it from a float.
SHARE: Final = "a share"
Millionths = Annotated[Whole, SHARE]
# Mark fields with numbers of leaves, and with positions among the candidates. Both have a meaning
# only within one receipt, so `comparison` replaces them.
LEAF: Final = "a leaf"
CANDIDATE: Final = "a candidate"
LeafNumber = Annotated[Count, LEAF]
LeafOrNone = Annotated[Count | None, LEAF]
LeafNumbers = Annotated[tuple[Count, ...], LEAF]
# Number of a leaf; a stretch of one (number, start and end character); or a literal.
Stretch = tuple[Count, Count, Count]
Piece = Count | Stretch | str
# A float as `repr` prints it, so that reading it gives the same float.
Decimal = Annotated[str, Field(pattern=r"^-?(\d+(\.\d+)?([eE][-+]?\d+)?|inf|nan)$")]


class JudgeCallRecord(Part):
    """One call of a judge.

    Attributes:
        id: hash of the question, which the reply must repeat.
        first, last, passages: numbers of the first and last claim and of the passages, from 1.
        claims: numbers of the claims, if not all from the first to the last.
        second: whether the second judge was asked.
        pieces: passage number, start and end of each piece of a passage that was sent in part.
        error: name of the error if the call failed.
        cost: cost in USD.
        leaf: leaf of the reply's text.
    """

    id: str
    first: Count
    last: Count
    claims: tuple[Count, ...] = ()
    second: bool = False
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


class ConversationMessage(Part):
    """A message before the question, as it was sent to the judge."""

    role: str
    leaf: LeafNumber


class JudgeRecord(Part):
    """The calls of a judge about the answer.

    Attributes:
        prompt: name of the judge's prompt, and hash of its system message.
        own_answer: whether the model judged its own answer.
        skipped: why no judge was called; empty if one was.
        left_out: id and reason of each passage that no call contained in full.
        instructions: leaf of the system prompt; None if there was none.
        system: leaf of the judge's own system message; None if no judge was called.
    """

    model: str = ""
    second: str = ""
    prompt: str = ""
    own_answer: bool = False
    skipped: str = ""
    language: str = "en"
    passages: Count = 0
    left_out: tuple[tuple[str, str], ...] = ()
    calls: tuple[JudgeCallRecord, ...] = ()
    conversation: tuple[ConversationMessage, ...] = ()
    instructions: LeafOrNone = None
    system: LeafOrNone = None


class SignalRecord(Part):
    """An engine's result, in millionths, for one request of a stage (`at`)."""

    at: str
    value: Any


class PriorAnswerRecord(Part):
    """An earlier answer, or a summary of it, that the examination used."""

    window_id: str
    number: Whole
    leaf: LeafNumber
    summarised: bool = False
    outdated: bool = False


class RejectedClaimRecord(Part):
    """A claim of a sub-agent's answer that its report flags.

    Attributes:
        said: leaf of the sub-agent's own words; None if they are unknown.
        wrong: leaf of the wrong words among them; None if they are unknown.
    """

    leaf: LeafNumber
    said: LeafOrNone = None
    wrong: LeafOrNone = None
    reason: LeafOrNone = None
    window_id: str = ""


class RegisteredSystem(Part):
    """The registered properties of the AI system (CRP-SPEC-005 §14.1)."""

    domain: str | None = None
    sector: str | None = None
    decides: bool = False
    evidence: tuple[str, ...] = ()


class EnginesRecord(Part):
    """Identities of the examination's engines, and their thresholds as decimals."""

    embedder: str | None = None
    embedder_thresholds: dict[str, Decimal] = {}
    dimensions: Count = 0
    verifier: str = ""
    verifier_thresholds: dict[str, Decimal] = {}
    passage: Count = 0
    recognisers: tuple[tuple[str, dict[str, PersonalCategory]], ...] = ()
    policy: str = ""


class Passage(Part):
    """A fact as it was in the model's context."""

    id: str
    pieces: Annotated[tuple[Piece, ...], LEAF]
    importance: Annotated[Count | None, SHARE] = None


class ExaminationRecord(Part):
    """The input of the answer's examination, and the results of the engines.

    Attributes:
        answer: leaf of the examined text; differs from the answer's leaf if that was withheld.
        question: leaf of the question; None if it was unknown.
        passages: passages of the evidence; None if they are the facts of the envelope.
        needs: leaves of the questions that the answer had to cover.
        prompt: `conversation` if it is system prompt, history and question; else its leaf, or
            None if it is only the question.
        flags: flags added to the report after those of the examination.
    """

    answer: LeafNumber
    question: LeafOrNone = None
    passages: tuple[Passage, ...] | None = None
    needs: LeafNumbers = ()
    prior: tuple[PriorAnswerRecord, ...] = ()
    rejected: tuple[RejectedClaimRecord, ...] = ()
    windows_left: Whole = 0
    prompt: Annotated[Count | str | None, LEAF] = None
    system: RegisteredSystem = RegisteredSystem()
    grounding: GroundingMode
    loop_depth: Count = 0
    no_store: bool = False
    engines: EnginesRecord
    signals: tuple[SignalRecord, ...] = ()
    flags: tuple[str, ...] = ()
    judged: JudgeRecord | None = None


class EditRecord(Part):
    """A change of the original answer: the characters replaced, and the leaf of the new words.

    Attributes:
        claim: id of the claim in the original's report.
        leaf: None if the words were removed.
    """

    start: Count
    end: Count
    claim: str
    leaf: LeafOrNone = None


class RepairRecord(Part):
    """The answer before its repair; with its edits it gives the answer.

    Attributes:
        original: leaf of the model's own text.
        report: fields of the report on it, as those of the answer's report.
        examined: the input of its examination, with the judge's call that has the corrections.
    """

    original: LeafNumber
    edits: tuple[EditRecord, ...]
    report: dict[str, Any]
    examined: ExaminationRecord | None = None


class TermsRecord(Part):
    """Conditions on an answer in addition to the policies.

    Attributes:
        part: whether later windows could continue the answer.
        unanswered: whether the reply only requested tool calls.
        review_below: safety budget below which a person must review, in millionths.
    """

    accept_risk: RiskLevel | None = None
    accept_quality: tuple[QualityTier, ...] = ()
    part: bool = False
    unanswered: bool = False
    review_below: Annotated[Count, SHARE] = 0


class PolicyRecord(Part):
    """The policies in force, and the decision.

    Attributes:
        judgement, reported: results of `policy.verdict`; None if nothing was judged.
        tier: quality tier of the envelope that the policies were applied to.
        safety_budget: safety budget before the answer.
        catalogue: engine, name and digest of the bundle that classified the use.
        terms: conditions besides the policies; None if none were applied or nothing was judged.
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
    terms: TermsRecord | None = None


class Package(Part):
    """The package that created the receipt."""

    name: str
    version: str


class SentMessage(Part):
    """A message of a conversation; its name and tool calls, if any, are in the leaf `frame`."""

    role: str
    leaf: LeafNumber
    frame: LeafOrNone = None


class RequestRecord(Part):
    """The request, with the numbers of its texts' leaves.

    Attributes:
        needs: sub-questions that the question was split into; empty if it was not split.
        results: how many of the history's last messages were sent after the question.
        temperature: None for the model's default.
        shaped: whether the messages were built by `prompt@1`.
    """

    question: LeafNumber
    needs: LeafNumbers = ()
    system_prompt: LeafOrNone = None
    instructions: LeafNumbers = ()
    history: tuple[SentMessage, ...] = ()
    results: Count = 0
    tools: LeafOrNone = None
    grounding: GroundingMode
    strategy: Strategy
    oversight: Oversight | None = None
    max_tokens: Count | None = None
    temperature: Decimal | None = None
    seed: Annotated[str, Field(pattern=r"^-?\d+$")] | None = None
    shaped: bool = True


class ModelCallRecord(Part):
    """A call for the answer; if `follows`, the first call's messages come before its own."""

    purpose: str
    model: str
    follows: bool = False
    messages: tuple[SentMessage, ...]


class Tokenizer(Part):
    """The tokenizer that counted the tokens."""

    identity: str
    exactness: Exactness
    source: str


class ModelsRecord(Part):
    """The model that the envelope was packed for, and the one named in the reply."""

    asked: str
    answered: str
    finish_reason: str
    tokenizer: Tokenizer | None = None
    embedder: str = ""
    reranker: str = ""


class SettingsInForce(Part):
    """The settings used after scoring, by name; numbers as decimals.

    Attributes:
        withheld: names of the operator's own weights, whose values are not disclosed.
    """

    digest: str
    envelope: dict[str, Any]
    dpe: dict[str, Any]
    withheld: tuple[str, ...] = ()


class CandidateRecord(Part):
    """A candidate with its scores, in millionths.

    Attributes:
        characters: length of the leaf's text.
        community: number of its label in the leaf `communities`; labels contain words of facts.
        stretches: start, end and score of each part that could be packed alone, in one flat list.
        spans: character ranges of a longer fact that the leaf contains; empty if all of it.
        decay: name of the decay function used instead of freshness.
        decision: id of the guard's decision that allowed reading it.
        refused: why it must not be packed.
        passages: start, end, relevance, score, words, hop and tokens of each passage of a long
            text, in one flat list.
    """

    id: str
    leaf: LeafNumber
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


class SelectionRecord(Part):
    """What ranking, packing and rendering depend on besides each candidate.

    Attributes:
        duplicates, conflicts: near-identical pairs of positions, as far as they were computed.
        all_pairs: whether every pair was computed.
    """

    duplicates: tuple[tuple[Count, Count], ...] = ()
    conflicts: tuple[tuple[Count, Count], ...] = ()
    all_pairs: bool = True
    memory_tier_hit: Count = 3
    tier_hits: tuple[Count, Count, Count, Count] = (0, 0, 0, 0)
    algorithms: tuple[str, ...] = ()
    relevant_floor: Count | None = None


class BudgetRecord(Part):
    """Input of the budget in tokens (§7.2); `automatic`: only as much as the question needs."""

    limit: Count
    around: Whole
    question: Count
    answer: Count | None = None
    asked: Whole | None = None
    automatic: bool = False


class FitRecord(Part):
    """Parameters with which the envelope was built.

    Attributes:
        room: how the budget was computed; None if the caller set it.
        counts: token counts used while packing, in order.
        previous: ids of the previous envelope's facts, for a cache-stable layout.
    """

    now: str
    room: BudgetRecord | None = None
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


class PackedFactRecord(Part):
    """A fact of the envelope; `spans` are the characters of its leaf used, if not all."""

    at: Annotated[Count, CANDIDATE]
    position: Count
    tokens: Count
    composite: Count
    freshness: Count
    diversity: Count
    spans: tuple[tuple[Count, Count], ...] = ()


class DroppedFactRecord(Part):
    """A candidate that is not in the envelope; `kept` is the packed fact that it duplicates."""

    at: Annotated[Count, CANDIDATE]
    reason: DropReason
    kept: Annotated[Count | None, CANDIDATE] = None


class EnvelopeRecord(Part):
    """The envelope, with scores in millionths."""

    facts: tuple[PackedFactRecord, ...]
    dropped: tuple[DroppedFactRecord, ...]
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


class DocumentRecord(Part):
    """A document of the evidence; its title, URI and hash are the leaf's JSON."""

    source: str
    leaf: LeafNumber


class Content(Part):
    """All data of a receipt about a window, except its texts and its place in the chain.

    Attributes:
        selected, fit: None if there was no envelope, or another package built it.
        report: fields of the report without texts, numbers in millionths.
        asker: leaf of who asked: the tenant's name and a pseudonym of the subject, as JSON.
        documents: the documents of the facts that were shown; empty if the fabric has none.
        repaired: the answer before its repair; None if it is as the model wrote it.
    """

    content: str = Field(alias="schema", pattern=r"^receipt-content/1$")
    scale: Literal[1_000_000]
    package: Package
    request: RequestRecord
    model: ModelsRecord
    settings: SettingsInForce
    candidates: tuple[CandidateRecord, ...]
    selected: SelectionRecord | None = None
    fit: FitRecord | None = None
    envelope: EnvelopeRecord | None = None
    calls: tuple[ModelCallRecord, ...] = ()
    report: dict[str, Any]
    examined: ExaminationRecord | None = None
    repaired: RepairRecord | None = None
    policy: PolicyRecord
    asker: LeafOrNone = None
    documents: tuple[DocumentRecord, ...] = ()
    seal: LeafNumber

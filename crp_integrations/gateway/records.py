"""JSON bodies of the gateway's requests and responses, besides records of other subpackages."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, JsonValue, field_validator

from crp_integrations.audit.records import Event, WindowSeal
from crp_integrations.envelope.records import Cap
from crp_integrations.fabric.records import Duration, Fact, Metadata, Moment
from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import Decomposition, HaltReason, QualityTier, SourceKind

# The range in which JSON parsers of all languages, SQLite and PostgreSQL are exact.
Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]
Penalty = Annotated[float, Field(ge=-2.0, le=2.0)]
_T = TypeVar("_T")
# Stop at the first error: collecting one for each of a million members would block the event loop.
Several = Annotated[tuple[_T, ...], Field(fail_fast=True)]


class TextPart(Part):
    """A piece of a message's text."""

    type: Literal["text"]
    text: str


class MessageFunction(Part):
    """The function of a tool call."""

    name: str
    arguments: str = "{}"


class MessageToolCall(Part):
    """A tool call of an assistant's message."""

    id: str = ""
    type: Literal["function"] = "function"
    index: int | None = None
    function: MessageFunction


class ChatMessage(Part):
    """A message in the OpenAI shape, text only.

    Attributes:
        refusal, annotations, audio, function_call, reasoning_content: fields of earlier responses
            that clients send back; accepted and ignored.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Several[TextPart] | None = None
    name: str | None = None
    tool_calls: Several[MessageToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    annotations: Several[JsonValue] | None = None
    audio: JsonValue = None
    function_call: JsonValue = None
    reasoning_content: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _text_alone(cls, value: Any) -> Any:
        # Checked here, since pydantic's error for a union names only its first type.
        for part in value if isinstance(value, list) else ():
            kind = part.get("type", "text") if isinstance(part, dict) else "text"
            if kind != "text":
                raise ValueError(f"it contains {kind!r:.40}; only text can be examined")
        return value


class StreamOptions(Part):
    """What a stream contains besides its text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CRPFields(Part):
    """Fields of a question for which CRP has no header.

    Attributes:
        budget_tokens: cap on the envelope, `auto` or `window`; None for that of the settings.
        k: cap on the number of facts.
        k_nearest: number of candidates to search for.
        sub_queries: information needs of the question, instead of those that rules find.
        decompose: how the question is split into needs.
        agent_id: registered agent that asks.
    """

    budget_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | Literal["auto", "window"] | None = (
        None
    )
    k: int | None = Field(default=None, ge=1, le=10_000)
    k_nearest: int | None = Field(default=None, ge=1, le=10_000)
    sub_queries: Several[str] | None = Field(default=None, max_length=32)
    decompose: Decomposition | None = None
    agent_id: str | None = Field(default=None, max_length=200)


class ChatRequest(Part):
    """`POST /v1/chat/completions` and `/v1/preview`.

    Attributes:
        n, logprobs, modalities: only values that are possible for one examined text.
        crp: CRP fields; never sent to a model.
    """

    model: str = Field(min_length=1, max_length=256)
    messages: Several[ChatMessage] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, ge=0.0, le=2.0)
    top_p: float | None = Field(default=None, ge=0.0, le=1.0)
    n: Literal[1] | None = None
    stop: str | Several[str] | None = None
    max_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: Literal[False] | None = None
    modalities: Several[Literal["text"]] | None = None
    seed: Whole | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    service_tier: str | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    prediction: dict[str, JsonValue] | None = None
    response_format: dict[str, JsonValue] | None = None
    tools: Several[dict[str, JsonValue]] | None = Field(default=None, max_length=128)
    tool_choice: str | dict[str, JsonValue] | None = None
    parallel_tool_calls: bool | None = None
    crp: CRPFields | None = None


class ResponseFunction(Part):
    """The function of a tool call that a model asked for."""

    name: str
    arguments: str


class ResponseToolCall(Part):
    """A tool call that a model asked for."""

    id: str
    type: Literal["function"] = "function"
    function: ResponseFunction


class ResponseMessage(Part):
    """The answer's message."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: tuple[ResponseToolCall, ...] | None = None


class Choice(Part):
    """The one answer."""

    index: int = 0
    message: ResponseMessage
    logprobs: None = None
    finish_reason: str


class ResponseUsage(Part):
    """Tokens of all calls of the window together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Proof(Part):
    """Ids and headers of a window in the body, for clients that do not expose headers.

    Attributes:
        headers: CRP response headers by name.
        receipt_id: id of the window's receipt; empty if there is none.
    """

    session_id: str
    window_id: str
    continuation_id: str = ""
    receipt_id: str = ""
    headers: dict[str, str]


class Completion(Part):
    """An OpenAI chat completion, and `crp`."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: ResponseUsage
    crp: Proof


class ListedModel(Part):
    """A model that callers may use, in the OpenAI shape."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "gateway"


class ModelList(Part):
    """OpenAI's list of models."""

    object: Literal["list"] = "list"
    data: tuple[ListedModel, ...]


class ErrorObject(Part):
    """The `error` object that OpenAI clients read.

    Attributes:
        type, param, code: unchanged values of the upstream if the error comes from it.
    """

    message: str
    type: str | int
    param: str | int | None = None
    code: str | int | None = None


class Refused(Record):
    """Body of every refusal: OpenAI's `error`, and the CRP fields for the status.

    Spec: related facts §3, §6; CRP-SPEC-003 §8.4

    Attributes:
        crp_halt_reason, session_id, audit_trail_uri, oversight_required, retry_condition: fields
            of a 451.
        accepted, best_achievable, caps, envelope_score, coverage_score, relevance_mean,
            saturation, facts_included, facts_available: fields of a 503 for quality.
        directive, value: fields of a 424, a 451 and a 503 for quality.
        directive, parent, child: fields of a 403 for a relaxed policy.
        column: field of a 400 for a policy's syntax.
    """

    SCHEMA = "gateway-refusal/1"

    error: ErrorObject
    status: int
    crp_halt_reason: HaltReason | None = None
    session_id: str | None = None
    audit_trail_uri: str | None = None
    oversight_required: bool | None = None
    retry_condition: str | None = None
    accepted: tuple[QualityTier, ...] | None = None
    best_achievable: QualityTier | None = None
    caps: tuple[Cap, ...] | None = None
    envelope_score: float | None = None
    coverage_score: float | None = None
    relevance_mean: float | None = None
    saturation: float | None = None
    facts_included: int | None = None
    facts_available: int | None = None
    directive: str | None = None
    value: str | None = None
    parent: str | None = None
    child: str | None = None
    column: int | None = None


def _check_addressable(value: str) -> str:
    """Refuse an id that cannot be part of a URL: clients resolve `.` and `..` in paths."""
    if value in (".", ".."):
        raise ValueError("an id must not be '.' or '..'; give another")
    if "\0" in value:
        raise ValueError("an id contains a NUL character; give one without")
    return value


Id = Annotated[str, AfterValidator(_check_addressable)]


class NewFact(Part):
    """A fact to store.

    Attributes:
        fact_id: id by which it can be changed later; empty for a UUIDv5 of source, location and
            content.
        ttl: ISO 8601 duration after which it becomes STALE.
    """

    content: str = Field(min_length=1)
    fact_id: Id = Field(default="", max_length=200)
    source_id: Id = Field(default="user", min_length=1, max_length=200)
    source_location: str = Field(default="", max_length=1_000)
    kind: SourceKind = SourceKind.USER
    importance_weight: float | None = Field(default=None, ge=0.0, le=1.0)
    labels: Several[str] = ()
    ttl: Duration | None = None
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    metadata: Metadata = {}


class NewFacts(Part):
    """`POST /v1/facts`: facts to store, all or none."""

    facts: Several[NewFact] = Field(min_length=1)


class StoredFacts(Record):
    """The result of storing a batch.

    Attributes:
        facts: ids of the added facts, in order.
        unchanged, returned, rewritten: ids of facts that existed already, are active again, or
            have new content or metadata.
        state_hash: hash of the tenant's facts afterwards.
    """

    SCHEMA = "gateway-stored/1"

    facts: tuple[str, ...]
    unchanged: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    state_hash: str = ""


class FactsPage(Record):
    """Facts by id.

    Attributes:
        after: value of `after` for the next page; empty on the last page.
    """

    SCHEMA = "gateway-facts/1"

    facts: tuple[Fact, ...]
    after: str = ""


class SessionTrail(Record):
    """The seals and events of a session.

    Attributes:
        seals: the session's windows by number.
        events: the session's events in the order of the journal.
        after: value of `after` for further events; 0 at the end of the journal.
    """

    SCHEMA = "gateway-trail/1"

    session_id: str
    seals: tuple[WindowSeal, ...]
    events: tuple[Event, ...]
    after: int = 0


class Health(Record):
    """The gateway answers; for `/readyz`, so does its store."""

    SCHEMA = "gateway-health/1"

    status: Literal["ok"] = "ok"
    version: str


def extra_fields(request: Any, names: tuple[str, ...]) -> tuple[Any, dict[str, Any]]:
    """Split a request into its OpenAI fields and the named fields to pass to the upstream."""
    if not isinstance(request, dict):
        return request, {}
    aside = {name: value for name, value in request.items() if name in names}
    return {name: value for name, value in request.items() if name not in aside}, aside

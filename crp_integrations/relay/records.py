"""Records of the public interface: a request, its messages in several formats, and an answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticSerializationError, to_json

from crp_integrations.dpe.records import RejectedClaim, Report
from crp_integrations.dpe.remedies import MOST_REDISPATCHES
from crp_integrations.dpe.repair import Edit, Unrepaired
from crp_integrations.dpe.report_html import answer_html, passages_of
from crp_integrations.envelope.envelope_html import envelope_html
from crp_integrations.envelope.records import EarlierWindow, Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import RequestError
from crp_integrations.governance.compaction.records import CompactionAccount
from crp_integrations.headers import grammar, names
from crp_integrations.headers.names import AgentPhase
from crp_integrations.headers.records import CacheDirectives
from crp_integrations.markup import folded, fragment, page
from crp_integrations.messages import Message, Reply, ToolCall
from crp_integrations.policy.directives import LEVELS
from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import (
    BudgetTokens,
    Decomposition,
    Exactness,
    FlagAction,
    GroundingMode,
    Oversight,
    QualityTier,
    RiskLevel,
    SafetyMode,
    Strategy,
)


def conversation_of(messages: Iterable[object]) -> list[Message]:
    """A caller's messages as `Message`; they may be in the format of this package or of OpenAI."""
    # Iterating over a mapping would yield its keys, and over a message its fields.
    if isinstance(messages, (Message, str, Mapping)) or not isinstance(messages, Iterable):
        raise RequestError(f"messages is of type {type(messages).__name__}, wanted a list of them")
    return [message_of(part) for message in messages for part in _split_results(message)]


def _split_results(message: object) -> list[object]:
    """Split a message with results of several tools, Anthropic's format, into one for each."""
    content = message.get("content") if isinstance(message, Mapping) else None
    blocks = content if _is_list(content) else []
    results = [block for block in blocks if isinstance(block, Mapping) and block.get("tool_use_id")]
    if not isinstance(message, Mapping) or len(results) < 2 or len(results) < len(blocks):
        return [message]
    return [{**message, "content": [block]} for block in results]


def message_of(source: object) -> Message:
    """A message as `Message`; the source may be one, or be in OpenAI's or Anthropic's format."""
    if isinstance(source, Message):
        return source
    message = source
    if not isinstance(message, Mapping) and hasattr(message, "model_dump"):
        message = message.model_dump()  # a reply of LiteLLM or the OpenAI client
    if not isinstance(message, Mapping):
        raise RequestError(f"a message is a {type(source).__name__}; give a dict with a role")
    role = message.get("role")
    if role == "developer":
        role = "system"
    if role not in ("system", "user", "assistant", "tool"):
        raise RequestError(f"role {role!r:.40} is not one of system, user, assistant, tool")
    calls = tuple(_call(call) for call in message.get("tool_calls") or ())
    content, result = message.get("content"), message.get("tool_call_id")
    failed = role == "tool" and _failed(message, content)
    if isinstance(content, Mapping) and _is_list(content.get("content")):
        content = content["content"]  # result of a tool of the Model Context Protocol
    blocks = [block for block in content if isinstance(block, Mapping)] if _is_list(content) else []
    if answered := [block for block in blocks if block.get("type") == "tool_result"]:
        # Anthropic's format, in which tool results are user messages.
        role, result = "tool", answered[0].get("tool_use_id")
        failed = any(block.get("is_error") for block in answered)
        content = "\n".join(_text(block.get("content")) for block in answered)
    elif used := [block for block in blocks if block.get("type") == "tool_use"]:
        calls += tuple(_anthropic_call(block) for block in used)
        content = [block for block in blocks if block.get("type") != "tool_use"]
    return Message(
        role=role,
        content=_text(content),
        name=message.get("name"),
        tool_calls=calls,
        tool_call_id=result,
        failed=failed,
    )


# Flags of a failed tool: Anthropic's, the Model Context Protocol's, and this package's.
_FAILURE_FLAGS: Final = ("is_error", "isError", "failed")


def _failed(message: Mapping[str, Any], content: object) -> bool:
    """Whether a tool message has a flag that the tool failed; OpenAI has no such flag."""
    forms = [message, content] if isinstance(content, Mapping) else [message]
    return message.get("status") == "error" or any(
        form.get(name) is True for form in forms for name in _FAILURE_FLAGS
    )


def _is_list(content: object) -> TypeGuard[Sequence[object]]:
    return isinstance(content, Sequence) and not isinstance(content, str)


def _anthropic_call(block: Mapping[str, Any]) -> ToolCall:
    """A tool call from an Anthropic `tool_use` block."""
    if not isinstance(block.get("name"), str):
        raise RequestError("a tool_use block names no tool; give id, name and input")
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    return ToolCall(id=block.get("id") or "", name=block["name"], arguments=arguments)


def _call(call: object) -> ToolCall:
    if hasattr(call, "model_dump"):
        call = call.model_dump()
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise RequestError("a tool call names no function; give id and function")
    if not isinstance(function.get("name"), str):
        raise RequestError("a tool call names no function; give id and function")
    return ToolCall(
        id=call.get("id") or "", name=function["name"], arguments=function.get("arguments") or "{}"
    )


def _text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else [content]
    for part in parts:
        if not isinstance(part, Mapping) or part.get("type") != "text":
            raise RequestError("a message contains something other than text; give only text")
    return "".join(str(part["text"]) for part in parts if isinstance(part, Mapping))


class Request(Record):
    """One question with everything that affects how it is answered.

    Attributes:
        query: the question.
        sub_queries: information needs given by the caller; empty leaves them to `decompose`.
        decompose: how the question is split into needs: by `rules`, by the `model` in a separate
            call before the answer, or not at all (`none`).
        model: LiteLLM model string, or `extractive`.
        budget_tokens: cap on the envelope in tokens; `auto` for what the question needs, `window`
            for all that the model's context limit leaves, None for the settings' choice.
        k: cap on the number of facts, None for no cap.
        history: earlier messages of the conversation, sent before the question, in the format of
            this package or of OpenAI.
        results: number of the last messages in `history` that are sent after the question: tool
            calls and their results. Such a conversation is not shortened.
        cache: cache directives; a string is parsed like `CRP-Context-Cache`.
        residency: the only region whose data is read and written; empty for no region.
        if_match: ETag of an envelope of this session that the caller has, or `*` for any; empty
            for an unconditional request.
        prior: the session's earlier windows, when this one continues them.
        pinned: ids of facts that a cache-stable envelope begins with, if they are candidates.
        previous: the session's previous envelope, whose text a cache-stable one begins with.
        loop_depth: depth of this call in a chain of agents calling agents, 0 for the root.
        strategy: dispatch strategy.
        accept_strategies: strategies that the caller accepts, best first; empty for any.
        accept_quality: tiers that the caller accepts; empty for any.
        accept_risk: highest risk that the caller accepts; None for any.
        policy: safety policy for this call, which can only tighten the session's; empty for none.
        report_only: safety policy whose violations are reported but not enforced.
        oversight: who decides on the answer; None for the policy's choice.
        oversight_token: `approved:sha256:…` of an answer that a person has approved.
        continuation_ids: `crp_cont_…` of the windows that this one continues.
        session_token: signed token of the session; empty for none.
        safety_budget: ceiling of the session's safety budget; None for no ceiling.
        parent_session: session of the agent that delegated this call.
        agent_id: registered agent that asks.
        inherited_policy: policy of the agent that delegated this call; no policy can relax it.
        safety_mode: name of a predefined policy, which tightens the one in force.
        report_uri: address for violation reports, in addition to the policy's own.
        nonce: `base64:…` that was issued with the policy in force and is valid for it only.
        phase: phase of the asking agent; it is passed through.
        k_nearest: number of candidates to search for; None for the settings' number.
        instructions: texts that the relay adds to the system message, such as remedies.
        compact: whether a long conversation is shortened; None for the setting.
        compaction: account of what was left out of the conversation; None if it was not checked.
        rejected: claims in sub-agents' answers, among the tool results, that their reports flag.
        on_flag: what is done with a flagged answer before the policy decides: `report` nothing;
            `ask-again` the model with the findings, then `repair`; `repair` it from the judge's
            corrections and judge it again; `withhold` it; or several of them.
        on_flag_level: lowest risk level at which it is done; None for MEDIUM.
        most_again: maximum number of times that `ask-again` asks.
    """

    SCHEMA = "request/1"

    query: str = Field(min_length=1)
    sub_queries: tuple[str, ...] = ()
    decompose: Decomposition = Decomposition.RULES
    model: str = Field(min_length=1)
    budget_tokens: BudgetTokens | None = None
    grounding: GroundingMode = GroundingMode.PREFERRED
    strategy: Strategy = Strategy.PUSH
    session_id: str = ""
    k: int | None = Field(default=None, gt=0)
    system_prompt: str = ""
    history: tuple[Message, ...] = ()
    results: int = Field(default=0, ge=0)
    max_tokens: int | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, ge=0.0)
    seed: int | None = None
    tools: tuple[dict[str, Any], ...] = ()
    cache: CacheDirectives = CacheDirectives()
    residency: str = ""
    if_match: str = ""
    prior: tuple[EarlierWindow, ...] = ()
    pinned: tuple[str, ...] = ()
    previous: Envelope | None = None
    loop_depth: int = Field(default=0, ge=0)
    accept_strategies: tuple[Strategy, ...] = ()
    accept_quality: tuple[QualityTier, ...] = ()
    accept_risk: RiskLevel | None = None
    policy: str = ""
    report_only: str = ""
    oversight: Oversight | None = None
    oversight_token: str = ""
    continuation_ids: tuple[str, ...] = ()
    session_token: str = ""
    safety_budget: float | None = Field(default=None, ge=0.0, le=1.0)
    parent_session: str = ""
    agent_id: str = ""
    inherited_policy: str = ""
    safety_mode: SafetyMode | None = None
    report_uri: str = ""
    nonce: str = ""
    phase: AgentPhase | None = None
    k_nearest: int | None = Field(default=None, gt=0)
    instructions: tuple[str, ...] = ()
    compact: bool | None = None
    compaction: CompactionAccount | None = None
    rejected: tuple[RejectedClaim, ...] = ()
    on_flag: tuple[FlagAction, ...] = ()
    on_flag_level: RiskLevel | None = None
    most_again: int = Field(default=1, ge=0, le=MOST_REDISPATCHES)

    @field_validator("budget_tokens", "k", "max_tokens", mode="before")
    @classmethod
    def _not_bool(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError(f"{value} is not a number, wanted a whole number")
        return value

    def asked_budget(self, settings: EnvelopeSettings) -> BudgetTokens:
        """The request's token budget, else the settings' one."""
        return settings.budget.tokens if self.budget_tokens is None else self.budget_tokens

    @field_validator("on_flag_level", mode="before")
    @classmethod
    def _flags(cls, value: Any) -> Any:
        if value is not None and value not in LEVELS:
            raise ValueError(f"{value!r:.40} flags no answer, wanted one of {', '.join(LEVELS)}")
        return value

    @field_validator("budget_tokens", mode="before")
    @classmethod
    def _number_or_word(cls, value: Any) -> Any:
        if isinstance(value, str) and value not in ("auto", "window"):
            raise ValueError(f"{value!r:.40} is not a budget, wanted a number, 'auto' or 'window'")
        return value

    @field_validator("accept_quality", "accept_strategies", "on_flag", mode="before")
    @classmethod
    def _as_tuple(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("history", mode="before")
    @classmethod
    def _as_messages(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        try:
            return tuple(map(message_of, value))
        except RequestError as error:
            raise ValueError(str(error)) from None
        except ValidationError:
            # The library's message would quote the text.
            raise ValueError("a message's name, ids or arguments are not strings") from None

    @field_validator("sub_queries")
    @classmethod
    def _no_blank(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        blank = [number for number, need in enumerate(value, start=1) if not need.strip()]
        if blank:
            raise ValueError(f"number {blank[0]} is empty; give each need in words")
        return value

    @field_validator("sub_queries", "system_prompt", "history", "tools", "prior", "pinned")
    @classmethod
    def _can_be_sent(cls, value: Any) -> Any:
        # A value that cannot be written would fail later, at the model or in a hash.
        try:
            to_json(value)
        except PydanticSerializationError:
            # The library's message would quote the text.
            raise ValueError("it cannot be written as JSON in UTF-8") from None
        return value

    @field_validator("results")
    @classmethod
    def _of_the_history(cls, value: int, info: ValidationInfo) -> int:
        most = len(info.data.get("history", ()))
        if value > most:
            raise ValueError(f"{value} messages of a history of {most} cannot follow the question")
        return value

    @field_validator("if_match")
    @classmethod
    def _etag(cls, value: str) -> str:
        return grammar.check_value(names.IF_MATCH, value).lower() if value else value

    @field_validator("report_uri")
    @classmethod
    def _address(cls, value: str) -> str:
        return grammar.check_value(names.SAFETY_REPORT_URI, value) if value else value

    @field_validator("prior")
    @classmethod
    def _each_once(cls, value: tuple[EarlierWindow, ...]) -> tuple[EarlierWindow, ...]:
        numbers = [window.window_number for window in value]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"windows {numbers} repeat a number; give each window once")
        return value

    @field_validator("cache", mode="before")
    @classmethod
    def _directives(cls, value: Any) -> Any:
        return CacheDirectives.parse(value) if isinstance(value, str) else value


class Piece(Part):
    """A part of an answer over several windows, exactly as a model wrote it.

    Attributes:
        window_id: id of the window that answered it; empty for a bridge between two windows.
    """

    text: str
    window_id: str = ""


class Repaired(Part):
    """What an answer was before its repair.

    Attributes:
        reply: the reply as the model wrote it.
        report: the judged report on its text; the answer's own report is on the repaired one.
        edits: what was changed, in order, with offsets in its text.
        unrepaired: the flagged claims that stay, each with the reason.
    """

    reply: Reply
    report: Report
    edits: tuple[Edit, ...]
    unrepaired: tuple[Unrepaired, ...] = ()

    @property
    def text(self) -> str:
        """The text before the repair."""
        return self.reply.answer


class Answer(Record):
    """An answer with the envelope that the model saw, the report, and the headers.

    Attributes:
        headers: CRP response headers by name, values without line breaks.
        continuation_id: id with which the window may be continued, empty for the session's last;
            the headers include it only if another window is suggested.
        pieces: texts of an answer over several windows, in order; empty for a single window.
        window_reports: sealed reports of an answer over several windows; empty for one window.
        parts: ids of the windows that answered parts of the question; empty for none.
        receipt_id: id of the (last) window's receipt; empty for none.
        repaired: the original of a text that `on_flag` repaired; None if the model wrote it so.
    """

    SCHEMA = "answer/1"

    text: str
    envelope: Envelope
    report: Report
    headers: dict[str, str]
    reply: Reply
    session_id: str
    window_id: str
    window_number: int
    continuation_id: str = ""
    pieces: tuple[Piece, ...] = ()
    window_reports: tuple[Report, ...] = ()
    parts: tuple[str, ...] = ()
    receipt_id: str = ""
    compaction: CompactionAccount | None = None
    repaired: Repaired | None = None

    @property
    def model_reply(self) -> Reply:
        """The reply as the model wrote it, which a repair has changed."""
        return self.repaired.reply if self.repaired else self.reply

    def to_html(self) -> str:
        """An HTML page with the answer, its report, and the collapsed envelope."""
        return page("Checked answer", self._html())

    def _repr_html_(self) -> str:
        return fragment(self._html())

    def _html(self) -> str:
        shown = answer_html(self.text, self.report, passages_of(self.envelope))
        return shown + folded("What the model saw", envelope_html(self.envelope))

    def as_prior(self, summary: str = "") -> EarlierWindow:
        """What the next window needs of this one, including its answer.

        Spec: CRP-SPEC-003 §14.1, CRP-SPEC-005 §8.2
        """
        seen = self.envelope.as_prior(summary)
        return seen.changed(answer=self.text, window_id=self.window_id)


class TokenCount(Record):
    """A number of tokens, and how exact it is.

    Spec: CRP-SPEC-003 §10.1 (decision E19)

    Attributes:
        n: total tokens, at least 0.
        exactness: `exact` with the model's own vocabulary, `family` with that of a related model,
            `estimate` with another vocabulary and a factor.
        source: the vocabulary, where it was found, and the factor of an estimate.
        overhead: the part of `n` that is not message text but message framing, tool calls and
            tool definitions; 0 for a text.
    """

    SCHEMA = "token-count/1"

    n: int = Field(ge=0)
    exactness: Exactness
    source: str
    overhead: int = Field(default=0, ge=0)

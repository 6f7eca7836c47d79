"""What a caller asks and gets: the request and the answer."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from crp_integrations.dpe.records import Report
from crp_integrations.envelope.records import Envelope
from crp_integrations.headers.cache import CacheDirectives
from crp_integrations.messages import Message, Reply
from crp_integrations.records import Record
from crp_integrations.vocabulary import GroundingMode, Strategy


class Request(Record):
    """One question with everything that decides how it is answered.

    Attributes:
        query: the question.
        sub_queries: information needs handed in by the caller; empty means the question is one.
        model: provider string as LiteLLM takes it, or `extractive`.
        budget_tokens: cap on the envelope; None derives it from the model's context limit.
        k: cap on the number of facts, None for no cap.
        history: earlier messages of the conversation, sent before the question.
        cache: what is wanted of what is kept; a text is read like `CRP-Context-Cache`.
        residency: region whose data alone is read and written; empty for no region.
    """

    SCHEMA = "request/2"

    query: str = Field(min_length=1)
    sub_queries: tuple[str, ...] = ()
    model: str = Field(min_length=1)
    budget_tokens: int | None = None
    grounding: GroundingMode = GroundingMode.PREFERRED
    strategy: Strategy = Strategy.PUSH
    session_id: str = ""
    k: int | None = Field(default=None, gt=0)
    system_prompt: str = ""
    history: tuple[Message, ...] = ()
    max_tokens: int | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, ge=0.0)
    seed: int | None = None
    tools: tuple[dict[str, Any], ...] = ()
    cache: CacheDirectives = CacheDirectives()
    residency: str = ""

    @field_validator("cache", mode="before")
    @classmethod
    def _directives(cls, value: Any) -> Any:
        return CacheDirectives.parse(value) if isinstance(value, str) else value


class Answer(Record):
    """An answer with its proof: what the model saw, what was found, what was sealed.

    Attributes:
        text: the model's text, unaltered.
        headers: CRP response headers by name, values without line breaks.
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

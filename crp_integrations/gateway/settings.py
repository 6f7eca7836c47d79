"""Every limit of the gateway, with its unit."""

from __future__ import annotations

from pydantic import Field

from crp_integrations.records import Part


class GatewaySettings(Part):
    """What the gateway lets through, and how long it waits.

    Attributes:
        models: names that callers may ask; empty for the store's own model alone, or with an
            upstream server for every name.
        context_limit: tokens that every model takes in which the relay's `context_limits` does not
            name; 0 for what the upstream's list of models says, or else the model's name.
        pass_fields: fields of a request that OpenAI does not know and the upstream does, such as
            `top_k`; every other unknown field is refused.
        body_bytes: of a conversation; more is 413.
        question_characters: of its last question, which is embedded, taken apart and checked;
            more is 400.
        messages: of a conversation; more are 400.
        conversation_characters: of all messages but the question: system messages, history and
            tools' results, whose tokens are counted and in which personal data is looked for; more
            are 400.
        field_characters: of the other fields as JSON, such as tools and their schemas; more are
            400.
        answer_characters: of a model's answer, all of which is examined; more is a 502.
        facts_bytes: of a batch of facts; more is 413.
        facts_batch: facts of one batch.
        header_bytes: of all headers of a request together; more is 431.
        header_seconds: until a request's headers must be there; the connection is closed then.
        body_seconds: until a request's body must be there; else 408.
        send_seconds: until a caller must have taken what is sent; the connection is closed then.
        idle_seconds: that a connection is kept without a request.
        requests_per_minute: of one key; more are 429.
        burst: requests that a key may send at once before its rate counts.
        at_once: requests of one key at the same time; more are 429.
        at_once_in_all: requests of all keys at the same time; more are 429.
        connections: that are open at the same time.
        threads: in which turns read, examine and commit; models are waited for without any.
        busy_seconds: that a write waits for others of the same tenant; then it is a 503.
        tenants: relays that are kept open, those used last.
        keys_seconds: after which a changed key file is noticed.
        address_keys: whether the address of an artifact opens only as long as a key of its tenant
            and name holds, with the roles that are in the address; false where a program makes
            addresses for people who have no key.
        page: facts or events of one answer, at most.
        upstream_bytes: of one answer of the upstream server.
        upstream_connections: to the upstream server.
        shutdown_seconds: that requests under way get when the server ends.
        open_metrics: whether `/metrics` answers without a key.
        live_streams: whether a stream may show an answer before its verdict where nothing can
            withhold it; else every stream waits for the verdict.
    """

    models: tuple[str, ...] = ()
    context_limit: int = Field(default=0, ge=0)
    pass_fields: tuple[str, ...] = ()
    body_bytes: int = Field(default=1_000_000, gt=0)
    question_characters: int = Field(default=20_000, gt=0)
    messages: int = Field(default=1_000, gt=0)
    conversation_characters: int = Field(default=400_000, gt=0)
    field_characters: int = Field(default=200_000, gt=0)
    answer_characters: int = Field(default=60_000, gt=0)
    facts_bytes: int = Field(default=16_000_000, gt=0)
    facts_batch: int = Field(default=1_000, gt=0)
    header_bytes: int = Field(default=32_768, ge=1_024)
    header_seconds: float = Field(default=10.0, gt=0.0)
    body_seconds: float = Field(default=30.0, gt=0.0)
    send_seconds: float = Field(default=30.0, gt=0.0)
    idle_seconds: float = Field(default=15.0, gt=0.0)
    requests_per_minute: float = Field(default=600.0, gt=0.0)
    burst: int = Field(default=60, gt=0)
    at_once: int = Field(default=64, gt=0)
    at_once_in_all: int = Field(default=256, gt=0)
    connections: int = Field(default=1_024, gt=0)
    threads: int = Field(default=4, gt=0)
    busy_seconds: float = Field(default=30.0, gt=0.0)
    tenants: int = Field(default=64, gt=0)
    keys_seconds: float = Field(default=1.0, ge=0.0)
    address_keys: bool = True
    page: int = Field(default=1_000, gt=0)
    upstream_bytes: int = Field(default=2_000_000, gt=0)
    upstream_connections: int = Field(default=256, gt=0)
    shutdown_seconds: int = Field(default=20, ge=0)
    open_metrics: bool = False
    live_streams: bool = True

"""Every limit of the gateway, with its unit."""

from __future__ import annotations

from pydantic import Field

from crp_integrations.records import Part


class GatewaySettings(Part):
    """Limits of the gateway on requests, responses and waiting times.

    Attributes:
        models: names of the models that callers may use; empty for only the store's model or,
            with an upstream server, for every name.
        context_limit: context limit in tokens of models that the relay's `context_limits` does
            not name; 0 for the limit in the upstream's list of models, else of the model's name.
        pass_fields: non-standard fields of a request to pass to the upstream, such as `top_k`;
            every other unknown field is refused.
        body_bytes: maximum bytes of a conversation; else 413.
        question_characters: maximum characters of the last question, which is embedded, split
            into needs and checked; else 400.
        messages: maximum number of messages in a conversation; else 400.
        conversation_characters: maximum characters of all messages except the question (system
            messages, history, tool results), in which tokens are counted and personal data is
            searched; else 400.
        field_characters: maximum characters of the other fields as JSON, such as tools and their
            schemas; else 400.
        answer_characters: maximum characters of a model's answer, since all is examined; else 502.
        facts_bytes: maximum bytes of a batch of facts; else 413.
        facts_batch: maximum number of facts in a batch.
        header_bytes: maximum bytes of all headers of a request together; else 431.
        header_seconds: maximum seconds for receiving a request's headers; else disconnect.
        body_seconds: maximum seconds for receiving a request's body; else 408.
        send_seconds: maximum seconds for sending a piece of the response; else disconnect.
        idle_seconds: seconds that a connection stays open without a request.
        requests_per_minute: maximum requests per minute and key, in each process; else 429.
        burst: number of requests that a key may send at once before the rate applies.
        at_once: maximum simultaneous requests of one key, in each process; else 429.
        at_once_in_all: maximum simultaneous requests of all keys; else 429 to a tenant that has
            its share of them, which is equal for all tenants with requests. Twice as many at most.
        connections: maximum number of open connections, and at most half of the files that the
            process may open; above it the connection that has been idle for longest is closed.
        threads: number of threads that read, examine and commit, shared by the tenants that
            have work for them; waiting for models is none.
        busy_seconds: maximum seconds that a request waits for others that write in the same
            tenant; else 503. A database that does not answer is given up within three times that
            and 6 seconds.
        tenants: maximum number of relays kept open; the least recently used are closed.
        store_connections: maximum number of connections to a database, in each process.
        keys_seconds: seconds after which a change of the key file is noticed.
        address_keys: whether the address of an artifact opens only while a key of its tenant and
            name is valid for the roles in the address; false if a program makes addresses for
            people without a key.
        page: maximum number of facts or events in a response.
        upstream_bytes: maximum bytes of one response of the upstream server.
        upstream_connections: maximum number of connections to the upstream server.
        upstream_seconds: maximum seconds of one response of the upstream server, however slowly
            it trickles in; else 502.
        ready_seconds: maximum seconds that `/readyz` waits for the store; else 503.
        shutdown_seconds: seconds that running requests may take when the server stops.
        open_metrics: whether `/metrics` is served without a key.
        live_streams: whether a stream may send an answer before its verdict if nothing can
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
    busy_seconds: float = Field(default=10.0, gt=0.0)
    tenants: int = Field(default=64, gt=0)
    store_connections: int = Field(default=16, gt=0)
    keys_seconds: float = Field(default=1.0, ge=0.0)
    address_keys: bool = True
    page: int = Field(default=1_000, gt=0)
    upstream_bytes: int = Field(default=2_000_000, gt=0)
    upstream_connections: int = Field(default=256, gt=0)
    upstream_seconds: float = Field(default=600.0, gt=0.0)
    ready_seconds: float = Field(default=2.0, gt=0.0)
    shutdown_seconds: int = Field(default=20, ge=0)
    open_metrics: bool = False
    live_streams: bool = True

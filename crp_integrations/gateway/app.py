"""The ASGI application: every path with its operations and their OpenAPI description."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from starlette.applications import Starlette
from starlette.routing import Route

from crp_integrations import __version__
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.records import EnvelopePreview
from crp_integrations.fabric.lifecycle import ChangeReport, ErasureReport
from crp_integrations.fabric.records import Fact
from crp_integrations.gateway import chat_completions, resources
from crp_integrations.gateway.admission import (
    MEDIA_TYPE,
    ConcurrencyLimit,
    GatewayMetrics,
    MetricsSource,
    RequestRates,
)
from crp_integrations.gateway.admission import Scope as KeyScope
from crp_integrations.gateway.chat_completions import EVENTS
from crp_integrations.gateway.endpoint import Endpoint, GatewayState, KeyStore, Operation
from crp_integrations.gateway.openapi import ASKING, document
from crp_integrations.gateway.records import (
    ChatRequest,
    Completion,
    FactsPage,
    Health,
    ListedModel,
    ModelList,
    NewFacts,
    SessionTrail,
    StoredFacts,
)
from crp_integrations.gateway.responses import JSON, GatewayRequest, GatewayResponse, json_response
from crp_integrations.gateway.settings import GatewaySettings
from crp_integrations.gateway.tenants import (
    Routed,
    StatesLimits,
    StoreProbe,
    TenantRelays,
    Upstream,
)
from crp_integrations.gateway.worker_threads import WorkerThreads
from crp_integrations.guard.decisions import Subject
from crp_integrations.relay.build import keyring_of
from crp_integrations.relay.defaults import clock as clock_of
from crp_integrations.relay.judge import JUDGE_OPTIONS, Judge
from crp_integrations.relay.judged_answer import asks_later
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.session_admission import require_reader_of
from crp_integrations.relay.settings import JudgeSettings, Settings, load
from crp_integrations.stores.address import is_address, refuse_lost_keys, store_at
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.validation import require_settings
from crp_integrations.vocabulary import SourceKind

REPORTS: Final = "/v1/reports/{window_id}"
RECEIPTS: Final = "/v1/receipts/{receipt_id}"
TRAILS: Final = "/v1/audit/{session_id}"
_TEXT: Final = MappingProxyType({"type": "string"})
_NUMBER: Final = MappingProxyType({"type": "integer", "minimum": 0})
_COUNT: Final = MappingProxyType({"type": "integer", "minimum": 1})
# Path parameters that may contain a slash, since callers choose these ids.
_WITH_SLASHES: Final = ("{fact_id}", "{source_id}", "{model_id}")


def create_app(
    store: str | Path,
    *,
    keys: KeyStore,
    upstream: Upstream | None = None,
    settings: GatewaySettings | None = None,
    options: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Starlette:
    """The gateway over a store, as an ASGI application.

    Args:
        store: folder of the store, or a `postgresql://` address; each tenant has a separate
            namespace in it.
        keys: source of the keys, such as a `KeyFile`.
        upstream: server of the models; None for the extractive model and those of LiteLLM.
        settings: the gateway's limits.
        options: further arguments of `Relay.open`, such as `guard`.
        arguments: fields of the relay's settings, such as `policy`.

    Raises:
        ConfigError: a setting has no usable value, or the policy needs a judge or a reading
            verifier and there is none.
    """
    limits = require_settings(settings, GatewaySettings)
    root = None if is_address(store) else Path(store)
    tree = _with_gateway_addresses(load(root, **arguments))
    _require_reader(tree, options or {})
    # Opened once for all tenants, a database with the login of its address. An unusable folder is
    # reported now, not at the first request.
    shared: Any = (
        store_at(str(store), busy_seconds=limits.busy_seconds, connections=limits.store_connections)
        if root is None
        else SqliteStore(root, busy_seconds=limits.busy_seconds)
    )
    probed: Any = SqliteStore(root, busy_seconds=limits.ready_seconds) if root else shared
    keyring = (options or {}).get("keyring")
    if keyring is None and tree.key is None:
        refuse_lost_keys([shared])
    asked = upstream or Routed(timeout_s=tree.timeout_s)
    # LiteLLM could route to any provider, so only models that the operator named are allowed.
    models = limits.models or ((tree.model,) if isinstance(asked, Routed) else ())

    # A key with scope `ask` must not remove facts: the gateway only counts findings against them,
    # and an operator's relay quarantines.
    life = tree.fabric.lifecycle.model_copy(update={"quarantine": False})
    counting = tree.model_copy(
        update={"fabric": tree.fabric.model_copy(update={"lifecycle": life})}
    )

    listed = asked.context_limit if isinstance(asked, StatesLimits) else None

    def stated(model: str) -> int | None:
        return limits.context_limit or (listed(model) if listed else None)

    def opened(subject: Subject) -> Relay:
        return Relay.open(
            shared,
            subject=subject,
            settings=counting,
            **{"stated_limits": stated, **(options or {})},
        )

    tenants = TenantRelays(opened, limits.tenants)
    state = GatewayState(
        settings=limits,
        keys=keys,
        tenants=tenants,
        upstream=asked,
        models=models,
        rates=RequestRates(limits.requests_per_minute, limits.burst),
        together=ConcurrencyLimit(limits.at_once, limits.at_once_in_all),
        # A database's connections are measured; a folder has none.
        metrics=GatewayMetrics(getattr(shared, "measures", None)),
        probe=StoreProbe(probed.ping),
        clock=clock_of(tree),
        keyring=keyring or keyring_of(tree, root),
    )
    state.metrics.gauge("crp_gateway_requests_running", lambda: state.together.running)
    state.metrics.gauge("crp_gateway_relays_open", lambda: tenants.open)
    watching = (options or {}).get("tracer")
    if isinstance(watching, MetricsSource):
        state.metrics.also(watching)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with WorkerThreads(limits.threads) as threads:
            # `asyncio.to_thread` uses these threads to read, examine and commit turns.
            asyncio.get_running_loop().set_default_executor(threads)
            yield
            await tenants.close()
            await asyncio.to_thread(shared.close)
            await asked.aclose()

    routes = [
        Route(_route_pattern(path), Endpoint(path, methods, state), include_in_schema=False)
        for path, methods in _operation_table().items()
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.router.default = Endpoint("other", {}, state)
    return app


def judge_of(options: Mapping[str, Any], settings: Settings | None = None) -> Judge | None:
    """The judge that `options` of `create_app` define; each relay builds its own from them.

    Args:
        settings: settings with the default judge; None for no default.
    """
    chosen = {name: options[name] for name in JUDGE_OPTIONS if options.get(name) is not None}
    base = settings.judge if settings else None
    if not asks_later(options.get("judge"), chosen, base or JudgeSettings()):
        chosen.pop("on_report", None)
    return Judge.of(options.get("judge"), base, **chosen)


def _require_reader(tree: Settings, options: Mapping[str, Any]) -> None:
    """Raise if the policy needs a judge or verifier and none is configured; callers bring none."""
    if tree.policy:
        judge = judge_of(options, tree)
        require_reader_of("the gateway", {}, judge, tree, options.get("verifier"))


def openapi() -> dict[str, Any]:
    """The OpenAPI document of every gateway."""
    return document(_operation_table())


def _with_gateway_addresses(tree: Settings) -> Settings:
    """The settings with the gateway's own addresses of reports and trails.

    Addresses that the operator has set stay.
    """
    plain = type(tree.headers)()
    addresses: dict[str, str] = {}
    if tree.headers.report_uri == plain.report_uri:
        addresses["report_uri"] = REPORTS
    if tree.headers.trail_uri == plain.trail_uri:
        addresses["trail_uri"] = TRAILS
    return tree.model_copy(update={"headers": tree.headers.model_copy(update=addresses)})


def _route_pattern(path: str) -> str:
    """A path pattern for the router, in which ids that may contain slashes match greedily."""
    for parameter in _WITH_SLASHES:
        path = path.replace(parameter, parameter[:-1] + ":path}")
    return path


async def _health(call: GatewayRequest) -> GatewayResponse:
    return json_response(Health(version=__version__))


async def _readiness(call: GatewayRequest) -> GatewayResponse:
    await call.probe.ask(call.settings.ready_seconds)
    return json_response(Health(version=__version__))


async def _metrics(call: GatewayRequest) -> GatewayResponse:
    return GatewayResponse(200, body=call.metrics.text().encode(), media_type=MEDIA_TYPE)


async def _openapi(call: GatewayRequest) -> GatewayResponse:
    return GatewayResponse(200, body=_document_bytes())


@cache
def _document_bytes() -> bytes:
    # Cached: building takes 20 ms, and anyone may request it without a key.
    return json.dumps(openapi()).encode()


def _operation_table() -> dict[str, dict[str, Operation]]:
    """Every path and method with its operation."""
    ask, store, audit = KeyScope.ASK, KeyScope.FACTS, KeyScope.AUDIT
    kinds = {"type": "string", "enum": [kind.value for kind in SourceKind]}
    filters = {"limit": _COUNT, "after": _TEXT, "source_id": _TEXT, "label": _TEXT, "kind": kinds}
    forms = {"type": "string", "enum": ["json", "ndjson"]}
    # fmt: off
    return {
        "/v1/chat/completions": {"POST": Operation(
            chat_completions.complete_chat, "createChatCompletion",
            "Answer a conversation's last question from the tenant's facts.", ask,
            takes=ChatRequest, gives=Completion, media=(EVENTS,), statuses=(304, *ASKING),
            asks=True)},
        "/v1/models": {"GET": Operation(
            chat_completions.list_models, "listModels", "The models that callers may ask.", ask,
            gives=ModelList)},
        "/v1/models/{model_id}": {"GET": Operation(
            chat_completions.get_model, "getModel", "A model that callers may ask.", ask,
            gives=ListedModel)},
        "/v1/preview": {"POST": Operation(
            chat_completions.preview_envelope, "previewEnvelope",
            "Preview the envelope of a question; no model is called.", ask,
            takes=ChatRequest, gives=EnvelopePreview, statuses=ASKING, asks=True)},
        "/v1/facts": {
            "GET": Operation(
                resources.list_facts, "listFacts", "The tenant's facts by id.", store,
                gives=FactsPage, query=filters),
            "POST": Operation(
                resources.put_facts, "putFacts", "Store facts: the whole batch or nothing.", store,
                takes=NewFacts, gives=StoredFacts, statuses=(409, 422), asks=True, large=True)},
        "/v1/facts/{fact_id}": {
            "GET": Operation(resources.get_fact, "getFact", "A fact.", store, gives=Fact),
            "DELETE": Operation(
                resources.forget_fact, "forgetFact", "Delete a fact.", store,
                gives=ChangeReport, statuses=(409,))},
        "/v1/sources/{source_id}": {"DELETE": Operation(
            resources.erase_source, "eraseSource", "Erase a source and every byte of its facts.",
            store, gives=ErasureReport)},
        REPORTS: {"GET": Operation(
            resources.get_report, "getReport", "The report on a window.", audit, gives=Report)},
        TRAILS: {"GET": Operation(
            resources.get_trail, "getTrail", "The seals and events of a session.", audit,
            gives=SessionTrail, media=(resources.NDJSON,),
            query={"format": forms, "after": _NUMBER})},
        RECEIPTS: {"GET": Operation(
            resources.get_receipt, "getReceipt", "The receipt on a window.", audit,
            media=(JSON,))},
        resources.ROUTE: {"GET": Operation(
            resources.open_artifact, "openArtifact", "The artifact of a signed one-time address.",
            media=("*/*",), statuses=(403, 404, 429, 503), query={"token": _TEXT},
            admit=resources.artifact_key, head=False)},
        "/healthz": {"GET": Operation(
            _health, "getHealth", "Whether the gateway answers.", gives=Health)},
        "/readyz": {"GET": Operation(
            _readiness, "getReadiness", "Whether the store answers too.", gives=Health,
            statuses=(503,))},
        "/metrics": {"GET": Operation(
            _metrics, "getMetrics", "Counts and times for Prometheus.", KeyScope.METRICS,
            media=(MEDIA_TYPE,))},
        "/openapi.json": {"GET": Operation(
            _openapi, "getDocument", "This document.", media=(JSON,))},
    }
    # fmt: on

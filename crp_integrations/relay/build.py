"""The only place that chooses engines, stores and loaders."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from inspect import iscoroutinefunction
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

from crp_integrations.dpe.ports import Recogniser, Verifier
from crp_integrations.engines import hnsw
from crp_integrations.engines.graphs import NetworkxWalker, available_engine
from crp_integrations.engines.guards import guard_of, read_exceptions
from crp_integrations.engines.models import Models, model_object, model_object_name
from crp_integrations.engines.system import RandomIds, clock_of
from crp_integrations.engines.violation_reports import HttpReports
from crp_integrations.envelope.budget import LazyCounter
from crp_integrations.envelope.reuse import KnownEnvelopes
from crp_integrations.errors import (
    AccessDenied,
    ConfigError,
    EngineError,
    StoreDamaged,
    StoreError,
    StoreNewer,
)
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store, Transaction
from crp_integrations.governance.artifacts.storage import ObjectStore
from crp_integrations.governance.settings import ArtifactSettings
from crp_integrations.governance.window_trace import Observer
from crp_integrations.guard.decisions import LOCAL, NAMESPACE, Guard, Subject
from crp_integrations.guard.injection.detection import InjectionDetector
from crp_integrations.guard.ports import InjectionModel, PolicyEngine
from crp_integrations.guard.settings import GuardSettings
from crp_integrations.loaders.documents import load_documents
from crp_integrations.observability.observers import observe_model
from crp_integrations.policy.records import ViolationSink
from crp_integrations.ports import Clock, Ids, KeyRing, Model, Silent, TokenCounter, Tracer
from crp_integrations.relay import settings as settings_file
from crp_integrations.relay.budget import STORE_NAMESPACE, BudgetPlaces, StoreLedger
from crp_integrations.relay.compaction import artifact_eraser
from crp_integrations.relay.defaults import (
    FACT_TOKENIZER_MODEL,
    EmbedderSource,
    RerankerSource,
    chosen_embedder,
    chosen_reranker,
    default_policy,
    default_verifier,
    limits,
    tokenizers,
)
from crp_integrations.relay.defaults import verified_engine as verified_engine
from crp_integrations.relay.judge import Judge, JudgeSource, OnReport, check_receiver
from crp_integrations.relay.judged_answer import asks_later
from crp_integrations.relay.memory import RelayMemory
from crp_integrations.relay.question_fields import check_model_name
from crp_integrations.relay.relay import PendingDeliveries, Relay
from crp_integrations.relay.safeguards import RedactingGuard, quarantine_due, with_exceptions
from crp_integrations.relay.settings import Settings
from crp_integrations.relay.world import (
    COMPONENTS,
    Listeners,
    Places,
    Receiver,
    RelayEngines,
    ReportDelivery,
    Reviewer,
    World,
    check_components,
)
from crp_integrations.stores.address import Lent, is_database, opened_at, refuse_lost_keys
from crp_integrations.stores.files import FolderObjects, MemoryObjects
from crp_integrations.stores.keys import FileKeyRing, FixedKeyRing, MemoryKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore

_LOG = logging.getLogger("crp_integrations.relay")
# Name of the artifact folder within a store's folder.
ARTIFACTS = "artifacts"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayParts:
    """The components of a relay; those that are None are chosen by the settings.

    Attributes:
        guard: decides what the subject may do; or its settings.
        policy: the engine of the control catalogue; a string is a safety policy.
        recognisers: personal-data recognisers, in addition to the package's own.
        models: the model that answers.
        llm: a LangChain chat model, a LlamaIndex LLM or a model name, instead of `models`.
        tracer: opens the spans; an `Observer` also receives windows and model calls.
        violations: receiver of policy violations.
        artifacts: store for bulky texts; or its settings.
        residency: region that is read and written; empty for none.
        shared: a shared namespace, which only its operator opens; empty for the subject's own.
        judge, judge_when, judge_budget, judge_mode, judge_failure: see `Judge`.
        stated_limits: returns the tokens that a model accepts, as its server states them; without
            it, or where it returns None, the known limit of the model's name applies.
    """

    subject: Subject = LOCAL
    guard: Guard | GuardSettings | Mapping[str, Any] | None = None
    embedder: EmbedderSource | None = None
    verifier: Verifier | None = None
    reranker: RerankerSource | None = None
    injections: InjectionModel | None = None
    policy: PolicyEngine | str | None = None
    recognisers: Sequence[Recogniser] = ()
    models: Model | None = None
    llm: object = None
    tracer: Tracer | None = None
    clock: Clock | datetime | str | None = None
    ids: Ids | None = None
    keyring: KeyRing | None = None
    reviewer: Reviewer | None = None
    violations: ViolationSink | None = None
    receiver: Receiver | None = None
    artifacts: ObjectStore | ArtifactSettings | Mapping[str, Any] | None = None
    settings: Settings | None = None
    residency: str = ""
    shared: str = ""
    judge: JudgeSource = None
    judge_when: str | None = None
    judge_budget: int | Mapping[str, Any] | None = None
    judge_mode: str | None = None
    judge_failure: str | None = None
    on_report: OnReport | None = None
    stated_limits: Callable[[str], int | None] | None = None


# Parts named like a setting: a value of one of these types is the setting, any other the part.
_SETTING_TYPES: Final[Mapping[str, tuple[type, ...]]] = MappingProxyType(
    {
        "clock": (datetime, str),
        "policy": (str,),
        "guard": (Mapping, GuardSettings),
        "artifacts": (Mapping, ArtifactSettings),
    }
)
_PART_NAMES: Final = frozenset(part.name for part in fields(RelayParts))
# Parts whose type is checked here; embedder and reranker are checked where they are chosen.
_CHECKED_PARTS: Final = (_PART_NAMES & COMPONENTS.keys()) - {"embedder", "reranker"}


def open_relay(store: str | Path | Store | None = None, **options: Any) -> Relay:
    """Build a relay over a store.

    Args:
        options: fields of `RelayParts`, and settings by name.
    """
    code_verified = verified_engine()
    parts, arguments = _split_options(options)
    check_components(
        store=None if isinstance(store, str | Path) else store,
        **{name: getattr(parts, name) for name in _CHECKED_PARTS},
        recognisers=parts.recognisers,
    )
    check_receiver(parts.on_report)
    opened = opened_at(store)
    with ExitStack() as opening:
        # If anything fails, the stores that were opened here are closed, but not the caller's own.
        if opened is not store:
            opening.callback(opened.close)
        if parts.settings is not None and arguments:
            raise ConfigError(f"settings and {sorted(arguments)[0]!r} were given; give one of them")
        settings = parts.settings or settings_file.load(_root(opened), **arguments)
        regions = {name: opened_at(place) for name, place in settings.regions.items()}
        for region in regions.values():
            opening.callback(region.close)
        relay = _build_relay(parts, settings, {"": opened, **regions}, store, code_verified)
        opening.pop_all()
    return relay


def _split_options(options: Mapping[str, Any]) -> tuple[RelayParts, dict[str, Any]]:
    """Separate options into parts and settings by name."""
    fields_of_parts = {name: value for name, value in options.items() if name in _PART_NAMES}
    arguments = {name: value for name, value in options.items() if name not in _PART_NAMES}
    for name, types in _SETTING_TYPES.items():
        if isinstance(fields_of_parts.get(name), types):
            arguments[name] = fields_of_parts.pop(name)
    parts = RelayParts(**fields_of_parts)
    if parts.llm is not None:
        if parts.models is not None or (isinstance(parts.llm, str) and "model" in arguments):
            raise ConfigError("llm names the model that answers; give it without models and model")
        if not isinstance(parts.llm, str):
            parts = replace(parts, models=model_object(parts.llm, "llm"))
        if parts.settings is None:
            arguments.setdefault("model", model_object_name(parts.llm))
    check_model_name(arguments.get("model"))
    return parts, arguments


def _build_relay(
    parts: RelayParts,
    chosen: Settings,
    stores: Mapping[str, Store],
    lent: object,
    code_verified: bool,
) -> Relay:
    """Build a relay over open stores, keyed by region; it does not close a lent one."""
    opened = stores[""]
    if parts.keyring is None and chosen.key is None:
        refuse_lost_keys([*stores.values()])
    keys = parts.keyring or keyring_of(chosen, _root(opened))
    now = cast("Clock | None", parts.clock) or clock_of(chosen.clock)
    tracer = parts.tracer or Silent()
    observer = tracer if isinstance(tracer, Observer) else None
    engines = _engines(parts, chosen, code_verified)
    objects = {name: _artifacts_in(_root(store)) for name, store in stores.items()}
    objects[""] = cast("ObjectStore | None", parts.artifacts) or _artifacts(chosen, _root(opened))
    own_guard = cast("Guard | None", parts.guard) or guard_of(chosen.guard)
    guard = with_exceptions(own_guard, read_exceptions(chosen.guard), lambda: fabric)
    fabric = Fabric(
        opened,
        chosen_embedder(parts.embedder, chosen),
        _fact_counter(engines.counter_for),
        now,
        keys,
        settings=chosen.fabric,
        tracer=tracer,
        regions={name: store for name, store in stores.items() if name},
        # A database uses its own vector index.
        graphs=None if is_database(opened) else hnsw.available(),
        leiden=available_engine(chosen.fabric.communities.engine),
        elsewhere={
            name: artifact_eraser(stores[name], place, keys) for name, place in objects.items()
        },
        guard=guard,
        redactor=RedactingGuard(chosen.dpe.personal, parts.recognisers),
    )
    places = Places(_bind(fabric, parts, guard, ""), {}, objects, MemoryObjects)
    places = replace(
        places, regions={name: _bind(fabric, parts, guard, name) for name in stores if name}
    )
    if iscoroutinefunction(parts.reviewer):
        raise ConfigError("reviewer is an async function; give a function that returns a bool")
    # An unknown region is refused before anything is written.
    places.of(parts.residency)
    delivery = ReportDelivery(parts.receiver, chosen.reports.capacity) if parts.receiver else None
    sink = parts.violations or HttpReports(chosen.reports)
    world = World(
        places,
        engines,
        Listeners(
            reviewer=parts.reviewer,
            sink=sink,
            receiver=delivery.take if delivery else None,
            observer=observer,
            on_report=None if _judges_later(parts, chosen) else parts.on_report,
        ),
        RelayMemory(KnownEnvelopes(chosen.envelope.reuse)),
        settings=chosen,
        settings_digest=chosen.digest,
        clock=now,
        ids=parts.ids or RandomIds(),
        keyring=keys,
        tracer=tracer,
        budgets=_budget_places(places.namespace, opened, now, keys),
    )
    _maintain(places, chosen, guard, parts.subject)
    own = Models(timeout_s=chosen.timeout_s)
    models = own if parts.models is None else model_object(parts.models, "models")
    deliveries: list[PendingDeliveries] = [delivery] if delivery else []
    if isinstance(sink, HttpReports) and parts.violations is None:
        deliveries.append(sink)
    return Relay(
        world,
        observe_model(models, observer),
        [cast("Store", Lent(place)) if place is lent else place for place in stores.values()],
        load_documents,
        check_model=own.known if parts.models is None else _any_name,
        residency=parts.residency,
        deliveries=deliveries,
    )


def _engines(parts: RelayParts, chosen: Settings, code_verified: bool) -> RelayEngines:
    return RelayEngines(
        counter_for=tokenizers(chosen),
        limit_for=limits(chosen, parts.stated_limits),
        verifier=parts.verifier or default_verifier(chosen.dpe.verifier),
        reranker=chosen_reranker(parts.reranker, chosen),
        policy=cast("PolicyEngine | None", parts.policy)
        or default_policy(registered=chosen.system.domain is not None),
        own_policy=parts.policy is not None,
        recognisers=tuple(parts.recognisers),
        detector=InjectionDetector(chosen.envelope.screening.injection, parts.injections),
        walker=NetworkxWalker(),
        judge=Judge.of(
            parts.judge,
            chosen.judge,
            on_report=parts.on_report if _judges_later(parts, chosen) else None,
            judge_when=parts.judge_when,
            judge_budget=parts.judge_budget,
            judge_mode=parts.judge_mode,
            judge_failure=parts.judge_failure,
        ),
        code_verified=code_verified,
    )


def _budget_places(namespace: Namespace, store: Store, clock: Clock, keys: KeyRing) -> BudgetPlaces:
    """The ledgers of judges: in the tenant's namespace, and in one for the whole store."""

    def beginner(
        begin: Callable[..., AbstractContextManager[Transaction]], *arguments: object
    ) -> Callable[[], AbstractContextManager[Transaction]]:
        def keyed() -> AbstractContextManager[Transaction]:
            # Made before the first row: data without a key counts as a lost key.
            keys.master()
            return begin(*arguments)

        return keyed

    return BudgetPlaces(
        StoreLedger(beginner(namespace.begin, True)),
        StoreLedger(beginner(store.begin, STORE_NAMESPACE)),
        lasting=not isinstance(store, MemoryStore),
        now=clock.now,
    )


def _judges_later(parts: RelayParts, chosen: Settings) -> bool:
    return asks_later(parts.judge, {"judge_mode": parts.judge_mode}, chosen.judge)


def _bind(fabric: Fabric, parts: RelayParts, guard: Guard, region: str) -> Namespace:
    if parts.shared:
        return fabric.bind_shared(parts.shared, guard, residency=region)
    return fabric.bind(parts.subject, guard, residency=region)


def _maintain(places: Places, chosen: Settings, guard: Guard, subject: Subject) -> None:
    """Do the maintenance that is due; most of its errors do not keep the relay from opening.

    A standby, a read-only login or a read-only file can still be opened.

    Spec: CRP-SPEC-009 §8
    """
    fabric = chosen.fabric
    if not fabric.maintain_on_open or not guard.decide(subject, "write", NAMESPACE).allowed:
        return
    for namespace in (places.namespace, *places.regions.values()):
        try:
            # Building the graph takes long; writes and `crp fabric maintain` do it instead.
            namespace.maintain(graph=False)
        except (StoreDamaged, StoreNewer):
            raise
        except (StoreError, AccessDenied, EngineError) as error:
            _LOG.warning("maintenance on opening was put off: %s", error)
        if fabric.lifecycle.quarantine:
            quarantine_due(namespace, fabric.lifecycle)


@contextmanager
def moving_fabric(place: str, model: str = "") -> Iterator[Fabric]:
    """Open a fabric to move a store's vectors to an embedder; they may be another embedder's.

    No namespace is bound: a fabric binds only namespaces of its own embedder.

    Spec: CRP-SPEC-009 §3.4
    """
    with closing(opened_at(place)) as store:
        root = _root(store)
        chosen = settings_file.load(root)
        if chosen.key is None:
            refuse_lost_keys([store])
        yield Fabric(
            store,
            chosen_embedder(model, chosen),
            _fact_counter(tokenizers(chosen)),
            clock_of(chosen.clock),
            keyring_of(chosen, root),
            settings=chosen.fabric,
            graphs=None if is_database(store) else hnsw.available(),
        )


def _root(store: Store) -> Path | None:
    """The folder of a SQLite store; None for any other store."""
    return store.root if isinstance(store, SqliteStore) else None


def _artifacts(settings: Settings, root: Path | None) -> ObjectStore:
    """The artifact store: that of the settings, else the one in the store's folder."""
    if settings.artifacts.place:
        from crp_integrations.engines.obstore import CloudObjects

        return CloudObjects(settings.artifacts.place)
    return _artifacts_in(root)


def _artifacts_in(root: Path | None) -> ObjectStore:
    return MemoryObjects() if root is None else FolderObjects(root / ARTIFACTS)


def _fact_counter(count: Callable[[str], TokenCounter]) -> TokenCounter:
    return LazyCounter(lambda: count(FACT_TOKENIZER_MODEL))


def keyring_of(settings: Settings, root: Path | None) -> KeyRing:
    """The keys of the settings, else of the store's folder, else keys in memory only."""
    if settings.key is not None:
        *retired, key = map(bytes.fromhex, settings.key.get_secret_value().split(","))
        return FixedKeyRing(key, retired=retired)
    return MemoryKeyRing() if root is None else FileKeyRing(root / "keys")


def _any_name(model: str) -> None:
    """Accept every name: a caller's own `Model` decides which ones it answers."""

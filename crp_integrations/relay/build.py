"""The only place that chooses engines, stores and loaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from crp_integrations.dpe.ports import Recogniser, Verifier
from crp_integrations.engines import hnsw
from crp_integrations.engines.graphs import NetworkxWalker, available_engine
from crp_integrations.engines.guards import guard_of, read_exceptions
from crp_integrations.engines.models import Models, model_object, model_object_name
from crp_integrations.engines.system import RandomIds, clock_of
from crp_integrations.engines.violation_reports import HttpReports
from crp_integrations.envelope.budget import LazyCounter
from crp_integrations.envelope.reuse import KnownEnvelopes
from crp_integrations.errors import ConfigError
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
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
from crp_integrations.ports import (
    Clock,
    Ids,
    KeyRing,
    Model,
    Silent,
    TokenCounter,
    Tracer,
)
from crp_integrations.relay import settings as settings_file
from crp_integrations.relay.compaction import artifact_eraser
from crp_integrations.relay.defaults import (
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
from crp_integrations.relay.judge import (
    Judge,
    JudgeSource,
    OnReport,
    check_receiver,
)
from crp_integrations.relay.judged_answer import asks_later
from crp_integrations.relay.question_fields import check_model_name
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.report_delivery import ReportDelivery
from crp_integrations.relay.safeguards import RedactingGuard, quarantine_due, with_exceptions
from crp_integrations.relay.settings import Settings
from crp_integrations.relay.world import Receiver, Reviewer, World, check_components, maintain_due
from crp_integrations.stores.address import is_database, opened_at, refuse_lost_keys
from crp_integrations.stores.files import FolderObjects, MemoryObjects
from crp_integrations.stores.keys import FileKeyRing, FixedKeyRing, MemoryKeyRing
from crp_integrations.stores.sqlite import SqliteStore

# What fact lengths are counted with; o200k and cl100k both come with the default install.
FACT_TOKENIZER_MODEL = "gpt-4"
# Folder of artifacts beside a store's files.
ARTIFACTS = "artifacts"


def open_relay(
    store: str | Path | Store | None = None,
    *,
    subject: Subject = LOCAL,
    guard: Guard | GuardSettings | Mapping[str, Any] | None = None,
    embedder: EmbedderSource | None = None,
    verifier: Verifier | None = None,
    reranker: RerankerSource | None = None,
    injections: InjectionModel | None = None,
    policy: PolicyEngine | str | None = None,
    recognisers: Sequence[Recogniser] = (),
    models: Model | None = None,
    llm: object = None,
    tracer: Tracer | None = None,
    clock: Clock | datetime | str | None = None,
    ids: Ids | None = None,
    keyring: KeyRing | None = None,
    reviewer: Reviewer | None = None,
    violations: ViolationSink | None = None,
    receiver: Receiver | None = None,
    artifacts: ObjectStore | ArtifactSettings | Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    residency: str = "",
    shared: str = "",
    judge: JudgeSource = None,
    judge_when: str | None = None,
    judge_budget: int | Mapping[str, float] | None = None,
    judge_mode: str | None = None,
    judge_failure: str | None = None,
    on_report: OnReport | None = None,
    stated_limits: Callable[[str], int | None] | None = None,
    **arguments: Any,
) -> Relay:
    """Put a relay together.

    Args:
        stated_limits: the tokens that a model accepts, as its server states them; with None, or
            for a result of None, the limit that is known for the model's name.
    """
    code_verified = verified_engine()
    # These arguments have the names of settings, and a plain value is one.
    if isinstance(clock, datetime | str):
        arguments["clock"], clock = clock, None
    if isinstance(policy, str):
        arguments["policy"], policy = policy, None
    if isinstance(guard, Mapping | GuardSettings):
        arguments["guard"], guard = guard, None
    if isinstance(artifacts, Mapping | ArtifactSettings):
        arguments["artifacts"], artifacts = artifacts, None
    if llm is not None:
        if models is not None or (isinstance(llm, str) and "model" in arguments):
            raise ConfigError("llm names the model that answers; give it without models and model")
        if not isinstance(llm, str):
            models = model_object(llm, "llm")
        if settings is None:
            arguments.setdefault("model", model_object_name(llm))
    check_model_name(arguments.get("model"))
    check_components(
        recognisers=recognisers,
        store=None if isinstance(store, str | Path) else store,
        subject=subject,
        guard=guard,
        verifier=verifier,
        injections=injections,
        policy=policy,
        models=models,
        tracer=tracer,
        clock=clock,
        ids=ids,
        keyring=keyring,
        reviewer=reviewer,
        violations=violations,
        receiver=receiver,
        artifacts=artifacts,
        settings=settings,
    )
    opened = opened_at(store)
    root = opened.root if isinstance(opened, SqliteStore) else None
    with ExitStack() as opening:
        # If anything fails, the stores that were opened here are closed, but not the caller's own.
        if opened is not store:
            opening.callback(opened.close)
        if settings is not None and arguments:
            raise ConfigError(f"settings and {sorted(arguments)[0]!r} were given; give one of them")
        chosen = settings or settings_file.load(root, **arguments)
        regions = {name: opened_at(place) for name, place in chosen.regions.items()}
        for region in regions.values():
            opening.callback(region.close)
        if keyring is None and chosen.key is None:
            refuse_lost_keys([opened, *regions.values()])
        keys = keyring or keyring_of(chosen, root)
        now = clock or clock_of(chosen.clock)
        objects = {"": artifacts or _objects(chosen, root)}
        for name, kept_in in regions.items():
            objects[name] = _beside(kept_in.root if isinstance(kept_in, SqliteStore) else None)
        stores: dict[str, Store] = {"": opened, **regions}
        reading = tracer or Silent()
        count = tokenizers(chosen)
        registered = read_exceptions(chosen.guard)
        allowing = with_exceptions(guard or guard_of(chosen.guard), registered, lambda: fabric)
        fabric = Fabric(
            opened,
            chosen_embedder(embedder, chosen),
            _fact_counter(count),
            now,
            keys,
            settings=chosen.fabric,
            tracer=reading,
            regions=regions,
            # A database searches vectors with an index of its own.
            graphs=None if is_database(opened) else hnsw.available(),
            leiden=available_engine(chosen.fabric.communities.engine),
            elsewhere={
                name: artifact_eraser(stores[name], place, keys) for name, place in objects.items()
            },
            guard=allowing,
            redactor=RedactingGuard(chosen.dpe.personal, recognisers),
        )
        observer = tracer if isinstance(tracer, Observer) else None
        handing = ReportDelivery(receiver, chosen.reports.capacity) if receiver else None

        def bound(region: str) -> Namespace:
            if shared:
                return fabric.bind_shared(shared, allowing, residency=region)
            return fabric.bind(subject, allowing, residency=region)

        check_receiver(on_report)
        later = asks_later(judge, {"judge_mode": judge_mode}, chosen.judge)
        world = World(
            namespace=bound(""),
            regions={name: bound(name) for name in regions},
            fleeting=MemoryObjects,
            objects=objects,
            clock=now,
            ids=ids or RandomIds(),
            keyring=keys,
            tracer=reading,
            verifier=verifier or default_verifier(chosen.dpe.verifier),
            counter_for=count,
            limit_for=limits(chosen, stated_limits),
            settings=chosen,
            settings_digest=chosen.digest,
            known=KnownEnvelopes(chosen.envelope.reuse),
            reranker=chosen_reranker(reranker, chosen),
            policy=policy or default_policy(registered=chosen.system.domain is not None),
            recognisers=tuple(recognisers),
            code_verified=code_verified,
            reviewer=reviewer,
            sink=violations or HttpReports(chosen.reports),
            receiver=handing.take if handing else None,
            observer=observer,
            detector=InjectionDetector(chosen.envelope.screening.injection, injections),
            walker=NetworkxWalker(),
            judge=Judge.of(
                judge,
                chosen.judge,
                judge_when=judge_when,
                judge_budget=judge_budget,
                judge_mode=judge_mode,
                judge_failure=judge_failure,
                on_report=on_report if later else None,
            ),
            on_report=None if later else on_report,
        )
        world.namespace_in(residency)
        if chosen.fabric.maintain_on_open and allowing.decide(subject, "write", NAMESPACE).allowed:
            for namespace in (world.namespace, *world.regions.values()):
                maintain_due(namespace)
                if chosen.fabric.lifecycle.quarantine:
                    quarantine_due(namespace, chosen.fabric.lifecycle)
        own = Models(timeout_s=chosen.timeout_s)
        relay = Relay(
            world,
            observe_model(models or own, observer),
            opened,
            load_documents,
            known=own.known if models is None else _any_name,
            residency=residency,
            others=tuple(regions.values()),
            handed=[
                resource
                for resource in (handing, world.sink)
                if resource and resource is not violations
            ],
        )
        opening.pop_all()
    return relay


@contextmanager
def moving_fabric(place: str, model: str = "") -> Iterator[Fabric]:
    """A fabric over a store whose vectors may be another embedder's, to be moved.

    Nothing is bound to it, since a fabric is bound to a namespace of its own embedder only.

    Spec: CRP-SPEC-009 §3.4
    """
    with closing(opened_at(place)) as store:
        root = store.root if isinstance(store, SqliteStore) else None
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


def _objects(settings: Settings, root: Path | None) -> ObjectStore:
    """Where artifacts lie."""
    if settings.artifacts.place:
        from crp_integrations.engines.obstore import CloudObjects

        return CloudObjects(settings.artifacts.place)
    return _beside(root)


def _beside(root: Path | None) -> ObjectStore:
    return MemoryObjects() if root is None else FolderObjects(root / ARTIFACTS)


def _fact_counter(count: Callable[[str], TokenCounter]) -> TokenCounter:
    return LazyCounter(lambda: count(FACT_TOKENIZER_MODEL))


def keyring_of(settings: Settings, root: Path | None) -> KeyRing:
    """The key of the settings, else a store folder's, else one that ends with the process."""
    if settings.key is not None:
        *retired, key = map(bytes.fromhex, settings.key.get_secret_value().split(","))
        return FixedKeyRing(key, retired=retired)
    return MemoryKeyRing() if root is None else FileKeyRing(root / "keys")


def _any_name(model: str) -> None:
    """A caller's own `Model` decides for itself which names it answers."""

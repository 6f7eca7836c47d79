"""Options that several commands share, and functions that open a store, tenant or namespace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from crp_integrations.errors import RequestError, StoreError
from crp_integrations.vocabulary import BudgetTokens as Budget
from crp_integrations.vocabulary import GroundingMode, SourceKind

if TYPE_CHECKING:
    from crp_integrations import Relay
    from crp_integrations.fabric.embedder_migration import ReembedReport
    from crp_integrations.fabric.namespace import Namespace
    from crp_integrations.fabric.ports import Store as FabricStore
    from crp_integrations.fabric.ports.engines import Progress
    from crp_integrations.fabric.records import Source
    from crp_integrations.guard.decisions import Subject
    from crp_integrations.stores.transfer import MoveResult


DEFAULT_STORE = "crp-store"


def group(help: str) -> typer.Typer:
    """A group of commands with plain-text help, as in all of this subpackage."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None)


def read_budget(text: str | None) -> Budget | None:
    """Parse the value of --budget-tokens."""
    if text in (None, "auto", "window"):
        return cast("Budget | None", text)
    if not str(text).isdecimal() or int(str(text)) < 1:
        raise RequestError(f"--budget-tokens is {text!r:.40}, wanted 1 or more, auto or window")
    return int(str(text))


# A string, since a path would turn "" into the current folder.
Store = Annotated[
    str,
    typer.Option("--store", envvar="CRP_STORE", help="Folder of the store."),
]
Kind = Annotated[
    SourceKind | None,
    typer.Option("--kind", help="Kind of source. Default: that of the file's front matter."),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", help="LiteLLM name of the model, or extractive."),
]
BudgetTokens = Annotated[
    str | None,
    typer.Option(
        "--budget-tokens",
        help="Maximum tokens of context; auto: what the question needs; window: all that fits.",
    ),
]
Grounding = Annotated[
    GroundingMode,
    typer.Option("--grounding", help="How far the model may go beyond the context."),
]
Session = Annotated[
    str | None,
    typer.Option("--session", envvar="CRP_SESSION", help="A name that you choose, or an id."),
]
Cache = Annotated[
    str | None,
    typer.Option("--cache", help="Directives such as no-store, max-age=3600 or reuse-ckf."),
]
Policy = Annotated[
    str | None,
    typer.Option("--policy", help="Safety policy, such as 'halt-on CRITICAL; block-pii'."),
]
StrategyName = Annotated[
    str | None,
    typer.Option("--strategy", help="How to dispatch: push, reflexive, hierarchical, … or auto."),
]
Judge = Annotated[
    str | None,
    typer.Option(
        "--judge",
        help="LiteLLM name of the model that checks the answer; self for the answering model.",
    ),
]
JudgeBase = Annotated[
    str | None,
    typer.Option("--judge-base", help="Address of the judge's provider, such as a local server."),
]
JudgeWhen = Annotated[str | None, typer.Option("--judge-when", help="always, doubt or sample:0.1.")]
JudgeFailure = Annotated[
    str | None,
    typer.Option("--judge-failure", help="If the judge fails: report it, or halt the answer."),
]
Continue = Annotated[
    list[str] | None,
    typer.Option("--continue", help="Continuation id of the window to continue; repeatable."),
]
Shared = Annotated[
    str,
    typer.Option("--shared", help="A shared namespace of the store, for the operator."),
]
Residency = Annotated[
    str, typer.Option("--residency", help="A region of the store, with a separate trail.")
]
Tenant = Annotated[
    str, typer.Option("--tenant", help="A tenant of a gateway. Default: the local tenant.")
]
Out = Annotated[str, typer.Option("--out", "-o", help="New file. Default: standard output.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(frozen=True, slots=True)
class StoreScope:
    """The part of a store that a command works on.

    Attributes:
        shared: name of a shared namespace, for the operator; empty for the tenant's namespace.
        residency: name of a region, which is a separate store; empty for the main store.
        tenant: tenant of a gateway, for the operator; empty for the local one.
    """

    store: str = DEFAULT_STORE
    shared: str = ""
    residency: str = ""
    tenant: str = ""


DEFAULT_SCOPE: Final = StoreScope()
_SCOPE_OPTIONS: Final = {"store": Store, "shared": Shared, "residency": Residency, "tenant": Tenant}


def with_scope(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's parameter `scope` by one option for each field of `StoreScope`."""
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.annotation is not StoreScope:
            parameters.append(parameter)
            continue
        parameters += (
            parameter.replace(name=name, annotation=kind, default=getattr(DEFAULT_SCOPE, name))
            for name, kind in _SCOPE_OPTIONS.items()
        )

    @wraps(command)
    def called(**values: Any) -> None:
        scope = StoreScope(**{name: values.pop(name) for name in _SCOPE_OPTIONS})
        command(scope=scope, **values)

    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


# Value of --judge that means the answering model.
OWN: Final = "self"


def judging(
    judge: str | None, base: str | None, when: str | None, failure: str | None
) -> dict[str, Any]:
    """The arguments of `Relay.open` and `ask` for the judge options."""
    if base is not None and judge in (None, OWN):
        raise RequestError("--judge-base needs --judge NAME; give both")
    source: Any = True if judge == OWN else judge
    if base is not None:
        source = {"model": judge, "api_base": base}
    arguments = {"judge": source, "judge_when": when, "judge_failure": failure}
    return {name: value for name, value in arguments.items() if value is not None}


def existing_store(store: str, residency: str = "") -> str:
    """The store's folder; raises if there is no store, so that no command creates an empty one."""
    from crp_integrations.relay.settings import load
    from crp_integrations.stores.address import holds_store

    there = holds_store(store)
    if not there and residency:
        regions = load(None if "://" in store else Path(store)).regions
        region = regions.get(residency.lower())
        there = region is not None and holds_store(str(region))
    if not there:
        raise StoreError(
            f"there is no store at {printable_store(store)!r}; make one with: crp ingest PATH"
        )
    return store


def printable_store(store: str) -> str:
    """A store name that is safe to print: an address is cut to its scheme to hide passwords.

    >>> printable_store("postgresql://me:secret@host/kb"), printable_store("kb")
    ('postgresql://…', 'kb')
    """
    return store.partition("://")[0] + "://…" if "://" in store else store


def subject_of(tenant: str, shared: str) -> Subject:
    """The subject that a command acts as: the given tenant, else the local one."""
    from crp_integrations.guard.decisions import LOCAL, Subject

    if tenant and shared:
        raise RequestError("--tenant and --shared name different namespaces; give one of them")
    return Subject(tenant=tenant) if tenant else LOCAL


def namespace_of(tenant: str, shared: str) -> str:
    """The name under which a store keeps the given tenant or shared namespace."""
    from crp_integrations.fabric.region import stored_name

    subject = subject_of(tenant, shared)
    return stored_name(shared) if shared else subject.tenant


def open_store(name: str) -> FabricStore:
    """Open the folder or database of a name."""
    from crp_integrations.stores.address import place_of
    from crp_integrations.stores.sqlite import SqliteStore

    place = place_of(name)
    return SqliteStore(place) if isinstance(place, Path) else place


def echo_moved(name: str, moved: MoveResult, more: str = "") -> None:
    """Print the result of a copy."""
    from crp_integrations.cli.terminal import plain
    from crp_integrations.markup import counted

    typer.echo(
        f"{plain(name, whole=True)}: {counted(moved.facts, 'fact')}, "
        f"{counted(moved.events, 'event')}, state hash {moved.state_hash}{more}"
    )


@contextmanager
def opened_relay(scope: StoreScope) -> Iterator[Relay]:
    """The relay of an existing store, opened without maintenance."""
    from crp_integrations import Relay

    with Relay.open(
        existing_store(scope.store, scope.residency),
        subject=subject_of(scope.tenant, scope.shared),
        shared=scope.shared,
        residency=scope.residency,
        fabric={"maintain_on_open": False},
    ) as relay:
        if scope.tenant:
            refuse_unknown(relay.fabric, scope.tenant, scope.residency)
        yield relay


@contextmanager
def opened_namespace(scope: StoreScope) -> Iterator[Namespace]:
    """The namespace of an existing store, opened without maintenance."""
    with opened_relay(scope) as relay:
        yield relay.fabric


@contextmanager
def questioned_relay(store: str, tenant: str = "") -> Iterator[Relay]:
    """The relay of an existing store, opened with maintenance, for asking questions."""
    from crp_integrations import Relay

    with Relay.open(existing_store(store), subject=subject_of(tenant, "")) as relay:
        if tenant:
            refuse_unknown(relay.fabric, tenant)
        yield relay


def refuse_unknown(namespace: Namespace, tenant: str, residency: str = "") -> None:
    """Raise if the tenant of a namespace has no data in the store."""
    with namespace.begin(write=False) as transaction:
        written = transaction.facts.generation() or transaction.journal.tip()
    if not written:
        where = f"region {residency!r:.40} of this store" if residency else "this store"
        raise RequestError(f"tenant {tenant!r:.60} has nothing in {where}")


@contextmanager
def reembedding(
    store: str, shared: str, model: str, tenant: str = ""
) -> Iterator[Callable[[Progress], ReembedReport]]:
    """Yield a function that moves a store's namespace to another embedder.

    The old embedder is not needed, so it may be one that is not available here.
    """
    from crp_integrations.fabric.region import check_configured, stored_name
    from crp_integrations.relay.build import moving_fabric

    subject = subject_of(tenant, shared)
    folder = existing_store(store)
    with moving_fabric(folder, model) as fabric:
        if shared:
            check_configured(shared, fabric.settings.shared)
        name = stored_name(shared) if shared else subject.tenant
        if tenant and name not in fabric.store.namespaces():
            raise RequestError(f"tenant {tenant!r:.60} has nothing in this store")
        embedder = fabric.embedder
        yield lambda progress: fabric.reembed(name, embedder, progress)


def sources_named(namespace: Namespace, name: str) -> list[Source]:
    """The sources that a name refers to: an id, a URI, or the path they were ingested from.

    A file of JSON lines has one source per line; its path means all of them. An erased source is
    still found by its former URI.
    """
    from crp_integrations.fabric.records import source_id

    uris = [name]
    # Make a URI of a path as the loaders do, whether or not the file still exists.
    if name.strip() and "\x00" not in name:
        uris.append(Path(name).resolve().as_uri())
    known = {source.source_id: source for source in namespace.sources()}
    for way in (name, *map(source_id, uris)):
        if way in known:
            return [known[way]]
    lines = [s for s in known.values() if any(u and s.uri.startswith(f"{u}#") for u in uris)]
    if not lines:
        raise RequestError(
            f"there is no source {name!r:.80}; give its id, its URI or the path it was "
            "ingested from (crp fabric export lists them)"
        )
    return lines

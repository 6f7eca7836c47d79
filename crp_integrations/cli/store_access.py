"""Stores, tenants and namespaces as commands open them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from crp_integrations.errors import RequestError, StoreError

if TYPE_CHECKING:
    from crp_integrations import Relay
    from crp_integrations.cli.options import StoreScope
    from crp_integrations.fabric.embedder_migration import ReembedReport
    from crp_integrations.fabric.namespace import Namespace
    from crp_integrations.fabric.ports.engines import Progress
    from crp_integrations.fabric.records import Source
    from crp_integrations.guard.decisions import Subject


def existing_store(store: str, residency: str = "") -> str:
    """The store's folder, so that a question never makes a store where there was none."""
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
    """A store as it may be printed: an address may hold a password, so only its kind is left.

    >>> printable_store("postgresql://me:secret@host/kb"), printable_store("kb")
    ('postgresql://…', 'kb')
    """
    return store.partition("://")[0] + "://…" if "://" in store else store


def subject_of(tenant: str, shared: str) -> Subject:
    """Who a command speaks for: a tenant that was named, else the local one."""
    from crp_integrations.guard.decisions import LOCAL, Subject

    if tenant and shared:
        raise RequestError("--tenant and --shared name two namespaces; give one of them")
    return Subject(tenant=tenant) if tenant else LOCAL


@contextmanager
def opened_relay(scope: StoreScope) -> Iterator[Relay]:
    """The relay of a store that is there, as it is: opening it does none of the upkeep."""
    from crp_integrations import Relay

    with Relay.open(
        existing_store(scope.store, scope.residency),
        subject=subject_of(scope.tenant, scope.shared),
        shared=scope.shared,
        residency=scope.residency,
        fabric={"maintain_on_open": False},
    ) as relay:
        _refuse_unknown(relay, scope.tenant, scope.residency)
        yield relay


@contextmanager
def opened_namespace(scope: StoreScope) -> Iterator[Namespace]:
    """The namespace of a store that is there, for who looks after it."""
    with opened_relay(scope) as relay:
        yield relay.fabric


@contextmanager
def questioned_relay(store: str, tenant: str = "") -> Iterator[Relay]:
    """The relay of a store that is there, for who asks it."""
    from crp_integrations import Relay

    with Relay.open(existing_store(store), subject=subject_of(tenant, "")) as relay:
        _refuse_unknown(relay, tenant)
        yield relay


def _refuse_unknown(relay: Relay, tenant: str, residency: str = "") -> None:
    """Check that a tenant who was named has something in the store."""
    if not tenant:
        return
    with relay.fabric.begin(write=False) as transaction:
        written = transaction.facts.generation() or transaction.journal.tip()
    if not written:
        where = f"region {residency!r:.40} of this store" if residency else "this store"
        raise RequestError(f"tenant {tenant!r:.60} has nothing in {where}")


@contextmanager
def reembedding(
    store: str, shared: str, model: str, tenant: str = ""
) -> Iterator[Callable[[Progress], ReembedReport]]:
    """The move of a store's namespace to another embedder; nothing is done before it is called.

    A store of an embedder that this command does not know can be moved all the same: no vector of
    the old one is asked for.
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
    """The sources that a person means: by id, by URI, or by the path they were ingested from.

    A file of JSON lines is many sources, one a line; its path means all of them. An erased source
    has no URI any more and is still found by the one that it had.
    """
    from crp_integrations.fabric.records import source_id

    uris = [name]
    # A path is taken as the loaders take it, whether or not the file is still there.
    if name.strip() and "\x00" not in name:
        uris.append(Path(name).resolve().as_uri())
    known = {source.source_id: source for source in namespace.sources()}
    for way in (name, *map(source_id, uris)):
        if way in known:
            return [known[way]]
    lines = [s for s in known.values() if any(u and s.uri.startswith(f"{u}#") for u in uris)]
    if not lines:
        raise RequestError(
            f"no source is known as {name!r:.80}; give its id, its URI or the path it was "
            "ingested from (crp fabric export lists them)"
        )
    return lines

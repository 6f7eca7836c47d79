"""Opening a store for a command that looks after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from crp_integrations.errors import RequestError, StoreError

if TYPE_CHECKING:
    from crp_integrations.fabric.namespace import Namespace
    from crp_integrations.fabric.progress import Progress
    from crp_integrations.fabric.records import Source
    from crp_integrations.fabric.reembedding import ReembedReport


def existing(store: str) -> str:
    """The store's folder, so that a question never makes a store where there was none.

    Raises:
        ConfigError: what was given is no folder's name.
        StoreError: there is no store, so there is nothing to ask.
    """
    from crp_integrations.relay.build import holds_store

    if not holds_store(store):
        raise StoreError(f"there is no store at {place(store)!r}; make one with: crp ingest PATH")
    return store


def place(store: str) -> str:
    """A store as it may be printed: an address may hold a password, so only its kind is left.

    >>> place("postgresql://me:secret@host/kb"), place("kb")
    ('postgresql://…', 'kb')
    """
    return store.partition("://")[0] + "://…" if "://" in store else store


@contextmanager
def kept(store: str, shared: str) -> Iterator[Namespace]:
    """The namespace of a store that is there, as it is: opening it does none of the upkeep.

    Args:
        shared: name of a shared namespace, for the operator; empty for the local tenant's own.
    """
    from crp_integrations import Relay

    with Relay.open(existing(store), shared=shared, fabric={"maintain_on_open": False}) as relay:
        yield relay.fabric


@contextmanager
def moving(store: str, shared: str, model: str) -> Iterator[Callable[[Progress], ReembedReport]]:
    """The move of a store's namespace to another embedder; nothing is done before it is called.

    A store of an embedder that this command does not know can be moved all the same: no vector of
    the old one is asked for.

    Args:
        model: folder of the embedder's files; empty for the shipped embedder.
    """
    from crp_integrations.fabric.shared import check_configured, stored_name
    from crp_integrations.guard.subjects import LOCAL
    from crp_integrations.relay.build import moving_fabric

    folder = existing(store)
    with moving_fabric(folder, Path(model) if model else None) as fabric:
        if shared:
            check_configured(shared, fabric.settings.shared)
        name = stored_name(shared) if shared else LOCAL.tenant
        embedder = fabric.embedder
        yield lambda progress: fabric.reembed(name, embedder, progress)


def sources_named(namespace: Namespace, name: str) -> list[Source]:
    """The sources that a person means: by id, by URI, or by the path they were ingested from.

    A file of JSON lines is many sources, one a line; its path means all of them. An erased source
    has no URI any more and is still found by the one that it had.

    Raises:
        RequestError: no source has that name.
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

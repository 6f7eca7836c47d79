"""Open a store by its location: a folder, an address, or an object that the caller made."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from crp_integrations.errors import ConfigError, MissingExtra
from crp_integrations.fabric.ports import Store
from crp_integrations.stores.keys import NAMESPACES
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore

SCHEMES = ("postgresql", "postgres")


def is_address(store: object) -> bool:
    """Whether this is an address and not a folder.

    >>> is_address("postgresql://host/kb"), is_address("kb")
    (True, False)
    """
    return isinstance(store, str | Path) and "://" in str(store)


def place_of(store: str | Path | Store | None) -> Path | Store:
    """The store's folder, or the store itself if it is not kept in files."""
    if store is None:
        return MemoryStore()
    if not isinstance(store, str | Path):
        return store
    if is_address(store):
        return store_at(str(store))
    if not str(store).strip():
        raise ConfigError("store is empty; give a folder")
    return Path(store)


def opened_at(store: str | Path | Store | None) -> Store:
    """The store at a location of any kind; it is not accessed yet."""
    place = place_of(store)
    return SqliteStore(place) if isinstance(place, Path) else place


def holds_store(folder: str) -> bool:
    """Whether the store in this folder or database was ever written to."""
    place = place_of(folder)
    if not isinstance(place, Path):
        with closing(place):
            return bool(place.namespaces())
    try:
        return (place / NAMESPACES).is_dir()
    except OSError as error:
        raise ConfigError(f"store {folder!r:.80} cannot be used: {error.strerror}") from error


def is_database(store: Store) -> bool:
    """Whether several machines can open this store; it then keeps no key and searches by itself."""
    return store.name.startswith("postgresql:")


def refuse_lost_keys(stores: Sequence[Store]) -> None:
    """Refuse to open a store without a key if each process would create a key of its own."""
    if any(is_database(store) for store in stores):
        # Each machine that opens the database would seal with a key of its own.
        raise ConfigError(
            "a database keeps no key next to the data it seals; give `keyring`, or set CRP_KEY to "
            "64 hexadecimal digits that every process shares"
        )
    if len(stores) > 1 and not isinstance(stores[0], SqliteStore):
        # A key made in memory would be lost at exit, and the journals could no longer be verified.
        raise ConfigError("regions keep their journals on disk; give a key or a store's folder")


class Lent:
    """A store that its user must not close, for example because several relays share it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def close(self) -> None:
        """Do nothing."""


def store_at(address: str, **options: Any) -> Store:
    """The store at an address."""
    scheme = address.partition("://")[0]
    if scheme not in SCHEMES:
        raise ConfigError(
            f"store {scheme}:// is not supported in this version; give a folder or postgresql://"
        )
    try:
        from crp_integrations.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise MissingExtra("postgres", "a store on PostgreSQL") from error
    return PostgresStore(address, **options)

"""Where a store is: a folder, an address, or an object that the caller made."""

from __future__ import annotations

from pathlib import Path

from crp_integrations.errors import ConfigError, MissingExtra
from crp_integrations.fabric.ports import Store
from crp_integrations.stores.memory import MemoryStore

SCHEMES = ("postgresql", "postgres")


def is_address(store: object) -> bool:
    """Whether this is an address and not a folder.

    >>> is_address("postgresql://host/kb"), is_address("kb")
    (True, False)
    """
    return isinstance(store, str | Path) and "://" in str(store)


def place_of(store: str | Path | Store | None) -> Path | Store:
    """The folder of a store, or the store itself where it is none of files.

    Raises:
        ConfigError: it is neither a folder's name nor an address of PostgreSQL.
        MissingExtra: psycopg is not installed.
    """
    if store is None:
        return MemoryStore()
    if not isinstance(store, str | Path):
        return store
    if is_address(store):
        return store_at(str(store))
    if not str(store).strip():
        raise ConfigError("store is empty; give a folder")
    return Path(store)


def store_at(address: str) -> Store:
    """The store behind an address.

    Raises:
        ConfigError: it is not one of PostgreSQL.
        MissingExtra: psycopg is not installed.
    """
    scheme = address.partition("://")[0]
    if scheme not in SCHEMES:
        raise ConfigError(
            f"store {scheme}:// is not supported in this version; give a folder or postgresql://"
        )
    try:
        from crp_integrations.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise MissingExtra("postgres", "a store on PostgreSQL") from error
    return PostgresStore(address)

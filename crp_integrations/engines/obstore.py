"""Objects in S3, Google Cloud Storage, Azure and compatible stores, through obstore."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from crp_integrations.errors import ConfigError, MissingExtra, StoreError


class CloudObjects:
    """Objects of a bucket; credentials come from the same places as for the cloud's own tools.

    `create` makes the store refuse a name that exists (`If-None-Match: *`), so a signed address
    can be opened only once by any process. With a store that lacks this condition it fails.
    """

    def __init__(self, address: str, **options: Any) -> None:
        """Set the address; nothing is read or written."""
        try:
            from obstore import store
        except ModuleNotFoundError as error:
            raise MissingExtra("artifacts", f"the object store {_shown(address)}") from error
        from obstore.exceptions import BaseError

        try:
            self._store = store.from_url(address, **options)
        except (BaseError, ValueError, TypeError) as error:
            raise ConfigError(
                f"object store {_shown(address)!r} cannot be used by obstore {version('obstore')}: "
                f"{type(error).__name__}; wanted an address such as s3://bucket/prefix"
            ) from error
        self._failures: tuple[type[Exception], ...] = (BaseError, OSError)
        self.name = _shown(address)

    def create(self, key: str, data: bytes) -> bool:
        """Write a new object; false if it exists already."""
        from obstore.exceptions import AlreadyExistsError

        try:
            self._store.put(key, data, mode="create")
        except AlreadyExistsError:
            return False
        except self._failures as error:
            raise self._failed("write", key, error) from error
        return True

    def get(self, key: str) -> bytes | None:
        """An object's bytes; None if there is no such object."""
        try:
            return bytes(self._store.get(key).bytes())
        except FileNotFoundError:
            return None
        except self._failures as error:
            raise self._failed("read", key, error) from error

    def delete(self, key: str) -> None:
        """Remove an object."""
        try:
            self._store.delete(key)
        except FileNotFoundError:
            return
        except self._failures as error:
            raise self._failed("remove", key, error) from error

    def list(self, prefix: str) -> Iterator[str]:
        """Names under a prefix, which matches whole path segments; all are read first."""
        try:
            names = sorted(entry["path"] for page in self._store.list(prefix) for entry in page)
        except self._failures as error:
            raise self._failed("list", prefix, error) from error
        yield from names

    def _failed(self, verb: str, key: str, error: Exception) -> StoreError:
        # The library's own message may contain an address with a signature.
        return StoreError(
            f"cannot {verb} object {key!r:.120} in {self.name}: {type(error).__name__}"
        )


def _shown(address: str) -> str:
    """An address without user info and query, which may contain credentials."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"[:120]

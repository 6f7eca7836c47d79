"""Artifact records, their settings, the tenant's keys, and the port of an object store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field, ValidationError

from crp_integrations.errors import StoreDamaged
from crp_integrations.ports import KeyRing, retired_of
from crp_integrations.records import Part, Record
from crp_integrations.seals import canonical, derive_key, handle_hmac, sha256

TEXT = "text/plain; charset=utf-8"
PREFIX = "artifact:"
PATTERN = r"artifact:[0-9a-f]{32}"
_END = b"\n"
_DIGITS = 32


class Artifact(Record):
    """A text that is kept out of the prompt.

    Spec: Summit §Isolation Strategy

    Attributes:
        kind: `prose`, `log`, `search`, `data`, `summary`, or a tool's own word.
        media_type: that it is served with.
        checksum: `sha256:…` of the content.
        size: bytes of the content.
        sources: ids of items, facts, sources and sessions that it comes from, ascending. Erasing
            one of them erases the artifact.
        labels: access labels that the guard decides on, ascending.
        redacted: kinds of personal data that were taken out before it was kept, ascending.
    """

    SCHEMA = "artifact/1"

    kind: str = Field(min_length=1, max_length=64)
    media_type: str = Field(default=TEXT, pattern=r"^[\x20-\x7e]{1,120}$")
    checksum: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    size: int = Field(ge=0)
    sources: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    redacted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArtifactContent:
    """An artifact with its bytes."""

    ref: str
    artifact: Artifact
    data: bytes

    @property
    def text(self) -> str:
        """The content as text; what is no UTF-8 is replaced."""
        return self.data.decode("utf-8", "replace")


def pack_object(artifact: Artifact, data: bytes, key: bytes) -> tuple[str, bytes]:
    """The handle and the object of an artifact; equal ones get an equal handle under one key."""
    whole = canonical(artifact.model_dump(mode="json")) + _END + data
    return name_object(whole, key), whole


def name_object(whole: bytes, key: bytes) -> str:
    """The handle of an object; without the key nobody can tell which object a handle is of."""
    return PREFIX + handle_hmac(key, whole)[:_DIGITS]


def unpack_object(ref: str, whole: bytes, keys: Iterable[bytes]) -> ArtifactContent:
    """The artifact of an object."""
    artifact = read_header(whole)
    if artifact is None:
        raise StoreDamaged(f"{ref} does not read back; restore it from a copy")
    data = whole.partition(_END)[2]
    if not any(name_object(whole, key) == ref for key in keys) or sha256(data) != artifact.checksum:
        raise StoreDamaged(f"the bytes of {ref} are other ones than were kept; restore them")
    return ArtifactContent(ref, artifact, data)


def read_header(whole: bytes) -> Artifact | None:
    """What an object says of itself, genuine or not; None where it says nothing."""
    try:
        return Artifact.model_validate_json(whole.partition(_END)[0])
    except ValidationError:
        return None


class ObjectStore(Protocol):
    """Bytes by name; safe under threads and between processes.

    A name is parts of `[A-Za-z0-9._-]` with `/` between, none of which begins with a dot.
    """

    @property
    def name(self) -> str:
        """Kind and place for people; no credential."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that is not there yet, whole or not at all.

        Returns:
            False, and nothing changes, where the name is taken. Of several that create one name at
            the same time exactly one gets True.

        Raises:
            StoreError: it could not be written.
        """
        ...

    def get(self, key: str) -> bytes | None:
        """An object's bytes; None where there is none.

        Raises:
            StoreError: it could not be read.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there does nothing.

        Raises:
            StoreError: it could not be removed.
        """
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Names that begin with whole parts, such as `a/b` for `a/b/c`, ascending.

        Raises:
            StoreError: they could not be listed.
        """
        ...


class ArtifactSettings(Part):
    """Where artifacts lie and how long an address opens one.

    Spec: Summit §Privacy & Security

    Attributes:
        place: address of an object store, such as `s3://bucket/prefix`; empty for a folder beside
            the store's files, or memory for a store in memory. Regions keep theirs in their own
            folders.
        url_seconds: that an address holds when its maker names no other time.
        longest_url_seconds: that an address may hold at most.
        clock_skew_seconds: by which the clocks of machines that open addresses may differ; so
            long a used address is remembered after it has expired.
        most_bytes: of one artifact.
    """

    place: str = ""
    url_seconds: int = Field(default=300, ge=1)
    longest_url_seconds: int = Field(default=3_600, ge=1)
    clock_skew_seconds: int = Field(default=300, ge=0)
    most_bytes: int = Field(default=50_000_000, ge=1)


def tenant_keys(keyring: KeyRing, tenant: str, info: bytes) -> list[bytes]:
    """A tenant's keys for one use, oldest first; the last one is that of the present master key."""
    retired = retired_of(keyring)
    return [derive_key(master, salt=tenant, info=info) for master in (*retired, keyring.master())]

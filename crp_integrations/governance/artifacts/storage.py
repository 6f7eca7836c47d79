"""Artifacts of a tenant in an object store, their records, and their signed one-time addresses.

A tenant's folder is named by a hash, so that no tenant name is used as a path. It contains
`objects/<digits>`, an empty `sources/<hash of the source>/<digits>` for each source, which erasure
searches, and `spent/<second>-<nonce>` until the address would have expired.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from pydantic import Field, ValidationError

from crp_integrations.errors import AccessDenied, StoreDamaged, StoreError
from crp_integrations.fabric.records import Moment
from crp_integrations.guard.decisions import Subject
from crp_integrations.ports import Ids, KeyRing, retired_of
from crp_integrations.records import Record
from crp_integrations.seals import (
    ARTIFACT_INFO,
    address_hmac,
    canonical,
    derive_key,
    handle_hmac,
    same,
    sha256,
    sha256_hex,
)

TEXT = "text/plain; charset=utf-8"
PREFIX = "artifact:"
PATTERN = r"artifact:[0-9a-f]{32}"
_HEADER_END = b"\n"


class Artifact(Record):
    """The record of a text that is kept out of the prompt.

    Spec: Summit §Isolation Strategy

    Attributes:
        kind: `prose`, `log`, `search`, `data`, `summary`, or a tool's own word.
        sources: ids of the items, facts, sources and sessions that it was made from, ascending.
            Erasing one of them erases the artifact.
        redacted: kinds of personal data that were removed before it was kept, ascending.
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
        """The content as text; bytes that are not UTF-8 are replaced."""
        return self.data.decode("utf-8", "replace")


def pack_object(artifact: Artifact, data: bytes, key: bytes) -> tuple[str, bytes]:
    """The handle and the object of an artifact; equal ones get an equal handle under one key."""
    whole = canonical(artifact.model_dump(mode="json")) + _HEADER_END + data
    return name_object(whole, key), whole


def name_object(whole: bytes, key: bytes) -> str:
    """The handle of an object; without the key, a handle does not reveal its object."""
    return PREFIX + handle_hmac(key, whole)[:_DIGITS]


def unpack_object(ref: str, whole: bytes, keys: Iterable[bytes]) -> ArtifactContent:
    """The artifact in an object, verified against its handle."""
    artifact = read_header(whole)
    if artifact is None:
        raise StoreDamaged(f"{ref} does not read back; restore it from a copy")
    data = whole.partition(_HEADER_END)[2]
    if not any(name_object(whole, key) == ref for key in keys) or sha256(data) != artifact.checksum:
        raise StoreDamaged(f"the bytes of {ref} are not those that were kept; restore them")
    return ArtifactContent(ref, artifact, data)


def read_header(whole: bytes) -> Artifact | None:
    """The record at the start of an object, not verified; None if it cannot be read."""
    try:
        return Artifact.model_validate_json(whole.partition(_HEADER_END)[0])
    except ValidationError:
        return None


class ObjectStore(Protocol):
    """Bytes by name; safe with several threads and processes.

    A name consists of parts of `[A-Za-z0-9._-]` separated by `/`; no part begins with a dot.
    """

    @property
    def name(self) -> str:
        """Kind and location, for people; without credentials."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that does not exist yet, atomically; return whether it was written."""
        ...

    def get(self, key: str) -> bytes | None:
        """An object's bytes; None if it does not exist."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is ignored."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Names below a folder prefix, such as `a/b` for `a/b/c`, ascending."""
        ...


def tenant_keys(keyring: KeyRing, tenant: str, info: bytes) -> list[bytes]:
    """A tenant's keys for one purpose, oldest first; the last one is of the current master key."""
    retired = retired_of(keyring)
    return [derive_key(master, salt=tenant, info=info) for master in (*retired, keyring.master())]


PATH = "/v1/artifacts/{artifact_id}"
REF = re.compile(PATTERN)
# Maximum length of a token; a longer one is refused before anything is hashed.
_MAX_TOKEN = 4_096
_TOKEN = re.compile(r"([A-Za-z0-9_-]{1,4000})\.([0-9a-f]{64})")
_NONCE_DIGITS = 32


class AddressClaim(Record):
    """The content of an address.

    Spec: Summit §Privacy & Security

    Attributes:
        subject: subject for whom it was made; the guard is asked again when it is opened.
        residency: region that has the artifact; empty for none.
    """

    SCHEMA = "artifact-claim/1"

    ref: str = Field(pattern=f"^{PATTERN}$")
    subject: Subject
    residency: str = ""
    expires_at: Moment
    nonce: str = Field(pattern=f"^[0-9a-f]{{{_NONCE_DIGITS}}}$")


def sign_address(
    ref: str, subject: Subject, keyring: KeyRing, ids: Ids, *, until: datetime, residency: str = ""
) -> tuple[AddressClaim, str]:
    """A claim and its signed address, which has no host."""
    claim = AddressClaim(
        ref=ref,
        subject=subject,
        residency=residency,
        expires_at=until,
        nonce=sha256_hex(ids.new("nonce_"))[:_NONCE_DIGITS],
    )
    encoded = urlsafe_b64encode(claim.model_dump_json().encode()).decode().rstrip("=")
    seal = address_hmac(tenant_keys(keyring, subject.tenant, ARTIFACT_INFO)[-1], encoded)
    path = PATH.format(artifact_id=ref.removeprefix(PREFIX))
    return claim, f"{path}?token={encoded}.{seal}"


def read_address(artifact_id: str, token: str, keyring: KeyRing) -> AddressClaim:
    """The claim of a genuine address, which may have expired."""
    read = _TOKEN.fullmatch(token) if len(token) <= _MAX_TOKEN else None
    try:
        if read is None:
            raise ValueError
        claim = AddressClaim.model_validate_json(
            urlsafe_b64decode(read[1] + "=" * (-len(read[1]) % 4))
        )
    except (ValueError, binascii.Error, ValidationError):
        raise _refusal() from None
    keys = tenant_keys(keyring, claim.subject.tenant, ARTIFACT_INFO)
    # Every key is tried, so that the time reveals nothing; retired keys still verify.
    genuine = [same(address_hmac(key, read[1]), read[2]) for key in keys]
    if not any(genuine) or claim.ref != PREFIX + artifact_id:
        raise _refusal()
    return claim


def expiry_after(now: datetime, seconds: int) -> datetime:
    """Expiry time of an address made now, at a whole second."""
    return now.replace(microsecond=0) + timedelta(seconds=seconds)


def _refusal() -> AccessDenied:
    return AccessDenied("the address opens nothing: it was altered, or never given out")


_DIGITS = 32


def keep_artifact(
    objects: ObjectStore, tenant: str, artifact: Artifact, data: bytes, keys: Sequence[bytes]
) -> str:
    """Keep an artifact and return its handle.

    The marks of its sources are written first, so that no artifact exists which erasing a source
    does not find.
    """
    ref, whole = pack_object(artifact, data, keys[-1])
    earlier = (name_object(whole, key) for key in keys[:-1])
    ref = next(
        (
            earlier_ref
            for earlier_ref in earlier
            if objects.get(_object(tenant, earlier_ref)) is not None
        ),
        ref,
    )
    marks = [_mark(tenant, source, ref) for source in artifact.sources]
    for mark in marks:
        objects.create(mark, b"")
    objects.create(_object(tenant, ref), whole)
    missed = [mark for mark in marks if objects.create(mark, b"")]
    if missed:
        remove_artifact(objects, tenant, ref, artifact.sources)
        raise StoreError(f"{ref} was not kept: something it comes from was erased meanwhile")
    return ref


def find_artifact(
    objects: ObjectStore, tenant: str, ref: str, keys: Sequence[bytes]
) -> ArtifactContent | None:
    """An artifact of a tenant; None if it does not exist."""
    whole = objects.get(_object(tenant, ref))
    return None if whole is None else unpack_object(ref, whole, keys)


def remove_artifact(objects: ObjectStore, tenant: str, ref: str, sources: Iterable[str]) -> None:
    """Erase an artifact, then the marks of its sources."""
    objects.delete(_object(tenant, ref))
    for source in sources:
        objects.delete(_mark(tenant, source, ref))


def list_refs(objects: ObjectStore, tenant: str) -> Iterator[str]:
    """The handles of a tenant's artifacts, ascending."""
    for key in objects.list(f"{_folder(tenant)}/objects"):
        yield PREFIX + key.rpartition("/")[2]


def erase_derived(objects: ObjectStore, tenant: str, sources: Iterable[str]) -> list[str]:
    """Erase every artifact that was made from one of these sources, and return their handles."""
    gone = []
    for source in sources:
        for mark in list(objects.list(f"{_folder(tenant)}/sources/{_hash(source)}")):
            ref = PREFIX + mark.rpartition("/")[2]
            whole = objects.get(_object(tenant, ref))
            objects.delete(_object(tenant, ref))
            if whole is not None:
                gone.append(ref)
                artifact = read_header(whole)
                # A damaged record names no sources; its other marks then lead to nothing.
                remove_artifact(objects, tenant, ref, artifact.sources if artifact else ())
            objects.delete(mark)
    return gone


def erase_tenant(objects: ObjectStore, tenant: str) -> int:
    """Erase everything of a tenant; return how many artifacts there were."""
    gone = 0
    # Objects first: after an interrupted erasure the marks of the remaining ones still exist.
    for part in ("objects", "sources", "spent"):
        for key in list(objects.list(f"{_folder(tenant)}/{part}")):
            objects.delete(key)
            gone += part == "objects"
    return gone


def spend_nonce(objects: ObjectStore, claim: AddressClaim, purpose: str = "") -> bool:
    """Mark an address's nonce as used for one purpose; False if it was used before."""
    second = int(claim.expires_at.timestamp())
    suffix = f"-{purpose}" if purpose else ""
    key = f"{_folder(claim.subject.tenant)}/spent/{second:012d}-{claim.nonce}{suffix}"
    return objects.create(key, b"")


def sweep_nonces(objects: ObjectStore, tenant: str, now: datetime, margin: timedelta) -> None:
    """Remove expired nonces, with a margin for other machines whose clocks are slow."""
    second = int((now - margin).timestamp())
    for key in list(objects.list(f"{_folder(tenant)}/spent")):
        if int(key.rpartition("/")[2].partition("-")[0]) < second:
            objects.delete(key)


def _folder(tenant: str) -> str:
    return _hash(tenant)


def _object(tenant: str, ref: str) -> str:
    return f"{_folder(tenant)}/objects/{ref.removeprefix(PREFIX)}"


def _mark(tenant: str, source: str, ref: str) -> str:
    return f"{_folder(tenant)}/sources/{_hash(source)}/{ref.removeprefix(PREFIX)}"


def _hash(name: str) -> str:
    return sha256_hex(name.encode("utf-8", "surrogatepass"))[:_DIGITS]

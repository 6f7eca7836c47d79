"""Artifacts of a tenant in an object store, and the signed addresses that open them once.

A tenant's folder is named by a hash, so that no name of a tenant is a path. Below it are
`objects/<digits>`, an empty `sources/<hash of the source>/<digits>` for each source, by which
erasure finds them, and `spent/<second>-<nonce>` until the address would have expired.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from pydantic import Field, ValidationError

from crp_integrations.errors import AccessDenied, StoreError
from crp_integrations.fabric.records import Moment
from crp_integrations.governance.artifacts.records import (
    PATTERN,
    PREFIX,
    Artifact,
    ArtifactContent,
    ObjectStore,
    name_object,
    pack_object,
    read_header,
    tenant_keys,
    unpack_object,
)
from crp_integrations.guard.decisions import Subject
from crp_integrations.ports import Ids, KeyRing
from crp_integrations.records import Record
from crp_integrations.seals import ARTIFACT_INFO, address_hmac, same, sha256_hex

PATH = "/v1/artifacts/{artifact_id}"
REF = re.compile(PATTERN)
# Longer ones are nobody's; what is longer is not even hashed.
_LONGEST = 4_096
_TOKEN = re.compile(r"([A-Za-z0-9_-]{1,4000})\.([0-9a-f]{64})")
_NONCE_DIGITS = 32


class AddressClaim(Record):
    """What an address says.

    Spec: Summit §Privacy & Security

    Attributes:
        ref: the artifact's handle.
        subject: for whom it was made; the guard is asked for it again.
        residency: region whose artifact it is; empty for none.
        expires_at: from when on it is refused.
        nonce: spent with the first use.
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
    """A claim, and the address that makes it; the address has no host."""
    claim = AddressClaim(
        ref=ref,
        subject=subject,
        residency=residency,
        expires_at=until,
        nonce=sha256_hex(ids.new("nonce_"))[:_NONCE_DIGITS],
    )
    said = urlsafe_b64encode(claim.model_dump_json().encode()).decode().rstrip("=")
    seal = address_hmac(tenant_keys(keyring, subject.tenant, ARTIFACT_INFO)[-1], said)
    path = PATH.format(artifact_id=ref.removeprefix(PREFIX))
    return claim, f"{path}?token={said}.{seal}"


def read_address(artifact_id: str, token: str, keyring: KeyRing) -> AddressClaim:
    """What a genuine address says, whether it still holds or not."""
    read = _TOKEN.fullmatch(token) if len(token) <= _LONGEST else None
    try:
        if read is None:
            raise ValueError
        claim = AddressClaim.model_validate_json(
            urlsafe_b64decode(read[1] + "=" * (-len(read[1]) % 4))
        )
    except (ValueError, binascii.Error, ValidationError):
        raise _refusal() from None
    keys = tenant_keys(keyring, claim.subject.tenant, ARTIFACT_INFO)
    # Of all keys, so that the time says nothing; what a retired one signed still holds.
    genuine = [same(address_hmac(key, read[1]), read[2]) for key in keys]
    if not any(genuine) or claim.ref != PREFIX + artifact_id:
        raise _refusal()
    return claim


def expiry_after(now: datetime, seconds: int) -> datetime:
    """When an address made now ends, on a whole second."""
    return now.replace(microsecond=0) + timedelta(seconds=seconds)


def _refusal() -> AccessDenied:
    return AccessDenied("the address opens nothing: it was altered, or never given out")


_DIGITS = 32


def keep_artifact(
    objects: ObjectStore, tenant: str, artifact: Artifact, data: bytes, keys: Sequence[bytes]
) -> str:
    """Keep an artifact and return its handle.

    What it comes from is noted first, so that there is never an artifact which erasing does not
    find.
    """
    ref, whole = pack_object(artifact, data, keys[-1])
    earlier = (name_object(whole, key) for key in keys[:-1])
    ref = next((one for one in earlier if objects.get(_object(tenant, one)) is not None), ref)
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
    """An artifact of a tenant; None where there is none."""
    whole = objects.get(_object(tenant, ref))
    return None if whole is None else unpack_object(ref, whole, keys)


def remove_artifact(objects: ObjectStore, tenant: str, ref: str, sources: Iterable[str]) -> None:
    """Take an artifact away, then what it comes from."""
    objects.delete(_object(tenant, ref))
    for source in sources:
        objects.delete(_mark(tenant, source, ref))


def list_refs(objects: ObjectStore, tenant: str) -> Iterator[str]:
    """The handles of a tenant's artifacts, ascending."""
    for key in objects.list(f"{_folder(tenant)}/objects"):
        yield PREFIX + key.rpartition("/")[2]


def erase_derived(objects: ObjectStore, tenant: str, sources: Iterable[str]) -> list[str]:
    """Take away every artifact that comes from one of these, and return their handles."""
    gone = []
    for source in sources:
        for mark in list(objects.list(f"{_folder(tenant)}/sources/{_hash(source)}")):
            ref = PREFIX + mark.rpartition("/")[2]
            whole = objects.get(_object(tenant, ref))
            objects.delete(_object(tenant, ref))
            if whole is not None:
                gone.append(ref)
                artifact = read_header(whole)
                # Of a damaged one the other marks lead nowhere.
                remove_artifact(objects, tenant, ref, artifact.sources if artifact else ())
            objects.delete(mark)
    return gone


def erase_tenant(objects: ObjectStore, tenant: str) -> int:
    """Take away everything that lies there for a tenant; returns how many artifacts that were."""
    gone = 0
    # What artifacts come from goes after them, so that an erasure that was cut short finds them.
    for part in ("objects", "sources", "spent"):
        for key in list(objects.list(f"{_folder(tenant)}/{part}")):
            objects.delete(key)
            gone += part == "objects"
    return gone


def spend_nonce(objects: ObjectStore, claim: AddressClaim, purpose: str = "") -> bool:
    """Spend an address's nonce for one purpose; False when it was spent before."""
    second = int(claim.expires_at.timestamp())
    suffix = f"-{purpose}" if purpose else ""
    key = f"{_folder(claim.subject.tenant)}/spent/{second:012d}-{claim.nonce}{suffix}"
    return objects.create(key, b"")


def sweep_nonces(objects: ObjectStore, tenant: str, now: datetime, margin: timedelta) -> None:
    """Forget expired nonces, but for a margin by which clocks of other machines may be behind."""
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

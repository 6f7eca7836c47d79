"""Where the artifacts of a tenant lie: objects, what they come from, and spent nonces.

A tenant's folder is named by a hash, so that no name of a tenant is a path. Below it are
`objects/<digits>`, an empty `sources/<hash of the source>/<digits>` for each source, by which
erasing finds them, and `spent/<second>-<nonce>` until the address would have expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from crp_integrations.errors import StoreError
from crp_integrations.governance.artifacts.addresses import Claim
from crp_integrations.governance.artifacts.ports import ObjectStore
from crp_integrations.governance.artifacts.records import (
    PREFIX,
    Artifact,
    Content,
    named,
    packed,
    told,
    unpacked,
)
from crp_integrations.seals import sha256_hex

_DIGITS = 32


def keep(
    objects: ObjectStore, tenant: str, artifact: Artifact, data: bytes, keys: Sequence[bytes]
) -> str:
    """Keep an artifact and return its handle.

    What it comes from is noted first, so that there is never an artifact which erasing does not
    find.

    Args:
        keys: of handles, oldest first; what is kept under an earlier one has its handle still.

    Raises:
        StoreError: it could not be kept, or one of its sources was erased meanwhile.
    """
    ref, whole = packed(artifact, data, keys[-1])
    earlier = (named(whole, key) for key in keys[:-1])
    ref = next((one for one in earlier if objects.get(_object(tenant, one)) is not None), ref)
    marks = [_mark(tenant, source, ref) for source in artifact.sources]
    for mark in marks:
        objects.create(mark, b"")
    objects.create(_object(tenant, ref), whole)
    missed = [mark for mark in marks if objects.create(mark, b"")]
    if missed:
        remove(objects, tenant, ref, artifact.sources)
        raise StoreError(f"{ref} was not kept: something it comes from was erased meanwhile")
    return ref


def find(objects: ObjectStore, tenant: str, ref: str, keys: Sequence[bytes]) -> Content | None:
    """An artifact of a tenant; None where there is none.

    Args:
        keys: of handles, in any order.

    Raises:
        StoreDamaged: its bytes are not those that were kept.
    """
    whole = objects.get(_object(tenant, ref))
    return None if whole is None else unpacked(ref, whole, keys)


def remove(objects: ObjectStore, tenant: str, ref: str, sources: Iterable[str]) -> None:
    """Take an artifact away, then what it comes from."""
    objects.delete(_object(tenant, ref))
    for source in sources:
        objects.delete(_mark(tenant, source, ref))


def refs(objects: ObjectStore, tenant: str) -> Iterator[str]:
    """The handles of a tenant's artifacts, ascending."""
    for key in objects.list(f"{_folder(tenant)}/objects"):
        yield PREFIX + key.rpartition("/")[2]


def erase(objects: ObjectStore, tenant: str, sources: Iterable[str]) -> list[str]:
    """Take away every artifact that comes from one of these, and return their handles.

    Args:
        sources: ids of facts, sources, items or sessions.
    """
    gone = []
    for source in sources:
        for mark in list(objects.list(f"{_folder(tenant)}/sources/{_hash(source)}")):
            ref = PREFIX + mark.rpartition("/")[2]
            whole = objects.get(_object(tenant, ref))
            objects.delete(_object(tenant, ref))
            if whole is not None:
                gone.append(ref)
                artifact = told(whole)
                # Of a damaged one the other marks lead nowhere.
                remove(objects, tenant, ref, artifact.sources if artifact else ())
            objects.delete(mark)
    return gone


def erase_all(objects: ObjectStore, tenant: str) -> int:
    """Take away everything that lies there for a tenant; returns how many artifacts that were."""
    gone = 0
    # What artifacts come from goes after them, so that an erasure that was cut short finds them.
    for part in ("objects", "sources", "spent"):
        for key in list(objects.list(f"{_folder(tenant)}/{part}")):
            objects.delete(key)
            gone += part == "objects"
    return gone


def spend(objects: ObjectStore, claim: Claim, what: str = "") -> bool:
    """Use an address's nonce up; False when it was before.

    Args:
        what: a word by which the same nonce can be spent for something else as well.
    """
    second = int(claim.expires_at.timestamp())
    suffix = f"-{what}" if what else ""
    key = f"{_folder(claim.subject.tenant)}/spent/{second:012d}-{claim.nonce}{suffix}"
    return objects.create(key, b"")


def sweep(objects: ObjectStore, tenant: str, now: datetime, margin: timedelta) -> None:
    """Forget the nonces of addresses that have expired.

    Args:
        margin: by which another machine's clock may be behind this one's; until then an address
            that was used must not look unused to it.
    """
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

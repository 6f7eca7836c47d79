"""An evidence bundle: files in a tar.gz with a signed manifest of their hashes.

Equal files give equal bytes: entries are sorted and have no time, owner or mode. The manifest is
signed like receipts, with the tenant's key, in a DSSE envelope.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final

from pydantic import StringConstraints, ValidationError

from crp_integrations.errors import ReceiptBroken, RequestError
from crp_integrations.fabric.records import Moment
from crp_integrations.receipt.canonical import dumps, loads
from crp_integrations.receipt.signed_statement import Signed, keyid_of
from crp_integrations.records import Record
from crp_integrations.seals import canonical, sha256

MANIFEST: Final = "manifest.dsse.json"
MANIFEST_TYPE: Final = "application/vnd.crp-integrations.evidence-manifest+json"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9][A-Za-z0-9._-]{0,99})?")
# Maximum unpacked size of a bundle, so that a small archive cannot fill the memory.
MAX_BYTES: Final = 512 * 1024 * 1024


class BundleManifest(Record):
    """The contents of a bundle.

    Attributes:
        version: version of the package that made it.
        state_hash: state hash of the fabric at that time.
        files: file name → hash.
    """

    SCHEMA = "evidence-manifest/1"

    created_at: Moment
    version: str
    state_hash: str
    files: dict[str, Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]]


def pack_bundle(
    files: Mapping[str, bytes],
    sign: Callable[[str, bytes], Signed],
    *,
    created_at: Moment,
    version: str,
    state_hash: str,
) -> bytes:
    """The bytes of a bundle of named files."""
    for name in files:
        if not _NAME.fullmatch(name) or name == MANIFEST:
            raise RequestError(f"{name!r:.80} is not a valid file name in a bundle")
    manifest = BundleManifest(
        created_at=created_at,
        version=version,
        state_hash=state_hash,
        files={name: sha256(files[name]) for name in sorted(files)},
    )
    signed = sign(MANIFEST_TYPE, dumps(manifest.model_dump(mode="json")))
    whole = {**files, MANIFEST: dumps(signed.to_json())}
    packed = io.BytesIO()
    # The gzip header must have no name and no time either.
    with (
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in sorted(whole):
            member = tarfile.TarInfo(name)
            member.size = len(whole[name])
            archive.addfile(member, io.BytesIO(whole[name]))
    return packed.getvalue()


def unpack_bundle(data: bytes, keys: Sequence[bytes]) -> tuple[BundleManifest, dict[str, bytes]]:
    """A bundle's manifest and files, after checking its signature and every hash."""
    files = _members(data)
    if MANIFEST not in files:
        raise ReceiptBroken("bundle", f"has no {MANIFEST}")
    signed = Signed.from_json(loads(files.pop(MANIFEST), "manifest"), MANIFEST_TYPE, "manifest")
    key = next((key for key in keys if keyid_of(key) == signed.keyid), None)
    if key is None:
        raise ReceiptBroken("manifest", "is not signed by any of the given keys")
    signed.verify(key, "manifest")
    try:
        manifest = BundleManifest.model_validate(loads(signed.payload, "manifest.payload"))
    except ValidationError:
        raise ReceiptBroken("manifest.payload", "is not a manifest") from None
    for name in sorted({*manifest.files, *files}):
        if name not in files:
            raise ReceiptBroken(f"files.{name}", "is missing")
        if name not in manifest.files:
            raise ReceiptBroken(f"files.{name}", "is not in the manifest")
        if sha256(files[name]) != manifest.files[name]:
            raise ReceiptBroken(f"files.{name}", "differs from what was signed")
    return manifest, files


def _members(data: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    left = MAX_BYTES
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for member in archive:
                left -= member.size
                if not member.isreg() or not _NAME.fullmatch(member.name) or left < 0:
                    raise ReceiptBroken("bundle", "has an odd file type or name, or is too large")
                if member.name in files:
                    raise ReceiptBroken("bundle", f"has {member.name!r:.80} twice")
                content = archive.extractfile(member)
                files[member.name] = content.read() if content is not None else b""
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ReceiptBroken("bundle", f"cannot be unpacked: {type(error).__name__}") from None
    return files


def json_lines(records: Sequence[Record]) -> bytes:
    """Records as lines of canonical JSON."""
    return b"".join(canonical(record.model_dump(mode="json")) + b"\n" for record in records)

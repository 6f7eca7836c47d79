"""Signed addresses: who may open which artifact until when, once.

An address is a claim in base64url and its HMAC under a key of the tenant's. Nothing in it is
secret; whoever holds it may use it, so it is short-lived and its nonce is spent with the first use.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime, timedelta

from pydantic import Field, ValidationError

from crp_integrations.errors import AccessDenied
from crp_integrations.fabric.records import Moment
from crp_integrations.governance.artifacts.keys import keys_of
from crp_integrations.governance.artifacts.records import PATTERN, PREFIX
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


class Claim(Record):
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


def signed(
    ref: str, subject: Subject, keyring: KeyRing, ids: Ids, *, until: datetime, residency: str = ""
) -> tuple[Claim, str]:
    """A claim, and the address that makes it; the address has no host.

    Args:
        ids: of a source that nobody can guess.
    """
    claim = Claim(
        ref=ref,
        subject=subject,
        residency=residency,
        expires_at=until,
        nonce=sha256_hex(ids.new("nonce_"))[:_NONCE_DIGITS],
    )
    said = urlsafe_b64encode(claim.model_dump_json().encode()).decode().rstrip("=")
    seal = address_hmac(keys_of(keyring, subject.tenant, ARTIFACT_INFO)[-1], said)
    path = PATH.format(artifact_id=ref.removeprefix(PREFIX))
    return claim, f"{path}?token={said}.{seal}"


def claimed(artifact_id: str, token: str, keyring: KeyRing) -> Claim:
    """What a genuine address says, whether it still holds or not.

    Args:
        artifact_id: of the address's path.

    Raises:
        AccessDenied: it was altered, is of another artifact, or was never given out; does not say
            which.
    """
    read = _TOKEN.fullmatch(token) if len(token) <= _LONGEST else None
    try:
        if read is None:
            raise ValueError
        claim = Claim.model_validate_json(urlsafe_b64decode(read[1] + "=" * (-len(read[1]) % 4)))
    except (ValueError, binascii.Error, ValidationError):
        raise _refused() from None
    keys = keys_of(keyring, claim.subject.tenant, ARTIFACT_INFO)
    # Of all keys, so that the time says nothing; what a retired one signed still holds.
    genuine = [same(address_hmac(key, read[1]), read[2]) for key in keys]
    if not any(genuine) or claim.ref != PREFIX + artifact_id:
        raise _refused()
    return claim


def until(now: datetime, seconds: int) -> datetime:
    """When an address made now ends, on a whole second."""
    return now.replace(microsecond=0) + timedelta(seconds=seconds)


def _refused() -> AccessDenied:
    return AccessDenied("the address opens nothing: it was altered, or never given out")

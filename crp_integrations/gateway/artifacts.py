"""`/v1/artifacts`: what a signed address opens, once and until it expires.

The address is the permission: no bearer key is asked for. It names tenant and subject under a
seal, and is let in as a key that reaches this one artifact would be; the guard is asked again, and
so is the list of keys, since an address says which roles the subject had when it was made. A HEAD
is refused, since whoever only looks must not use the address up.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import parse_qsl

from starlette.types import Scope

from crp_integrations.errors import RequestError
from crp_integrations.gateway.answers import Answered, refusal
from crp_integrations.gateway.calls import Call
from crp_integrations.gateway.door import House
from crp_integrations.gateway.keys import Key
from crp_integrations.governance.artifacts.storage import PATH, read_address

ROUTE: Final = PATH
_KEY_DIGITS: Final = 12
# Of a key that is none: no secret has this hash.
_NO_SECRET: Final = "sha256:" + "0" * 64
# A page of another origin cannot show it, and a browser runs nothing in it.
_HEADERS: Final = {
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Referrer-Policy": "no-referrer",
}


def admitted(house: House, scope: Scope) -> Key:
    """Who a genuine address lets in, whether it still holds or not.

    Raises:
        AccessDenied: it was altered, or never given out.
    """
    query = scope.get("query_string", b"").decode("latin-1")
    token = dict(parse_qsl(query)).get("token", "")
    claim = read_address((scope.get("path_params") or {})["artifact_id"], token, house.keyring)
    subject = claim.subject
    return Key(
        # Its own rate, and its own name in the log.
        key_id=claim.nonce[:_KEY_DIGITS],
        tenant=subject.tenant,
        name=subject.name,
        roles=subject.roles,
        scopes=(),
        secret_hash=_NO_SECRET,
        created_at=house.clock.now(),
    )


async def opened(call: Call) -> Answered:
    """The artifact of a signed address.

    Spec: Summit §Privacy & Security
    """
    call.only("token")
    artifact_id, token = call.path["artifact_id"], call.query.get("token", "")
    claim = read_address(artifact_id, token, call.relay.keyring)
    sandbox = call.relay.sandbox(residency=claim.residency)
    held = call.holds if call.settings.address_keys else lambda subject: True
    try:
        content = await asyncio.to_thread(sandbox.open, artifact_id, token, held=held)
    except RequestError:
        return refusal(404, "unknown_artifact", f"no artifact is kept as {artifact_id!r:.60}")
    return Answered(200, _HEADERS, content.data, content.artifact.media_type)

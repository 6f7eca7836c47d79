"""Nonces that a relay gives out with a policy, and takes back with a request.

Spec: related facts §3
"""

from __future__ import annotations

from typing import Final

from crp_integrations.errors import RequestError
from crp_integrations.policy.policy_text import RANDOM_BYTES, check_nonce, make_nonce
from crp_integrations.policy.records import Policy
from crp_integrations.ports import retired_of
from crp_integrations.relay.world import World
from crp_integrations.seals import derive_key, sha256_hex

NONCE_KEY_INFO: Final = b"crp-safety-nonce-key-v1"


def given(policy: Policy, world: World) -> str:
    """A new nonce, bound to a policy."""
    # The ids come from a source that nobody can guess; of one in tests nothing else is asked.
    chance = bytes.fromhex(sha256_hex(world.ids.new("nonce_")))[:RANDOM_BYTES]
    return make_nonce(policy, random=chance, key=_keys(world)[-1])


def checked(nonce: str, policy: Policy, world: World) -> None:
    """Refuse a nonce that was not given out for exactly this policy.

    Raises:
        RequestError: it was not, or is malformed.
    """
    refused: RequestError | None = None
    # A nonce of an earlier key is as good, for it was given out by the same operator.
    for key in reversed(_keys(world)):
        try:
            check_nonce(nonce, policy, key=key)
        except RequestError as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise refused


def _keys(world: World) -> list[bytes]:
    keyring, tenant = world.keyring, world.namespace.subject.tenant
    retired = retired_of(keyring)
    masters = (*retired, keyring.master())
    return [derive_key(master, salt=tenant, info=NONCE_KEY_INFO) for master in masters]

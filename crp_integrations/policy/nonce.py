"""Nonces that bind a request to the policy that was in force when they were given out.

Spec: related facts §3
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from crp_integrations.errors import RequestError
from crp_integrations.policy.records import Policy
from crp_integrations.policy.render import policy_hash
from crp_integrations.seals import policy_nonce, same

PREFIX: Final = "base64:"
RANDOM_BYTES: Final = 16
_SEAL_BYTES: Final = 32


def nonce_for(policy: Policy, *, random: bytes, key: bytes) -> str:
    """A nonce for a policy.

    Spec: related facts §3

    Args:
        random: 16 bytes that nobody can guess.
        key: the secret that the nonce is checked with.

    Returns:
        `base64:` and 64 characters: the random bytes, and their seal with the policy's hash.

    Raises:
        ValueError: there are not 16 random bytes, or the key is empty.
    """
    if len(random) != RANDOM_BYTES or not key:
        raise ValueError(
            f"{len(random)} random bytes and a key of {len(key)}; wanted {RANDOM_BYTES} and a key"
        )
    sealed = policy_nonce(key, random=random, policy_hash=policy_hash(policy))
    return PREFIX + base64.b64encode(random + bytes.fromhex(sealed)).decode()


def check_nonce(nonce: str, policy: Policy, *, key: bytes) -> None:
    """Whether a nonce was given out for exactly this policy.

    Spec: related facts §3

    Raises:
        RequestError: it was not, or is malformed; both are 400.
    """
    try:
        given = base64.b64decode(nonce.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        given = b""
    # The whole text is compared, so a nonce has one spelling.
    wanted = len(given) == RANDOM_BYTES + _SEAL_BYTES
    if not wanted or not same(nonce, nonce_for(policy, random=given[:RANDOM_BYTES], key=key)):
        raise RequestError(
            "the safety nonce does not belong to this policy; send the one that came with it"
        )

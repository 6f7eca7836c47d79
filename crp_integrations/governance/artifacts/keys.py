"""The keys of a tenant's artifacts, made from those of the store."""

from __future__ import annotations

from crp_integrations.ports import KeyRing, retired_of
from crp_integrations.seals import derive_key


def keys_of(keyring: KeyRing, tenant: str, info: bytes) -> list[bytes]:
    """A tenant's keys for one use, oldest first; the last one is that of the present master key.

    Args:
        info: names the use, as `crp_integrations.seals` has them.
    """
    retired = retired_of(keyring)
    return [derive_key(master, salt=tenant, info=info) for master in (*retired, keyring.master())]

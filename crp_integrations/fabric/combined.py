"""One state hash for a tenant's own namespace together with the shared ones."""

from __future__ import annotations

from collections.abc import Iterable

from crp_integrations.seals import sha256


def combined(own: str, shared: Iterable[str]) -> str:
    """Hash the sorted state hashes, joined with `|`; without shared ones the own hash as it is.

    Spec: CRP-SPEC-009 §9.2 (decision E13)

    Args:
        own: state hash of the tenant's namespace.
        shared: state hash of each shared namespace that the tenant reads.

    Returns:
        `sha256:` and 64 hexadecimal digits.

    >>> combined("sha256:b", ["sha256:c", "sha256:a"]) == sha256("sha256:a|sha256:b|sha256:c")
    True
    >>> combined("sha256:b", [])
    'sha256:b'
    """
    others = list(shared)
    return sha256("|".join(sorted([own, *others]))) if others else own

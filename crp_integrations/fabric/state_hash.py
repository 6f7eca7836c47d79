"""The state hash: one value that changes whenever what can be retrieved changes."""

from __future__ import annotations

from collections.abc import Iterable

from crp_integrations.seals import sha256


def state_hash(items: Iterable[tuple[str, str, str]]) -> str:
    """Hash the sorted `id:content_hash:status` of every retrievable fact, joined with `|`.

    Spec: CRP-SPEC-009 §6.1

    The content hash enters as it is stored, `sha256:` and the digits included. Sorting is by
    code point. A fabric without facts has the hash of the empty text.

    Args:
        items: id, content hash and status of each ACTIVE or STALE fact, in any order.

    Returns:
        `sha256:` and 64 hexadecimal digits.

    >>> state_hash([("b", "sha256:2", "STALE"), ("a", "sha256:1", "ACTIVE")]) == sha256(
    ...     "a:sha256:1:ACTIVE|b:sha256:2:STALE"
    ... )
    True
    """
    return sha256("|".join(sorted(":".join(item) for item in items)))

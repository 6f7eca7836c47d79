"""The hash of an envelope's set of facts (`etag@1`), or one that a session salts."""

from __future__ import annotations

from collections.abc import Iterable

from crp_integrations.seals import sha256

ETAG = "etag@1"
SALTED_ETAG = "etag-salted@1"


def etag(fact_ids: Iterable[str], salt: str = "") -> str:
    """Hash a set of fact ids; their order has no influence.

    Spec: CRP-SPEC-003 §7.5, §16.2

    Args:
        fact_ids: ids of the included facts, each once.
        salt: a secret of the session, empty for the specification's plain hash. With one, equal
            sets have different hashes in different sessions (decision E22).

    Returns:
        `sha256:` and 64 hexadecimal digits.
    """
    ids = sorted(fact_ids)
    plain = "|".join(ids) + "|" + str(len(ids))
    return sha256(f"{salt}|{plain}" if salt else plain)

"""The hash of an envelope's set of facts (`etag@1`)."""

from __future__ import annotations

from collections.abc import Iterable

from crp_integrations.seals import sha256

ETAG = "etag@1"


def etag(fact_ids: Iterable[str]) -> str:
    """Hash a set of fact ids; their order has no influence.

    Spec: CRP-SPEC-003 §7.5

    Args:
        fact_ids: ids of the included facts, each once.

    Returns:
        `sha256:` and 64 hexadecimal digits.
    """
    ids = sorted(fact_ids)
    return sha256("|".join(ids) + "|" + str(len(ids)))

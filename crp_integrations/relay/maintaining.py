"""What time has made due in a namespace, done where a relay opens it."""

from __future__ import annotations

import logging

from crp_integrations.errors import (
    AccessDenied,
    EngineError,
    StoreDamaged,
    StoreError,
    StoreNewer,
)
from crp_integrations.fabric.namespace import Namespace

_LOG = logging.getLogger("crp_integrations.relay")


def maintain_due(namespace: Namespace) -> None:
    """Do what is due; what stands in the way of it keeps nobody out.

    A standby, a login or a file that is only read can still be looked into.

    Spec: CRP-SPEC-009 §8

    Raises:
        StoreDamaged, StoreNewer: the store cannot be read either.
    """
    try:
        # Opening does not wait for a graph; writing builds it, and so does `crp fabric maintain`.
        namespace.maintain(graph=False)
    except (StoreDamaged, StoreNewer):
        raise
    except (StoreError, AccessDenied, EngineError) as error:
        _LOG.warning("maintenance on opening was put off: %s", error)

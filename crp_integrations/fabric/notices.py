"""Where notices go when nobody asked for them: the log, with ids alone."""

from __future__ import annotations

import logging

from crp_integrations.fabric.records import Notice

_LOG = logging.getLogger("crp_integrations.fabric")


def log_notice(notice: Notice) -> None:
    """Tell the log; a quarantine needs a person, so it is a warning.

    Spec: CRP-SPEC-009 §8.4

    The reason is left out: it may say what the facts say.
    """
    level = logging.WARNING if notice.kind == "quarantined" else logging.INFO
    _LOG.log(
        level,
        "%s: source %s of namespace %s; facts %s, stale %s, returned %s",
        notice.kind,
        notice.source_id,
        notice.namespace,
        ", ".join(notice.facts) or "none",
        ", ".join(notice.stale) or "none",
        ", ".join(notice.returned) or "none",
    )

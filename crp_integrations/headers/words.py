"""Closed word lists that stand in headers alone; the others are in `vocabulary`."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """What an agent is doing, in the order of its work.

    Spec: related facts §3
    """

    ANALYZE = "ANALYZE"
    PLAN = "PLAN"
    GENERATE = "GENERATE"
    EVALUATE = "EVALUATE"
    CRITIQUE = "CRITIQUE"
    REFINE = "REFINE"
    INTEGRATE = "INTEGRATE"
    COMPLETE = "COMPLETE"


class Retry(StrEnum):
    """What must happen before a withheld answer may be asked for again.

    Spec: related facts §3
    """

    OVERSIGHT = "oversight-required"
    NEW_SESSION = "new-session-required"

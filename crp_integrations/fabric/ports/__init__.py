"""Interfaces that stores and libraries implement for the fabric.

A store is a set of namespaces. A transaction belongs to one namespace, sees and changes
nothing outside it, and commits all its facets together or none. Read `facts`, `store`, `engines`.
"""

from crp_integrations.fabric.ports.engines import CommunityEngine, GraphEngine, GraphIndex, Notify
from crp_integrations.fabric.ports.facts import FactBrief, FactOutline, FactsFacet, LogMark
from crp_integrations.fabric.ports.store import (
    Cache,
    CachedFile,
    DerivedContent,
    Store,
    Transaction,
    WindowRecordsFacet,
    build_due_index,
    must_write,
    window_records_of,
    work_lock,
)

__all__ = [
    "Cache",
    "CachedFile",
    "CommunityEngine",
    "DerivedContent",
    "FactBrief",
    "FactOutline",
    "FactsFacet",
    "GraphEngine",
    "GraphIndex",
    "LogMark",
    "Notify",
    "Store",
    "Transaction",
    "WindowRecordsFacet",
    "build_due_index",
    "must_write",
    "window_records_of",
    "work_lock",
]

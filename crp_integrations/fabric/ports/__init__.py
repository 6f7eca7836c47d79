"""What the fabric needs of a store and of libraries.

A store is a set of namespaces. A transaction belongs to one namespace, sees and changes
nothing outside it, and commits all its facets together or none. Read `facts`, `store`, `shown`,
`engines`.
"""

from crp_integrations.fabric.ports.engines import (
    CommunityEngine,
    GraphEngine,
    GraphIndex,
    LexicalEngine,
    LexicalIndex,
    Notify,
)
from crp_integrations.fabric.ports.facts import Brief, FactsFacet, Mark, Outline
from crp_integrations.fabric.ports.shown import ShownFacet, shown_in
from crp_integrations.fabric.ports.store import (
    Cache,
    Cached,
    Elsewhere,
    Found,
    Store,
    Transaction,
    alone_in,
    must_write,
    settled_in,
)

__all__ = [
    "Brief",
    "Cache",
    "Cached",
    "CommunityEngine",
    "Elsewhere",
    "FactsFacet",
    "Found",
    "GraphEngine",
    "GraphIndex",
    "LexicalEngine",
    "LexicalIndex",
    "Mark",
    "Notify",
    "Outline",
    "ShownFacet",
    "Store",
    "Transaction",
    "alone_in",
    "must_write",
    "settled_in",
    "shown_in",
]

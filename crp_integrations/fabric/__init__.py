"""The contextual knowledge fabric: facts, their vectors, their sources, and one read path.

Spec: CRP-SPEC-009

The fabric takes documents from a loader (or facts made by hand) and returns facts, vectors, search
hits and the state hash, through a `Namespace` bound to a tenant, a subject and a guard.

Read in this order: `records` (what is stored), `ports` (what a store and the engines must do),
`settings` (every number), `search` (the in-memory state and the search over it), `state_hash`
(one hash over all retrievable facts), `region` (a store with its engines), `namespace_reader` (one
namespace as one subject sees it), `view` (its layers), `session_memory`, `namespace_writer` (what
all changes share), `ingest` (documents become stored facts), `lifecycle`, `fact_changes`,
`erasure`, `maintenance` (later changes to stored facts), `community_detection`, `inspection`,
`namespace`, and `fabric`, the entry point.
"""

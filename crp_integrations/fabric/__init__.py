"""The contextual knowledge fabric: facts, their vectors, their sources, and one read path.

Spec: CRP-SPEC-009

Documents from a loader (or facts made by hand) come in; facts, vectors, search hits and the state
hash come out, through a `Namespace` bound to a tenant, a subject and a guard.

Read in this order: `records` (what is stored), `ports` (what a store and the engines must do),
`settings` (every number), `search` (what is kept in memory, and the search over it), `state_hash`
(one value for what can be retrieved), `region` (a store with its engines), `namespace_reader` (one
namespace as one subject sees it), `view` (its layers), `session_memory`, `namespace_writer` (what
every change shares), `ingest` (documents become stored facts), `lifecycle`, `fact_changes`,
`erasure`, `maintenance` (what happens to a stored fact), `community_detection`, `inspection`,
`namespace`, and `fabric`, which binds it all.
"""

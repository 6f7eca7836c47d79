"""The contextual knowledge fabric: facts, their vectors, their sources, and one way to read.

Spec: CRP-SPEC-009

In come documents from a loader (or facts made by hand); out go facts, vectors, search hits
and the state hash, through a `Namespace` bound to a tenant, a subject and a guard.

Read in this order: `records` (what is stored), `ports` (what a store and the engines must do),
`settings` (every number), `ingest` (documents become stored facts), `search` (what is kept in
memory, and the search over it), `state_hash`, `epoch` and `combined` (one value for what can be
retrieved), `life` (what happens to a fact afterwards), `communities`, `reembedding` and `coming`
(another embedder), `reading`, `view` and `shared` (what a subject may see), `health`, `export` and
`inspection`, `operations` and `namespace` (one door to all of it), `fabric` (where namespaces
come from).

The room never opens a file or a connection, never reads the clock, and never returns a fact
that is deleted, quarantined, of another tenant or withheld by the guard.
"""

"""The contextual knowledge fabric: facts, their vectors, their sources, and one way to read.

Spec: CRP-SPEC-009

In come documents from a loader (or facts made by hand); out go facts, vectors, search hits
and the state hash, through a `Namespace` bound to a tenant, a subject and a guard.

Read in this order: `records` (what is stored), `ports` (what a store must do), `chunking`
and `importance` (a document becomes facts), `changes` and `ingestion` (facts become stored),
`index` (exact vector search), `state_hash`, `namespace` (the reads), `fabric` (where
namespaces come from), `settings` (every number).

The room never opens a file or a connection, never reads the clock, and never returns a fact
that is deleted, quarantined, of another tenant or withheld by the guard.
"""

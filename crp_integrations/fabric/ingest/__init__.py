"""From documents, or facts made by hand, to stored facts with vectors.

Spec: CRP-SPEC-009 §4

In come documents from a loader, or facts under their owner's ids; out goes one committed batch,
whole or not at all.

Read in this order: `grouping` and `chunking` (a document becomes passages), `decomposition`
(a passage becomes facts), `importance`, `listing` (the passages of one document, read as often as
wanted), `changes` (what of them the store lacks), `batch`, `embedding`, `inserting` and
`ingestion` (the step as a whole); `metadata`, `given`, `collected` and `putting` for facts that
come one by one.
"""

"""Documents, or facts made by hand, become stored facts with vectors.

Spec: CRP-SPEC-009 §4

Documents from a loader, or facts under their owner's ids, come in; one committed batch comes out,
whole or not at all.

Read in this order: `chunker` (a document becomes passages), `document_passages` (passages become
facts), `fact_preparation` (checks, importance, vectors), `ingestion_plan` (what the store lacks),
`ingestion` (the step as a whole); `fact_upsert` for facts that come one by one.
"""

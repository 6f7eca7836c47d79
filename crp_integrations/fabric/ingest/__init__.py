"""Ingestion: documents, or facts made by hand, become stored facts with vectors.

Spec: CRP-SPEC-009 §4

Ingestion takes documents from a loader, or facts with ids chosen by the caller, and commits them
as one batch, all or nothing.

Read in this order: `chunker` (a document becomes passages), `document_passages` (passages become
facts), `fact_preparation` (checks, importance, vectors), `ingestion_plan` (what has to change in
the store), `ingestion` (the whole process); `fact_upsert` for facts with ids of their own.
"""

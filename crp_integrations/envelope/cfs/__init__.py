"""Context assembly of CFS-021: retrieved chunks, grouped by document, packed, with markers.

In: a question and a view of the fabric, or a caller's own retrieval results; a token budget, a
tokenizer, settings and the time. Out: an `AssembledContext` with its text, its chunks, the tokens
of content and of markers apart, what was left out and why, and the five desired properties as
measured.

Read `records`, `search` (the one file that calls the fabric), `assembly` (the whole path
on one screen), then its step `pack`.

It is another assembler than the envelope of CRP-SPEC-003 beside it: chunks are grouped by
document and marked with its path, and no quality tier is given. The room never reads a clock,
and the time decides no byte of the text.

Spec: CFS-021 §1
"""

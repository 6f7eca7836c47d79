"""Context assembly of CFS-021: retrieved chunks, grouped by document, packed, with markers.

In: a question and a view of the fabric, or a caller's own retrieval results; a token budget, a
tokenizer, settings and the time. Out: an `AssembledContext` with its text, its chunks, separate
token counts of content and markers, what was left out and why, and measurements of the five
desired properties.

Read `records`, `search` (the only file that calls the fabric), `assembly` (the whole path
on one screen), then its step `pack`.

This assembler is independent of the envelope of CRP-SPEC-003: chunks are grouped by document and
marked with its path, and there is no quality tier. The subpackage never reads a clock, and the
text does not depend on the time.

Spec: CFS-021 §1
"""

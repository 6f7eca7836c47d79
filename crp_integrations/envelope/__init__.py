"""The context envelope: from candidates to the ordered text that a model sees.

Comes in: candidates, read from a fabric (`gather`) or handed over by a caller (`offered`),
a token budget, a token counter, a grounding mode, settings and the time.

Goes out: an `Envelope` with its text, facts, tier, ETag and a drop report that names
everything left out.

Read in this order: `records`, `settings`, `gather` and `offered` (two ways in, with
`similar` between them), `assemble` (the whole path on one screen), then its steps `rank`
(with `temporal` and `weights`), `pack`, `order`, `render`, `drops`, `sections`, `etag`,
`saturation`, `tier`; `budget` stands alone.

The room never reads a clock, never computes with floats behind `Candidates`, never alters
a fact's text and never calls a model. Only `gather` reads the fabric.

Spec: CRP-SPEC-003 §3
"""

"""The context envelope: from candidates to the ordered text that a model sees.

Comes in: candidates, read from a fabric (`gather`) or handed over by a caller (`offered`),
a token budget, a token counter, a grounding mode, settings and the time.

Goes out: an `Envelope` with its text, facts, tier, ETag and a drop report that names
everything left out.

Read in this order: `records`, `settings`, `decompose` (a question's needs), `gather` and `offered`
(two ways in, with `similar` and `pairs` between them), `cascade` (the memory tiers), `scoring` and
`hybrid` (the default's mixed scores, with their numbers in `selection` and the parts of facts in
`stretches`; `making` makes the candidates), `rerank` (with `ports`),
`assemble` (the whole path on one screen), then its steps `rank` (with `temporal`, `weights`,
`ranked` and `walk`), `pack` (with `packers`), `excerpts` (parts of facts), `order` and `layouts`,
`render`, `drops`, `sections`, `etag`, `saturation`, `tier`, `pressure` (with `relevant`); `budget`
stands alone. From one envelope to the next: `prior` and `evolution` (windows that continue each
other), `validators` and `reuse` (when an earlier envelope is still right), with their numbers in
`window_settings`.

The room never reads a clock, never computes with floats behind `Candidates`, never alters
a fact's text and never calls a model. Only `gather`, `cascade` and
`cfs.search` read the fabric. `cfs` is the other assembler, of CFS-021, a room of its own.

Spec: CRP-SPEC-003 §3
"""

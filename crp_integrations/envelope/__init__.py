"""The context envelope: from candidates to the ordered text that a model sees.

In: candidates, read from a fabric (`retrieval`) or passed by a caller (`caller_candidates`), a
token budget, a token counter, a grounding mode, settings and the time. Out: an `Envelope` with its
text, facts, tier, ETag and a drop report that names everything that was left out.

Read `records`, `candidates` and `settings` first, then `decomposition` (a question's needs),
`retrieval` (with memory tiers), `hybrid` (mixed scores) and `graph`, `near_duplicates`, `screen`,
`assemble` (the whole path on one screen) and its steps `rank`, `pack`, `passages` (parts of facts),
`layout`, `prompt` and `tier`; `budget` computes the token budget. `continuation` and `reuse`
connect one envelope to the next.

The subpackage never reads a clock, never computes with floats after `Candidates`, never alters a
fact's text and never calls a model. Only `retrieval`, `graph` and `cfs.search` read the fabric.
`cfs` is the other assembler, that of CFS-021.

Spec: CRP-SPEC-003 §3
"""

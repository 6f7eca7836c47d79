"""What happens to a fact once it is stored.

Spec: CRP-SPEC-009 §2.3

Read in this order: `lifecycle` (the table of legal changes, and reports of them), `fact_writer`
(what every change shares), `fact_changes` (one fact, or some), `erasure` (every byte of a source),
`maintenance` (what time makes due). Every change of a fact leaves a line in the journal.
"""

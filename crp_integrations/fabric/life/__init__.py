"""What happens to a fact once it is stored.

Spec: CRP-SPEC-009 §2.3

Read in this order: `lifecycle` (the table of legal changes), `reports` (what every verb answers),
`writing` (what every change shares), `verbs` and `updating` (one fact, or some), `erasure` (every
byte of a source), `holding` (facts of a session, never written), `maintenance` (what time makes
due).

No fact changes here without a line in the journal.
"""

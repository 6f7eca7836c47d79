"""Which facts belong together: neighbours, Leiden, and names.

Spec: CRP-SPEC-009 §5

Read in this order: `neighbours` (the K nearest of every fact) and `similarity` (kept from one
run to the next), `clusters` (what communities are shown as), `naming`, `clustering` (one run, in
one transaction), `schedule` (when the next is due), `clustered` (the part of a namespace that
shows all this).
"""

"""The judge: one model call that reads question, evidence and answer, and says what holds.

In: a dossier, its claims and a model's replies. Out: the calls to make (`inquiry`), and the report
with a status for each claim (`verdict`). Nothing here calls a model.

Spec: CRP-SPEC-005 §6.2, §7 (decision D13)
"""

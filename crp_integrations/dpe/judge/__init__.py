"""The judge: a model call that reads question, evidence and answer, and judges each claim.

Input: a dossier, its claims and a model's replies. Output: the calls to make (`inquiry`), and the
report with a status for each claim (`verdict`). Nothing here calls a model.

Spec: CRP-SPEC-005 §6.2, §7 (decision D13)
"""

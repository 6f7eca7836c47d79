"""Provenance engine: what in an answer rests on the context, what does not, and how risky it is.

Input: a `Dossier` (question, answer, passages). Output: a `Report` with a status for every claim.
Read `pipeline.py` first, which has the whole engine on one screen, then `dossier.py`, `state.py`,
`stages/` by number, `risk.py` and `verifier/`. The engine never alters the answer, never cuts
the context silently, and reports everything that it did not check as not checked.
"""

"""Provenance engine: what in an answer rests on the context, what does not, and how risky it is.

In: a `Dossier` (question, answer, passages). Out: a `Report` with a word on every claim. Read
`pipeline.py` first, which is the whole engine on one screen, then `dossier.py`, `state.py`,
`stages/` by number, `risk.py` and `verifier/`. The room never alters the answer, never cuts
the context silently, and reports as not checked what it did not check.
"""

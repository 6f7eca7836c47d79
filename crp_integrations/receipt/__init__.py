"""Receipts: signed files from which anyone can recompute a model's context and an answer's report.

Input is the request, candidates, context, calls, answer and report of one window; output is a
signed file, or the result of checking one. The file format: `canonical.py` (encoding),
`signed_statement.py` (signed in-toto statement), `leaves.py` and `merkle.py` (texts as salted
leaves), `records.py` (writing, reading and signing the file), `verify.py`, `redaction.py`,
`ledger.py` (the log of receipts), `ports.py` (interface to a store). The content and its replay:
`predicate.py` declares the fields, `draft.py` fills them from `window_values.py`,
`reconstruction.py` reads them back, `replay.py` repeats the window, `whatif.py` with a change,
`comparison.py` compares two receipts; `page/` renders one as HTML. The subpackage uses no clock, no
random numbers and no disk: callers pass keys. Texts are signed only as hashes of salted leaves, so
that they can be left out.
"""

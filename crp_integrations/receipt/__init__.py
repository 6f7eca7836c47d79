"""Receipts: one file from which a stranger recomputes what a model saw and whether it holds.

In: what a window asked, ranked, packed, sent, got and found. Out: a signed file, and the word on
one. The room has two halves. The form: `canonical.py` (the one encoding), `signed_statement.py`
(the signed envelope of an in-toto statement), `leaves.py` and `merkle.py` (texts as salted leaves),
`records.py` (the file, and signing it), `verify.py`, `redaction.py`, `ledger.py` (the log of
receipts), `ports.py` (what a store does for them). The content and its replay: `predicate.py`
declares the fields, `draft.py` fills them from `window_values.py`, `reconstruction.py` reads them
back, `replay.py` does everything again, `whatif.py` supposes something else, `comparison.py` lays
two beside each other; `page/` draws one. The room reads no clock, draws no random number and
touches no disk; keys and salts are handed in. No free text is signed as it is: it is a salted leaf,
so that it can be left out.
"""

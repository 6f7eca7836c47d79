"""Audit: a tamper-evident record of what happened.

Input is drafts of events, ends of windows, a key and the journal of a store; output is chained
events and seals, and the place where a chain is broken. Read `records.py`, `drafts.py` (the fields
of events), then `journal.py`, `window_seals.py` and `trail.py`, which checks both together;
`exports.py` exports a journal.

Events contain ids, hashes and counts, never the text of a fact or an answer; timestamps are
arguments. A chain reveals every change, and every loss except at its end: if the last windows were
cut off together with their events, you notice it only with a tip that was noted elsewhere.
"""

"""Audit: what happened, in an order that nobody can change unseen.

In: drafts of events, ends of windows, a key and a journal that a store keeps. Out: chained events
and seals, and the place where a chain is broken. Read `records.py`, `drafts.py` (what an event may
say), then `journal.py`, `window_seals.py` and `trail.py`, which checks both together; `exports.py`
writes a journal out.

The room never sees a fact's or an answer's text, only ids, hashes and counts, and it asks no clock:
a timestamp is an argument. A chain shows every change and every loss before its end. That the last
windows were cut off together with their events shows only against a tip that was noted elsewhere.
"""

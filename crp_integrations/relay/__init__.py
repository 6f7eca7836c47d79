"""Relay: one question in, one checked and sealed answer out. A window is one such exchange.

In: a `Request` and ports chosen by `build.py`. Out: an `Answer`, or an outcome that says why
there is none. Read `turn.py` (one window), `conditional_requests.py` (what it may reuse),
`steps.py` (what it returns), `window_seal.py` (the transaction that seals it) and
`window_headers.py`; `composition.py` and `continuation.py` (the windows of one answer), `drive.py`
(runs a Turn against a model), then `relay.py` and `storeless_functions.py`, which callers use with
and without a store. The subpackage computes no scores, and alters a
model's text only to repair it when a caller or policy demands that.
"""

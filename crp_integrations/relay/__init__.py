"""Relay: one question in, one checked and sealed answer out.

In: a `Request` and ports chosen by `build.py`. Out: an `Answer`, or an outcome that says why
there is none. Read `turn.py` (one window), `conditional_requests.py` (what it may reuse),
`steps.py` (what it answers with), `close.py` (how it is sealed), `drive.py` (the only place that
awaits), then `relay.py` and `storeless_functions.py`, which callers use. The room never computes a
score itself and never alters a model's text.
"""

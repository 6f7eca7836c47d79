"""Sessions: what one window passes to the next, the graph of windows, and the safety budget.

In: closed windows. Out: what the next window may know, cost and do. Read `records.py`,
`settings.py`, `window_graph.py` (the invariants), `budget.py` (safety budget and circuit breaker),
`transfer.py`, `token.py` (signed session tokens), `agents.py` (delegation), then `ports.py`. The
subpackage calls no model and reads no clock.
"""

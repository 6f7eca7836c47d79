"""The `crp` command: the only room that prints.

In: arguments. Out: tables for people, JSON for programs, one sentence on standard error and a
status above 0 when something is wrong. Read `app.py`, then a command's file; `terminal.py`,
`store_views.py` and `receipt_views.py` draw.
"""

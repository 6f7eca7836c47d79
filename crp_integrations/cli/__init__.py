"""The `crp` command: the only subpackage that prints.

In: arguments. Out: tables for people, JSON for programs, and on failure one sentence on standard
error and a status above 0. Read `app.py`, then a command's file; `terminal.py`, `store_views.py`
and `receipt_views.py` format the output.
"""

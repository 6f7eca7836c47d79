"""Stores: where facts, journals and keys are kept.

In: transactions that the fabric and the relay open. Out: records exactly as they were stored. The
statements that all stores share are in `relational/`; `sqlite/` keeps them in a folder, `memory.py`
in RAM, `postgres/` in a database. Checks that every store makes are in `rules.py`, store addresses
in `address.py`, copying between stores in `transfer.py`, the master key in `keys.py`. Any backend
can be tested with `crp_integrations.testing.conformance`.

The subpackage makes no decisions: it knows no guard, no clock and no rule of a fact's life. A
transaction sees only its own namespace.
"""

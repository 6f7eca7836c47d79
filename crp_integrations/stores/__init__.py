"""Stores: where facts, journals and keys are kept.

In: transactions asked for by the fabric and the relay. Out: records as they were put in. Each
store is a folder with one file a facet: `memory/`, `sqlite/` and `postgres/`, of which the last two
share their statements (`statements.py`). What all must refuse stands once in `rules.py`, how a
store is named in `address.py`, how one is copied to another in `moving.py`, the lock that makes
writers take turns in `locks.py`, the master key in `keys.py`. Any backend can be held against
`crp_integrations.testing.conformance`.

The room decides nothing: it knows no guard, no clock and no rule of a fact's life. What one
namespace holds, no transaction of another can see.
"""

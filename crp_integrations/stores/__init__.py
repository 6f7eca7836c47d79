"""Stores: where facts, journals and keys are kept.

In: transactions asked for by the fabric and the relay. Out: records as they were put in. The
statements that all stores share are in `relational/`; `sqlite/` keeps them in a folder, `memory.py`
in RAM, `postgres/` in a database. What all refuse stands in `rules.py`, how a store is named in
`address.py`, how one is copied to another in `transfer.py`, the master key in `keys.py`. Any
backend can be held against `crp_integrations.testing.conformance`.

The room decides nothing: it knows no guard, no clock and no rule of a fact's life. What one
namespace holds, no transaction of another can see.
"""

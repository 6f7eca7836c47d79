"""The facets of a transaction as statements that SQLite and PostgreSQL share.

Read `rows.py` (records to rows and back), `facts.py`, `receipts.py`, `sessions.py`, and
`transaction.py`, which creates them over one connection. `stores/rules.py` defines what they need
of a database connection.
"""

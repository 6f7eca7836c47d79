"""The facets of a transaction as statements that SQLite and PostgreSQL share.

Read `rows.py` (records to rows and back), `facts.py`, `receipts.py`, `sessions.py`, and
`transaction.py`, which makes them over one connection. What a statement asks of the database under
it is in `stores/rules.py`.
"""

"""What a whole relay costs over a bare LiteLLM call against the same loopback server.

Read `server.py` (the provider, in a process of its own), `steps.py` (processor time by step),
`data.py` (real text), then `run.py` and `table.py`.
"""

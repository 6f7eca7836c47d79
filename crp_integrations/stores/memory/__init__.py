"""The store that ends with the process: copy-on-write states, one after the other.

Read `state.py` (what a namespace is), `facts.py` and `journal.py` (the facets), `text.py`
(word search), then `store.py`. A reader keeps the state that it began with; a writer works on
copies of the tables that it changes, and the last line of its block makes them the state.
"""

from crp_integrations.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]

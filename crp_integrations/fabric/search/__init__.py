"""The in-memory state of one namespace, and the search over it.

Spec: CRP-SPEC-009 §3

The search reads a store's rows and its change log and returns hits, each with its exact float32
score. The result does not depend on the order in which facts were added.

Read in this order: `vector_index` (the unit rows of one state, exact search, the step to the next
state), `neighbour_graph` (the graph for large namespaces, and its file), `store_index` (a store
that searches its vectors itself), `word_search`, `fact_cache` (facts that
questions have read), `namespace_state` (keeps all of it up to date).
"""

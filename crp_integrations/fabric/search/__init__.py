"""What is kept in memory of one namespace, and how it is searched.

Spec: CRP-SPEC-009 §3

The rows of a store and the log of its changes come in; hits come out, each with its exact float32
score, the same ones in whatever order the facts came in.

Read in this order: `vector_index` (the unit rows of one state, exact search, the step to the next),
`neighbour_graph` (the graph above a size, and its file), `store_index` (a store that searches by
itself), `word_search`, `namespace_state` (all of it kept up to date).
"""

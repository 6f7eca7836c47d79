"""What is kept in memory of one namespace, and how it is searched.

Spec: CRP-SPEC-009 §3

In come the rows of a store and the log of its changes; out go hits, each with its exact float32
score, the same ones whatever order the facts came in.

Read in this order: `tail` and `rows` (the unit rows of one state, and the step to the next),
`scanning` (exact search over them), `narrow` (the short form that rules most of them out), `index`
(both, and `graph`, a shortcut above a size), `block` (the rows under a graph as a file), `lexical`
(words, by an engine in memory), `hot` (a session's own facts), `shelves` (what was used lately),
`ready` (facts that were read, at hand for the next question), `live` (all of it kept up to date).
"""

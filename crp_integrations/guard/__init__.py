"""Guard: who may read what.

In: a subject, an action and the labels of a resource. Out: a decision with a reason. Read
`decisions` first. The room never touches facts or stores; it sees labels only, and a subject
without a tenant is always denied.
"""

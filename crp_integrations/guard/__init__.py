"""Guard: who may read what.

In: a subject, an action and the labels of a resource. Out: a decision with a reason. Read
`decisions` first. The subpackage never accesses facts or stores, only labels, and a subject without
a tenant is always denied.
"""

"""Guard: who may read what.

In: a subject, an action and the labels of what is asked for. Out: a decision with a reason.
Read `subjects.py`, then `decisions.py`. The room never touches facts or stores; it sees
labels only, and a subject without a tenant is always denied.
"""

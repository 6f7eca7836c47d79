"""Verifier: lays a claim beside the context, and judges without a model.

In: a claim and passages. Out: what supports the claim, which values were changed or have no
source, and three probabilities. Read `values.py`, `opposition.py`, `context.py`, then
`alignment.py`. The room calls no model and nothing here
is called NLI (decision D12).
"""

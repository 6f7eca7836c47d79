"""Verifier: compares a claim with the context and judges it without a model.

Input: a claim and passages. Output: the sentences that support the claim, the values that were
changed or have no source, and three probabilities. Read `values.py`, `opposition.py`,
`context.py`, then `alignment.py`. No model is called, so nothing here is named NLI (decision D12).
"""

"""Verifiers with other models, for the provenance engine; give one to `Relay.open(verifier=…)`.

In: a claim and passages. Out: one `Judgement`. Read `model_catalogue` first (a model is run only if
its files have the hash that the caller gave), then `pair_verifiers` (a table of families, how a
pair is cut into windows for a network, and which window decides) or `lettuce`. No model is loaded
or downloaded unless a caller creates its verifier.
"""

"""Other verifiers behind the port of the provenance engine; give one to `Relay.open(verifier=…)`.

In: a claim and passages. Out: one `Judgement`. Read `model_catalogue` first (no model is run whose
files do not have the hash that the caller gave), then `pair_verifiers` (a table of families, how a
pair reaches a network in windows, and which window decides) or `lettuce`. None is loaded or
fetched unless a caller makes it.
"""

"""Other verifiers behind the port of the provenance engine; give one to `Relay.open(verifier=…)`.

In: a claim and passages. Out: one `Judgement`. Read `model_files` first (no model is run whose
files do not have the hash that the caller gave), then `pair_network` (how a pair reaches a network
in windows, and which window decides), then `pair_verifiers` or `lettuce`. None is loaded or
fetched unless a caller makes it.
"""

"""Engines: implementations of ports; each wraps one library or one rule.

In: the port's arguments. Out: the port's records, with every foreign error turned into ours. Read
the port in `ports.py` first, then the module that you need: `onnx` and `embeddings` embed,
`rerankers` rerank, `hnsw` searches many vectors, `tokens` counts, `context_limits` knows context
limits, `extractive`, `litellm` and `openai_server` answer (`models` chooses by name), `graphs`
finds communities and exports them, `guards` and `rego` decide access, `verifiers` judge claims with
other models. The room decides nothing about an envelope or a verdict; only `relay/build.py` chooses
among engines.
"""

"""Engines: implementations of ports; each wraps one library or one rule.

In: the port's arguments. Out: the port's records; a library's errors become the package's. Read
the port in `ports.py` first, then the module that you need: `onnx` and `embeddings` embed,
`rerankers` rerank, `hnsw` searches many vectors, `tokens` counts, `context_limits` gives context
limits, `extractive`, `litellm` and `openai_server` answer (`models` chooses by name), `graphs`
finds communities and exports them, `guards` and `rego` decide access, `verifiers` check claims with
other models. Engines decide nothing about an envelope or a verdict; only `relay/build.py` chooses
among them.
"""

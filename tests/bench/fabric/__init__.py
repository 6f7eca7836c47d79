"""Measures the fabric on real text beside other stores: `python -m tests.bench.fabric`.

`corpus` reads the text, `embeddings` the vectors, `peers/` holds what is compared; every figure of
ours goes through the public `Namespace` on a SQLite store.
"""

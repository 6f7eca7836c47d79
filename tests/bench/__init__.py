"""Measurements on public data, each runnable as `python -m tests.bench.NAME`, and their tests."""

"""Measurements on public data, each runnable as `python -m crp_integrations.bench.NAME`."""

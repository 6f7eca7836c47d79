"""Observability for operators: spans, metrics, service levels, drift and evidence.

In: the steps of a relay, the traces of its sealed windows, and its journal. Out: OpenTelemetry
spans and metrics (`otel`), Prometheus metrics (`prometheus`), the table of service levels
(`service_levels`), the drift of a golden set (`evaluations`) and an evidence bundle (`bundle`).

Read `observers`, `otel` and `prometheus`, then the others. No text of a fact, a question or an
answer enters this subpackage, only ids, counts, hashes, scores and enumerated words. `otel` and
`prometheus` need the extra `observability`; nothing else here imports a third-party library.
"""

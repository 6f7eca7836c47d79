"""What a relay does, for the eyes of an operator: spans, metrics, targets, drift, evidence.

In come the steps of a relay, the traces of its sealed windows, and its journal; out go
OpenTelemetry spans and metrics (`otel`), Prometheus metrics (`prometheus`), the table of service
levels (`service_levels`), the drift of a golden set (`evaluations`) and an evidence bundle
(`bundle`).

Read `observers`, `otel` and `prometheus`, then the others. No text of a fact, a question or an
answer enters this room: it sees ids, counts, hashes, scores and words of closed lists. `otel` and
`prometheus` need the extra `observability`; nothing else here imports a library.
"""

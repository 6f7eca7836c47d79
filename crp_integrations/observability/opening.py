"""The observer of a process that serves: metrics, and spans where OpenTelemetry is configured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from crp_integrations.errors import MissingExtra
from crp_integrations.governance.tracing import Observer
from crp_integrations.observability.prometheus import Metrics
from crp_integrations.observability.together import Together

# OpenTelemetry's own variables; with neither nothing is exported.
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
SERVICE: Final = "OTEL_SERVICE_NAME"


@contextmanager
def serving(environment: Mapping[str, str] | None = None) -> Iterator[Together]:
    """Metrics for `/metrics`, and spans over OTLP/HTTP where an endpoint is set.

    What is not exported yet goes out at the end.

    Args:
        environment: None for the process's own.

    Raises:
        MissingExtra: `observability` is not installed.
    """
    given = os.environ if environment is None else environment
    observers: list[Observer] = [Metrics()]
    if not any(given.get(name) for name in ENDPOINTS):
        yield Together(*observers)
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtra("observability", "spans over OTLP") from error
    from crp_integrations.observability.otel import OpenTelemetry

    resource = Resource.create({"service.name": given.get(SERVICE) or "crp"})
    tracers = TracerProvider(resource=resource)
    # The exporter reads the endpoint, its headers and its certificates from the environment.
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield Together(*observers, OpenTelemetry(tracers))
    finally:
        tracers.shutdown()

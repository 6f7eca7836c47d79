"""The gateway's `/metrics` with windows beside requests, and `crp serve --observe`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra observability is not installed")
pytest.importorskip("prometheus_client", reason="the extra observability is not installed")
pytest.importorskip("starlette", reason="the extra gateway is not installed")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from crp_integrations.observability.observers import serving_observer
from crp_integrations.observability.otel import OpenTelemetry
from tests.gateway.application import opened
from tests.observability.test_traces import receiver
from tests.servers import Double, openai_double


@pytest.fixture
def server() -> Iterator[Double]:
    with openai_double(text="Plant 7 was built in 1957.") as double:
        yield double


def test_a_gateways_metrics_have_windows_and_model_calls(tmp_path: Path, server: Double) -> None:
    with (
        serving_observer({}) as observer,
        opened(tmp_path, server, options={"tracer": observer}) as gateway,
    ):
        assert gateway.ask().status_code == 200
        assert gateway.ask("globex").status_code == 200
        text = gateway.get("/metrics").text
    # One text that a scraper reads, without a name twice.
    families = [family.name for family in text_string_to_metric_families(text)]
    assert len(set(families)) == len(families)
    assert {"crp_gateway_requests", "crp_windows", "crp_assembly_seconds"} <= set(families)
    assert 'crp_windows_total{outcome="released"} 2.0' in text
    assert "crp_model_call_seconds_count 2.0" in text
    assert not {"acme", "globex"} & set(text.replace('"', " ").split())


def test_without_an_observer_the_gateways_metrics_are_its_own(
    tmp_path: Path, server: Double
) -> None:
    with opened(tmp_path, server) as gateway:
        gateway.ask()
        assert "crp_windows" not in gateway.get("/metrics").text


def test_spans_are_exported_where_an_endpoint_is_set(
    tmp_path: Path, server: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as (address, got):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", address)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "plant")
        with serving_observer() as observer:
            assert any(isinstance(one, OpenTelemetry) for one in observer.observers)
            with opened(tmp_path, server, options={"tracer": observer}) as gateway:
                assert gateway.ask().status_code == 200
        # What was still in the queue went out at the end.
        resources = [one for request in got for one in request.resource_spans]
    service = {
        attribute.value.string_value
        for one in resources
        for attribute in one.resource.attributes
        if attribute.key == "service.name"
    }
    names = {span.name for one in resources for scope in one.scope_spans for span in scope.spans}
    assert service == {"plant"}
    assert {"retrieval context_pack", "chat gpt-4o-mini"} <= names


def test_a_request_is_one_trace_whole_or_streamed(tmp_path: Path, server: Double) -> None:
    kept = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(kept))
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Which plant?"}]}
    options = {"tracer": OpenTelemetry(tracers)}
    with opened(tmp_path, server, options=options) as gateway:
        assert gateway.ask().status_code == 200
        answer = gateway.post("/v1/chat/completions", {**body, "stream": True})
        assert answer.status_code == 200
    spans = kept.get_finished_spans()
    for name in ("crp.ask", "crp.stream"):
        (root,) = [span for span in spans if span.name == name]
        assert root.parent is None
        inside = {s.name for s in spans if s.context.trace_id == root.context.trace_id}
        assert {"crp.gather", "chat gpt-4o-mini", "retrieval context_pack", "crp.close"} <= inside
    assert len({span.context.trace_id for span in spans}) == 2

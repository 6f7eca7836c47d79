"""Spans and metrics as a trace viewer gets them, and the same trace in the ledger."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra observability is not installed")
pytest.importorskip("prometheus_client", reason="the extra observability is not installed")

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import INVALID_SPAN

from crp_integrations.errors import CRPError, ModelError
from crp_integrations.governance.window_trace import (
    PackTrace,
    TracedDrops,
    TracedItem,
    WindowTrace,
    pack_traces,
)
from crp_integrations.observability.observers import ObserverGroup
from crp_integrations.observability.otel import OpenTelemetry, current_span, pack_attributes
from crp_integrations.observability.prometheus import Metrics
from crp_integrations.receipt.records import Receipt
from crp_integrations.vocabulary import DropReason
from tests.doubles import ScriptedModel
from tests.observability.conftest import ANSWER, QUESTION, SECRETS, WRONG, Opener, Seen, replied


class Recorded:
    """Providers of the SDK that keep everything in memory."""

    def __init__(self, tracers: TracerProvider | None = None) -> None:
        self.spans_kept = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = tracers or TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans_kept))
        self.meters = MeterProvider([self.reader])
        self.observer = OpenTelemetry(self.tracers, self.meters)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.spans_kept.get_finished_spans()

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name.startswith(start)]

    def metrics(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def outcomes(spans: Iterable[ReadableSpan]) -> list[str]:
    """How the windows ended that were sealed within these."""
    told = [
        span.attributes.get("crp.window.outcome") for span in spans if span.name == "crp.window"
    ]
    return [str(one) for one in told if one]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.mark.requirement("SUM-evalobs-17")
def test_a_question_is_one_trace_with_its_pack_its_call_and_its_evaluation(
    opener: Opener, recorded: Recorded
) -> None:
    with opener(tracer=recorded.observer) as relay:
        answer = relay.ask(QUESTION, model="scripted/one", budget_tokens=2_000)
    (root,) = recorded.named("crp.ask")
    asked = [span for span in recorded.spans if span.context.trace_id == root.context.trace_id]
    kinds = {span.attributes["openinference.span.kind"] for span in asked}
    assert {"CHAIN", "RETRIEVER", "LLM", "EVALUATOR"} <= kinds
    (pack,) = [span for span in asked if span.name == "retrieval context_pack"]
    told = pack.attributes
    assert told["gen_ai.operation.name"] == "retrieval"
    assert told["gen_ai.conversation.id"] == told["session.id"] == answer.session_id
    assert told["crp.window.id"] == answer.window_id
    assert told["crp.receipt.id"] == answer.receipt_id
    facts = answer.envelope.facts
    assert len(facts) == told["crp.pack.items"] > 0
    assert [one["id"] for one in json.loads(told["gen_ai.retrieval.documents"])] == [
        fact.fact_id for fact in facts
    ]
    for place, fact in enumerate(facts):
        at = f"retrieval.documents.{place}.document."
        assert told[at + "id"] == fact.fact_id
        assert told[at + "score"] == fact.composite_score
        assert json.loads(told[at + "metadata"]) == {
            "source": fact.source_id,
            "security_label": "unlabelled",
            "tokens": fact.token_count,
        }
    assert told["crp.pack.invocation_hash"].startswith("sha256:")
    (chat,) = [span for span in asked if span.name == "chat scripted/one"]
    assert chat.attributes["gen_ai.provider.name"] == "scripted"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 120
    assert chat.attributes["llm.token_count.completion"] == 12
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    (judged,) = [span for span in asked if span.name == "evaluation context_pack"]
    results = {one.attributes["gen_ai.evaluation.name"]: one for one in judged.events}
    assert {one.name for one in judged.events} == {"gen_ai.evaluation.result"}
    assert results["citation_accuracy"].attributes["gen_ai.evaluation.score.value"] == 1.0
    label = results["risk"].attributes["gen_ai.evaluation.score.label"]
    assert label == answer.report.risk_level.value
    points = recorded.metrics()
    assert {
        point.attributes["gen_ai.token.type"] for point in points["gen_ai.client.token.usage"]
    } == {
        "input",
        "output",
    }
    assert sum(point.count for point in points["gen_ai.client.operation.duration"]) == 1


@pytest.mark.requirement("SUM-eval-2")
def test_the_trace_of_a_pack_stands_in_the_ledger_and_is_the_one_that_was_exported(
    opener: Opener, recorded: Recorded
) -> None:
    seen = Seen()
    with opener(tracer=ObserverGroup(recorded.observer, seen)) as relay:
        answer = relay.ask(QUESTION, budget_tokens=40)
        with relay.fabric.begin(write=False) as transaction:
            (written,) = pack_traces(transaction.journal.events())
        relay.verify()
        receipt = relay.receipt(answer.receipt_id)
    (trace,) = seen.traces
    assert trace.pack == written
    facts = answer.envelope.facts
    assert [item.id for item in written.items] == [fact.fact_id for fact in facts]
    assert [item.source for item in written.items] == [fact.source_id for fact in facts]
    assert [item.tokens for item in written.items] == [fact.token_count for fact in facts]
    assert [item.score for item in written.items] == [fact.composite_score for fact in facts]
    assert all(item.label for item in written.items)
    # The drop report: every reason with its count, its tokens and a hash of the ids.
    drops = answer.envelope.dropped
    assert len(drops) > 0
    assert sum(one.count for one in written.drops) == len(drops)
    assert sum(one.tokens for one in written.drops) == sum(one.tokens for one in drops)
    assert written.invocation_hash.startswith("sha256:")
    assert written.ledger_hmac.startswith("sha256:")
    # The receipt in the Merkle log names each of them.
    assert isinstance(receipt, Receipt)
    content = receipt.content
    gone = {content["candidates"][one["at"]]["id"] for one in content["envelope"]["dropped"]}
    assert gone == {one.fact_id for one in drops}


def test_stages_within_a_step_have_no_spans(opener: Opener, recorded: Recorded) -> None:
    with opener(tracer=recorded.observer) as relay:
        relay.ask(QUESTION)
    assert recorded.named("crp.dpe.") == []


def test_a_large_pack_fits_the_limits_of_the_sdk(recorded: Recorded) -> None:
    """The SDK drops the oldest attributes beyond 128, silently for who looks at the span."""
    items = tuple(
        TracedItem(id=f"f{n}", source=f"s{n}", label="internal", tokens=n, score=0.5)
        for n in range(300)
    )
    drops = tuple(
        TracedDrops(reason=reason, count=1, tokens=1, ids_hash="sha256:" + "0" * 64)
        for reason in DropReason
    )
    pack = PackTrace(
        session_id="s",
        window_id="w",
        timestamp="",
        etag="",
        state_hash="",
        items=items,
        drops=drops,
    )
    window = WindowTrace(
        session_id="s", window_id="w", outcome="released", strategy="push", model="m", pack=pack
    )
    recorded.observer.sealed(window)
    (span,) = recorded.named("retrieval context_pack")
    assert span.dropped_attributes == 0
    assert span.attributes["crp.window.id"] == "w"
    told = json.loads(span.attributes["crp.pack.documents"])
    assert [one["id"] for one in told] == [item.id for item in items]
    assert told[299] == {
        "id": "f299",
        "score": 0.5,
        "source": "s299",
        "security_label": "internal",
        "tokens": 299,
    }


def test_a_failed_call_is_traced_by_the_name_of_its_error(
    opener: Opener, recorded: Recorded
) -> None:
    seen = Seen()
    failing = ScriptedModel(ModelError(f"the provider said: {QUESTION}"))
    both = ObserverGroup(recorded.observer, seen)
    with opener(tracer=both, models=failing) as relay, pytest.raises(ModelError):
        relay.ask(QUESTION)
    (trace,) = seen.traces
    assert trace.outcome == "failed"
    assert trace.error == "ModelError"
    assert trace.evaluated is None
    assert trace.pack is not None
    assert trace.pack.items
    failed = [span for span in recorded.spans if "error.type" in span.attributes]
    assert {span.attributes["error.type"] for span in failed} == {"ModelError"}
    assert QUESTION not in "".join(span.to_json() for span in recorded.spans)


def test_nothing_is_told_of_a_window_under_no_store(opener: Opener) -> None:
    seen = Seen()
    with opener(tracer=seen) as relay:
        relay.ask(QUESTION, cache="no-store")
        assert seen.traces == []
        relay.ask(QUESTION)
        assert len(seen.traces) == 1


def test_facts_held_in_memory_alone_are_counted_and_not_named(opener: Opener) -> None:
    seen = Seen()
    with opener(tracer=seen) as relay:
        session = relay.ask(QUESTION).session_id
        held = relay.add(
            ["The Meridian reactor has a sister plant in Aldmoor, built two years later."],
            session_id=session,
            cache="no-store",
        )
        relay.ask("Which sister plant does the Meridian reactor have?", session_id=session)
    last = seen.traces[-1].pack
    assert last is not None
    assert last.held == 1
    assert not {item.id for item in last.items} & set(held.facts)


def test_an_observer_that_fails_costs_no_answer(
    opener: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Seen):
        def sealed(self, trace: Any) -> None:
            raise RuntimeError(QUESTION)

    with opener(tracer=Broken()) as relay:
        assert relay.ask(QUESTION).text == ANSWER
    assert "RuntimeError" in caplog.text
    assert QUESTION not in caplog.text


async def test_the_ways_to_ask_are_all_traced(opener: Opener, recorded: Recorded) -> None:
    seen = Seen()
    with opener(tracer=ObserverGroup(recorded.observer, seen)) as relay:
        await relay.aask(QUESTION)
        assert (
            "".join(
                p
                for p in await asyncio.to_thread(list, relay.stream(QUESTION))
                if isinstance(p, str)
            )
            == ANSWER
        )
        async for _ in relay.astream(QUESTION):
            pass
        relay.batch([QUESTION, QUESTION])
    assert len(seen.traces) == 5
    assert len(recorded.named("chat ")) == 5
    (root,) = recorded.named("crp.ask")
    inside = [span for span in recorded.spans if span.context.trace_id == root.context.trace_id]
    assert "retrieval context_pack" in {span.name for span in inside}
    assert all(span.end_time is not None for span in recorded.spans)


@pytest.mark.requirement("SUM-evalobs-17")
@pytest.mark.parametrize("live", [False, True])
async def test_a_stream_is_one_trace_and_its_reader_is_not_in_it(
    opener: Opener, recorded: Recorded, live: bool
) -> None:
    mine = recorded.tracers.get_tracer("reader")
    with opener(tracer=recorded.observer) as relay:
        for part in relay.stream(QUESTION, live=live):
            # What the reader does between pieces belongs to nobody's stream.
            assert current_span() is INVALID_SPAN
            mine.start_span(f"sync reader of {type(part).__name__}").end()
        async for part in relay.astream(QUESTION, live=live):
            assert current_span() is INVALID_SPAN
            mine.start_span(f"async reader of {type(part).__name__}").end()
    assert current_span() is INVALID_SPAN
    roots = recorded.named("crp.stream")
    assert len(roots) == 2
    for root in roots:
        assert root.parent is None
        inside = [span for span in recorded.spans if span.context.trace_id == root.context.trace_id]
        names = {span.name.split(" ")[0] for span in inside}
        assert {"crp.envelope", "crp.gather", "crp.close", "chat", "retrieval"} <= names
        assert not any("reader" in span.name for span in inside)
        assert all(span.end_time <= root.end_time for span in inside)
        assert outcomes(inside) == ["released"]
        assert "crp.stopped" not in root.attributes


async def test_a_reader_within_a_span_has_the_stream_in_it(
    opener: Opener, recorded: Recorded
) -> None:
    mine = recorded.tracers.get_tracer("reader")
    with (
        opener(tracer=recorded.observer) as relay,
        mine.start_as_current_span("request") as request,
    ):
        list(relay.stream(QUESTION))
        assert current_span() is request
        async for _ in relay.astream(QUESTION):
            assert current_span() is request
    for root in recorded.named("crp.stream"):
        assert root.parent is not None
        assert root.parent.span_id == request.get_span_context().span_id


async def test_a_stream_that_fails_says_so_at_its_root(opener: Opener, recorded: Recorded) -> None:
    failing = ScriptedModel(ModelError("no"), ModelError("no"))
    with opener(tracer=recorded.observer, models=failing) as relay:
        with pytest.raises(ModelError):
            list(relay.stream(QUESTION))
        with pytest.raises(ModelError):
            async for _ in relay.astream(QUESTION):
                pass
    roots = recorded.named("crp.stream")
    assert [root.attributes["error.type"] for root in roots] == ["ModelError"] * 2
    assert all(root.status.status_code.name == "ERROR" for root in roots)


async def test_a_cancelled_stream_ends_its_span(opener: Opener, recorded: Recorded) -> None:
    waits = asyncio.Event()

    class Waiting(ScriptedModel):
        async def astream(self, call: Any) -> Any:
            yield "word "
            waits.set()
            await asyncio.Event().wait()

    async def read() -> None:
        async for _ in relay.astream(QUESTION, live=True):
            pass

    with opener(tracer=recorded.observer, models=Waiting(replied(ANSWER))) as relay:
        reading = asyncio.create_task(read())
        await waits.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    (root,) = recorded.named("crp.stream")
    assert root.attributes["error.type"] == "CancelledError"
    assert outcomes(recorded.spans) == ["cancelled"]


async def test_who_stops_listening_ends_the_span_and_the_models_stream(
    opener: Opener, recorded: Recorded
) -> None:
    ended: list[str] = []

    class Endless(ScriptedModel):
        async def astream(self, call: Any) -> Any:
            try:
                while True:
                    yield "word "
            finally:
                ended.append("async")

        def stream(self, call: Any) -> Any:
            try:
                while True:
                    yield "word "
            finally:
                ended.append("sync")

    with opener(tracer=recorded.observer, models=Endless(replied(ANSWER))) as relay:
        parts = relay.stream(QUESTION, live=True)
        next(parts)
        parts.close()  # type: ignore[attr-defined]
        more = relay.astream(QUESTION, live=True)
        await anext(more)
        await more.aclose()  # type: ignore[attr-defined]
    assert ended == ["sync", "async"]
    assert len(recorded.named("chat ")) == 2
    roots = recorded.named("crp.stream")
    assert len(roots) == 2
    for one in (*roots, *recorded.named("chat ")):
        assert one.attributes["crp.stopped"] is True
        # That somebody has read enough is no error.
        assert one.status.status_code.name == "UNSET"
    assert outcomes(recorded.spans) == ["cancelled", "cancelled"]
    # Its window is sealed within the stream, not after it.
    sealed = {span.context.trace_id for span in recorded.named("crp.close")}
    assert sealed == {root.context.trace_id for root in roots}
    points = recorded.metrics()["gen_ai.client.operation.duration"]
    assert not any("error.type" in point.attributes for point in points)
    assert current_span() is INVALID_SPAN


@contextmanager
def receiver() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector on this machine that takes OTLP over HTTP."""
    got: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces", got
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.requirement("SUM-evalobs-17")
def test_a_collector_gets_the_trace_over_otlp_http(opener: Opener) -> None:
    with receiver() as (address, got):
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=address)))
        with opener(tracer=OpenTelemetry(tracers)) as relay:
            answer = relay.ask(QUESTION)
        tracers.shutdown()
    spans = {
        span.name: {one.key: one.value for one in span.attributes}
        for request in got
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    pack = spans["retrieval context_pack"]
    first = answer.envelope.facts[0]
    assert pack["retrieval.documents.0.document.id"].string_value == first.fact_id
    metadata = json.loads(pack["retrieval.documents.0.document.metadata"].string_value)
    assert (metadata["tokens"], metadata["security_label"]) == (first.token_count, "unlabelled")
    assert pack["crp.pack.tokens"].int_value == answer.envelope.token_count
    assert pack["openinference.span.kind"].string_value == "RETRIEVER"


def test_no_text_stands_in_spans_metrics_or_logs(
    opener: Opener, recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    """Every way a window can end, with texts in every place that a caller can fill."""
    caplog.set_level(logging.DEBUG)
    counted = Metrics()
    both = ObserverGroup(recorded.observer, counted)
    secret = "Zanzibar payroll of May"
    with opener(ANSWER, WRONG, tracer=both) as relay:
        relay.ask(QUESTION, system_prompt=secret, model=f"m {secret}")
        relay.ask(QUESTION)
        relay.ask(QUESTION, budget_tokens=30)
        with pytest.raises(CRPError):
            relay.ask(QUESTION, accept_quality=("S",), policy="halt-on LOW", model="m")
    failing = ScriptedModel(RuntimeError(secret))
    with opener(tracer=both, models=failing) as relay, pytest.raises(RuntimeError):
        relay.ask(QUESTION)
    told = [span.to_json() for span in recorded.spans]
    told.append(json.dumps(repr(recorded.metrics())))
    told.append(counted.text())
    told += [r.getMessage() for r in caplog.records if r.name.startswith("crp_integrations")]
    everything = "\n".join(told)
    assert len(recorded.spans) > 20
    for text in (*SECRETS, secret):
        assert text not in everything
        # Nor a part of it that would tell as much.
        assert text[8:30] not in everything


def test_what_a_sampler_left_out_is_not_put_together(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: Any) -> Any:
        raise AssertionError("attributes of a span that nobody sees")

    monkeypatch.setattr("crp_integrations.observability.otel.pack_attributes", never)
    left_out = Recorded(TracerProvider(sampler=ALWAYS_OFF))
    with opener(tracer=left_out.observer) as relay:
        assert relay.ask(QUESTION).text == ANSWER
    assert left_out.spans == ()
    # What is counted is counted all the same.
    points = left_out.metrics()
    assert sum(point.value for point in points["crp.windows"]) == 1
    assert "crp.evaluation.score" in points


def test_attributes_that_are_json_hold_whatever_an_id_holds() -> None:
    hostile = ('a"b', "c\\d", "e\nf", "\u2028", "é", "\0")
    items = tuple(
        TracedItem(id=one, source=one + "s", label=one + "l", tokens=3, score=0.25)
        for one in hostile
    )
    pack = PackTrace(
        session_id="s", window_id="w", timestamp="t", etag="e", state_hash="h", items=items
    )
    for most in (0, 2, 24):
        told = pack_attributes(pack, most)
        scored = json.loads(str(told["gen_ai.retrieval.documents"]))
        assert scored == [{"id": one, "score": 0.25} for one in hostile]
        for place, one in enumerate(hostile[:most]):
            said = json.loads(str(told[f"retrieval.documents.{place}.document.metadata"]))
            assert said == {"source": one + "s", "security_label": one + "l", "tokens": 3}
        assert ("crp.pack.documents" in told) == (len(hostile) > most)
    every = json.loads(str(pack_attributes(pack, 0)["crp.pack.documents"]))
    assert every[0] == {**scored[0], "source": 'a"bs', "security_label": 'a"bl', "tokens": 3}

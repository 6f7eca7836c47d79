"""Observed models, groups of observers, and the observer of a serving process."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Protocol, runtime_checkable

from crp_integrations.errors import MissingExtra
from crp_integrations.governance.window_trace import Observer, WindowTrace
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.ports import Model

# Functions that find the span of a framework's current run, for frameworks whose tracers do not
# make it OpenTelemetry's current span. Adapters add theirs.
RUN_SPANS: Final[list[Callable[[], Any]]] = []


def observe_model(models: Model, observer: Observer | None) -> Model:
    """The model, wrapped so that the observer, if any, sees its calls."""
    return models if observer is None else ObservedModel(models, observer)


class ObservedModel:
    """A model with an observer; replies and errors are passed on unchanged."""

    def __init__(self, model: Model, observer: Observer) -> None:
        self._model = model
        self._observer = observer

    def call(self, call: ModelCall) -> Reply:
        """The whole reply."""
        with self._observer.calling(call) as replied:
            reply = self._model.call(call)
            replied(reply)
        return reply

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        with self._observer.calling(call) as replied:
            reply = await self._model.acall(call)
            replied(reply)
        return reply

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """Pieces of text as they come, then the whole `Reply` once, last."""
        parts = self._model.stream(call)
        with self._observer.calling(call) as replied:
            try:
                for part in parts:
                    if isinstance(part, Reply):
                        replied(part)
                    yield part
            finally:
                # If the reader stops early, close the model's stream too.
                if isinstance(parts, Generator):
                    parts.close()

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `stream`."""
        parts = self._model.astream(call)
        with self._observer.calling(call) as replied:
            try:
                async for part in parts:
                    if isinstance(part, Reply):
                        replied(part)
                    yield part
            finally:
                if isinstance(parts, AsyncGenerator):
                    await parts.aclose()


@runtime_checkable
class MetricsText(Protocol):
    """An observer with metrics as text."""

    def text(self) -> str:
        """The metrics in Prometheus text format."""
        ...


class ObserverGroup:
    """Forwards everything to several observers, in order."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Open a step in each observer; they close in reverse order."""
        with ExitStack() as stack:
            for observer in self.observers:
                stack.enter_context(observer.step(name))
            yield

    @contextmanager
    def calling(self, call: ModelCall) -> Iterator[Callable[[Reply], None]]:
        """Open a model call in each observer."""
        with ExitStack() as stack:
            receivers = [stack.enter_context(observer.calling(call)) for observer in self.observers]

            def replied(reply: Reply) -> None:
                for receive in receivers:
                    receive(reply)

            yield replied

    def sealed(self, trace: WindowTrace) -> None:
        """Pass a sealed window to each observer."""
        for observer in self.observers:
            observer.sealed(trace)

    def text(self) -> str:
        """The metrics of all observers that have some, in Prometheus text format."""
        return "".join(
            observer.text() for observer in self.observers if isinstance(observer, MetricsText)
        )


# OpenTelemetry's own variables; if neither is set, nothing is exported.
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
SERVICE: Final = "OTEL_SERVICE_NAME"


@contextmanager
def serving_observer(environment: Mapping[str, str] | None = None) -> Iterator[ObserverGroup]:
    """Metrics for `/metrics`, and spans over OTLP/HTTP if an endpoint is set.

    Pending spans are exported at the end.
    """
    from crp_integrations.observability.prometheus import Metrics

    variables = os.environ if environment is None else environment
    observers: list[Observer] = [Metrics()]
    if not any(variables.get(name) for name in ENDPOINTS):
        yield ObserverGroup(*observers)
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtra("observability", "spans over OTLP") from error
    from crp_integrations.observability.otel import OpenTelemetry

    resource = Resource.create({"service.name": variables.get(SERVICE) or "crp"})
    tracers = TracerProvider(resource=resource)
    # The exporter reads the endpoint, its headers and its certificates from the environment.
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield ObserverGroup(*observers, OpenTelemetry(tracers))
    finally:
        tracers.shutdown()

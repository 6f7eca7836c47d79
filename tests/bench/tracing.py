"""What tracing costs beside the assembly of a context with its question's embedding.

Real passages are put into a store on disk and asked about, each question embedded anew. The
observers are OpenTelemetry spans and metrics through the SDK, batched to an exporter that throws
them away, and Prometheus metrics besides. What they take is added up by itself, call by call,
since it is less than the noise of an assembly; so is what is put together for the journal, which
is written with observers or without. Times are of the processor, medians over the questions.

    python -m tests.bench.tracing --facts 2000 --questions 60
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from crp_integrations.governance.window_trace import Observer, WindowTrace
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.observability.observers import ObserverGroup
from crp_integrations.observability.otel import OpenTelemetry
from crp_integrations.observability.prometheus import Metrics
from crp_integrations.relay import turn, window_seal
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.settings import DispatchSettings
from tests.bench.fabric_corpus import Kind, embedder_of
from tests.bench.made_up import passages, question
from tests.bench.measure import has_one_thread, in_one_thread, loop_ms

MODULE = "tests.bench.tracing"
WARM = 5
BUDGET = 2_048
# What guard and trace together are to take at most, as a share of a whole assembly.
WANTED = 0.10


@dataclass(frozen=True, slots=True)
class TracingResult:
    """What was measured; CPU milliseconds, medians over the questions.

    Attributes:
        assemble_ms: gathering, ranking, packing and rendering, with the question's embedding.
        steps_ms: of the observers within that.
        sealed_ms: of the observers when a window is sealed: its pack's trace, its evaluation.
        ledger_ms: what is put together for the pack's trace in the journal, a window.
        share: of these three together, of an assembly.
        window_ms: a whole window of the extractive model, examined and sealed.
        window_trace_ms: of the observers within that, every step and the model call too.
        window_share: of that and the journal's, of a window.
        all_share: of the same, of an assembly.
        loop_ms: the loop that hours are compared by, before and after.
    """

    facts: int
    questions: int
    embedder: str
    assemble_ms: float
    steps_ms: float
    sealed_ms: float
    ledger_ms: float
    share: float
    window_ms: float
    window_trace_ms: float
    window_share: float
    all_share: float
    loop_ms: tuple[float, float]


class Nowhere(SpanExporter):
    """Takes spans and forgets them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Say that it went well."""
        return SpanExportResult.SUCCESS


class Timed:
    """An observer with the time that it takes, in milliseconds."""

    def __init__(self, observer: Observer) -> None:
        self.ms = self.sealed_ms = 0.0
        self.windows = 0
        self._observer = observer

    def step(self, name: str) -> AbstractContextManager[None]:
        """A step, its making, its beginning and its end timed."""
        began = time.thread_time()
        inner = self._observer.step(name)
        self.ms += (time.thread_time() - began) * 1000
        return _Around(self, inner)

    @contextmanager
    def calling(self, call: ModelCall) -> Iterator[Callable[[Reply], None]]:
        """A model call, its beginning, its reply and its end timed."""
        inner = self._observer.calling(call)
        with self._counted():
            told = inner.__enter__()

        def replied(reply: Reply) -> None:
            with self._counted():
                told(reply)

        yield replied
        with self._counted():
            inner.__exit__(None, None, None)

    def sealed(self, trace: WindowTrace) -> None:
        """A window, timed."""
        self.windows += 1
        before = self.ms
        with self._counted():
            self._observer.sealed(trace)
        self.sealed_ms += self.ms - before

    @contextmanager
    def _counted(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.ms += (time.thread_time() - began) * 1000


class _Around:
    """A step of a timed observer; by itself, so that little of the timing is timed."""

    __slots__ = ("_inner", "_of")

    def __init__(self, of: Timed, inner: AbstractContextManager[None]) -> None:
        self._of, self._inner = of, inner

    def __enter__(self) -> None:
        began = time.thread_time()
        self._inner.__enter__()
        self._of.ms += (time.thread_time() - began) * 1000

    def __exit__(self, *error: object) -> None:
        began = time.thread_time()
        self._inner.__exit__(None, None, None)
        self._of.ms += (time.thread_time() - began) * 1000


def run(facts: int = 2_000, questions: int = 60, embedder: Kind = "minilm") -> TracingResult:
    """Measure.

    Args:
        facts: passages in the store.
        embedder: `minilm`, or `hash` for trying this out.
    """
    before = round(loop_ms(), 3)
    found = passages(facts)
    asked = [question(one) for one in found[:: max(1, facts // (questions + WARM))]]
    tracers, metered = TracerProvider(), MeterProvider()
    tracers.add_span_processor(BatchSpanProcessor(Nowhere()))
    observer = Timed(ObserverGroup(OpenTelemetry(tracers, metered), Metrics()))
    ledger = [0.0]
    once = DispatchSettings(redispatches=0, continue_incomplete=False)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        relay = stack.enter_context(
            Relay.open(
                folder / "kb",
                embedder=embedder_of(embedder),
                model="extractive",
                dispatch=once,
                tracer=observer,
            )
        )
        relay.fabric.add([one.text for one in found])
        stack.enter_context(_ledger(ledger))
        rows = [_one(relay, query, observer, ledger) for query in asked[: questions + WARM]]
    tracers.shutdown()
    metered.shutdown()
    assemble, steps, sealed, written, whole, traced = (
        median(column) for column in zip(*rows[WARM:], strict=True)
    )
    return TracingResult(
        facts=facts,
        questions=len(rows) - WARM,
        embedder=embedder,
        assemble_ms=round(assemble, 3),
        steps_ms=round(steps, 3),
        sealed_ms=round(sealed, 3),
        ledger_ms=round(written, 3),
        share=round((steps + sealed + written) / assemble, 4),
        window_ms=round(whole, 3),
        window_trace_ms=round(traced, 3),
        window_share=round((traced + written) / whole, 4),
        all_share=round((traced + written) / assemble, 4),
        loop_ms=(before, round(loop_ms(), 3)),
    )


def _one(
    relay: Relay, query: str, observer: Timed, ledger: list[float]
) -> tuple[float, float, float, float, float, float]:
    """An assembly and the observers' steps in it; of a window what is sealed, written, all."""
    observer.ms = observer.sealed_ms = ledger[0] = 0.0
    began = time.process_time()
    relay.turn(query, budget_tokens=BUDGET).preview()
    assembled, steps = (time.process_time() - began) * 1000, observer.ms
    observer.ms, observer.windows = 0.0, 0
    began = time.process_time()
    relay.ask(query, budget_tokens=BUDGET)
    whole = (time.process_time() - began) * 1000
    # A question that is answered in parts has several windows.
    each = observer.windows
    of_windows = (observer.sealed_ms, ledger[0], whole, observer.ms)
    sealed, written, window_ms, traced = (taken / each for taken in of_windows)
    return assembled, steps, sealed, written, window_ms, traced


@contextmanager
def _ledger(into: list[float]) -> Iterator[None]:
    """Add up the times of what makes a pack's trace, for a while."""
    with ExitStack() as stack:
        for owner, name in (
            (window_seal, "pack_columns"),
            (window_seal, "trace_of"),
            (turn, "invocation_hash"),
        ):
            plain = getattr(owner, name)
            stack.callback(setattr, owner, name, plain)
            setattr(owner, name, _timed(plain, into))
        yield


def _timed(plain: Callable[..., object], into: list[float]) -> Callable[..., object]:
    def timed(*args: object) -> object:
        began = time.thread_time()
        try:
            return plain(*args)
        finally:
            into[0] += (time.thread_time() - began) * 1000

    return timed


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the status is 1 above a tenth of an assembly."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--facts", type=int, default=2_000)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--embedder", choices=("minilm", "hash"), default="minilm")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    if not has_one_thread():
        words = ["--facts", str(given.facts), "--questions", str(given.questions)]
        words += ["--embedder", given.embedder]
        return in_one_thread(MODULE, [*words, *(["--json", str(given.json)] if given.json else [])])
    result = run(given.facts, given.questions, given.embedder)
    report = json.dumps(asdict(result), indent=2)
    print(report)
    if given.json:
        given.json.write_text(report + "\n", encoding="utf-8")
    return int(result.share > WANTED)


if __name__ == "__main__":
    raise SystemExit(main())

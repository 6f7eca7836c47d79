"""Spans and metrics of OpenTelemetry; attributes hold ids, counts, hashes and scores alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from typing import TypeAlias

from crp_integrations.audit.drafts import name_or_hash
from crp_integrations.errors import MissingExtra
from crp_integrations.governance.window_evaluation import WindowEvaluation
from crp_integrations.governance.window_trace import JudgeTrace, PackTrace, WindowTrace
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.observability import conventions as names

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
except ImportError as error:
    raise MissingExtra("observability", "crp_integrations.observability.otel") from error


Value: TypeAlias = str | int | float | bool

SCOPE = "crp_integrations"
PACKAGE = "crp-integrations"
# Steps within others: the stages of the provenance engine, the words of a question, a receipt.
DETAILS = ("dpe.", "fabric.words", "receipt")
# Of these, what waits for a model: it has its span.
WAITING = ("dpe.judge",)
# What a sampler is told of the two spans of a sealed window.
PACK: Mapping[str, Value] = {names.OPERATION: "retrieval", names.KIND: "RETRIEVER"}
EVALUATION: Mapping[str, Value] = {names.KIND: "EVALUATOR"}
# The SDK keeps 128 attributes of a span and drops the oldest ones beyond. So many items have their
# own, three each; where there are more, all of them stand in one attribute of JSON.
MOST_ITEMS = 24


class OpenTelemetry:
    """An observer that writes spans and metrics; safe under threads.

    Spec: Summit §Evaluation & Observability
    """

    def __init__(
        self,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
        *,
        items: int = MOST_ITEMS,
        details: bool = False,
    ) -> None:
        """Write through providers of the SDK."""
        release = version(PACKAGE)
        self._tracer = (tracers or trace.get_tracer_provider()).get_tracer(SCOPE, release)
        meter = (meters or metrics.get_meter_provider()).get_meter(SCOPE, release)
        self._items = items
        self._details = details
        self._duration = meter.create_histogram(
            names.DURATION,
            unit="s",
            description="Time of a model call.",
            explicit_bucket_boundaries_advisory=names.DURATION_BOUNDS,
        )
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="Tokens of a model call.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BOUNDS,
        )
        self._windows = meter.create_counter(
            "crp.windows", unit="{window}", description="Windows that were sealed."
        )
        self._judged = meter.create_counter(
            "crp.judge.calls", unit="{call}", description="Calls of the judge."
        )
        self._judging = meter.create_histogram(
            "crp.judge.duration",
            unit="s",
            description="Time of an answer's judge, all its calls.",
            explicit_bucket_boundaries_advisory=names.DURATION_BOUNDS,
        )
        self._judge_tokens = meter.create_histogram(
            "crp.judge.token.usage",
            unit="{token}",
            description="Tokens of an answer's judge.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BOUNDS,
        )
        self._scores = meter.create_histogram(
            "crp.evaluation.score",
            unit="1",
            description="Scores of a window's evaluation.",
            explicit_bucket_boundaries_advisory=[tenth / 10 for tenth in range(11)],
        )

    def step(self, name: str) -> AbstractContextManager[None]:
        """A span around a step, the parent of those within it."""
        detail = name.startswith(DETAILS) and name not in WAITING
        return nullcontext() if detail and not self._details else _step_span(self._tracer, name)

    @contextmanager
    def calling(self, call: ModelCall) -> Iterator[Callable[[Reply], None]]:
        """A span `chat MODEL` around a model call.

        It is nobody's parent, since a stream is left and entered again by its reader.
        """
        model = name_or_hash(call.model)
        said: dict[str, Value] = {
            names.OPERATION: "chat",
            names.PROVIDER: names.provider_of(model),
            names.REQUEST_MODEL: model,
        }
        span = self._tracer.start_span(
            f"chat {model}",
            kind=SpanKind.CLIENT,
            attributes={
                **said,
                names.KIND: "LLM",
                names.MODEL_NAME: model,
                f"{names.OWN}purpose": call.purpose.value,
            },
        )
        began = time.perf_counter()

        def replied(reply: Reply) -> None:
            used = reply.usage
            said[names.RESPONSE_MODEL] = name_or_hash(reply.model or model)
            span.set_attributes(
                {
                    names.RESPONSE_MODEL: said[names.RESPONSE_MODEL],
                    names.FINISH_REASONS: [name_or_hash(reply.finish_reason)],
                    names.INPUT_TOKENS: used.prompt_tokens,
                    names.OUTPUT_TOKENS: used.completion_tokens,
                    names.PROMPT_TOKENS: used.prompt_tokens,
                    names.COMPLETION_TOKENS: used.completion_tokens,
                    names.TOTAL_TOKENS: used.total_tokens,
                }
            )
            if used.cost_usd is not None:
                span.set_attribute(names.COST, used.cost_usd)
            for kind, count in (("input", used.prompt_tokens), ("output", used.completion_tokens)):
                if count:
                    self._tokens.record(count, {**said, names.TOKEN_TYPE: kind})

        try:
            yield replied
        except BaseException as error:
            _mark_failed(span, error)
            if not isinstance(error, GeneratorExit):
                said[names.ERROR_TYPE] = type(error).__name__
            raise
        finally:
            self._duration.record(time.perf_counter() - began, said)
            span.end()

    def sealed(self, trace: WindowTrace) -> None:
        """A span of the window's pack, and one of its evaluation."""
        self._windows.add(1, {"outcome": trace.outcome, "strategy": trace.strategy})
        identity: dict[str, Value] = {
            names.CONVERSATION: trace.session_id,
            names.SESSION: trace.session_id,
            "crp.window.id": trace.window_id,
            "crp.window.outcome": trace.outcome,
            "crp.window.hmac": trace.window_hmac,
            "crp.report.hash": trace.report_hash,
            "crp.receipt.id": trace.receipt_id,
        }
        # The whole window is found by these, from whatever span is around it.
        around = current_span()
        if around.is_recording():
            around.set_attributes(identity)
        if trace.pack is not None:
            span = self._tracer.start_span("retrieval context_pack", attributes=PACK)
            # What a sampler left out is not put together.
            if span.is_recording():
                span.set_attributes({**identity, **pack_attributes(trace.pack, self._items)})
            span.end()
        if trace.evaluated is not None:
            self._evaluated(trace.evaluated, identity)
        if trace.judged is not None and not trace.judged.skipped:
            self._judged_one(trace.judged)

    def _judged_one(self, judged: JudgeTrace) -> None:
        replied = judged.asked + judged.cached - judged.failed
        for ended, calls in (("read", replied), ("failed", judged.failed)):
            self._judged.add(calls, {"ended": ended})
        if judged.asked:
            self._judging.record(judged.milliseconds / 1000)
        for kind, count in (("input", judged.prompt_tokens), ("output", judged.completion_tokens)):
            if count:
                self._judge_tokens.record(count, {names.TOKEN_TYPE: kind})

    def _evaluated(self, found: WindowEvaluation, identity: Mapping[str, Value]) -> None:
        told = scores(found)
        for name, score in told.items():
            self._scores.record(score, {names.EVALUATION_NAME: name})
        span = self._tracer.start_span("evaluation context_pack", attributes=EVALUATION)
        if span.is_recording():
            span.set_attributes(
                {
                    **identity,
                    "crp.risk.level": found.risk_level.value,
                    "crp.quality.tier": found.quality_tier.value,
                    "crp.citations": found.citations,
                    "crp.citations.held": found.citations_held,
                }
            )
            labels = {"risk": found.risk_level.value, "consistency": _consistency(found)}
            for name, score in told.items():
                said: dict[str, Value] = {
                    names.EVALUATION_NAME: name,
                    names.EVALUATION_SCORE: score,
                }
                if name in labels:
                    said[names.EVALUATION_LABEL] = labels[name]
                span.add_event(names.EVALUATION_EVENT, said)
        span.end()


@contextmanager
def _step_span(tracer: Tracer, name: str) -> Iterator[None]:
    """A span around a step, the parent of those within it."""
    with tracer.start_as_current_span(
        names.OWN + name,
        attributes={names.KIND: names.kind_of(name)},
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except BaseException as error:
            _mark_failed(span, error)
            raise


def current_span() -> Span:
    """The span around what runs now."""
    return trace.get_current_span()


def scores(found: WindowEvaluation) -> dict[str, float]:
    """The scores of an evaluation by name; what could not be counted is left out."""
    told: dict[str, float | None] = {
        "grounding": found.grounding,
        "fidelity": found.fidelity,
        "entailment": found.entailment,
        "completeness": found.completeness,
        "risk": found.risk_score,
        "consistency": float(found.consistent),
        "citation_accuracy": found.citation_accuracy,
        "precision_proxy": found.precision_proxy,
        "recall_proxy": found.recall_proxy,
    }
    return {name: score for name, score in told.items() if score is not None}


def pack_attributes(pack: PackTrace, most: int) -> dict[str, Value]:
    """A pack's trace as attributes of a span."""
    items = pack.items
    scored = [{"id": item.id, "score": item.score} for item in items]
    described = [
        {"source": item.source, "security_label": item.label, "tokens": item.tokens}
        for item in items
    ]
    said: dict[str, Value] = {
        **PACK,
        names.RETRIEVAL_DOCUMENTS: json.dumps(scored),
        "crp.pack.etag": pack.etag,
        "crp.pack.state_hash": pack.state_hash,
        "crp.pack.items": len(items),
        "crp.pack.held": pack.held,
        "crp.pack.available": pack.available,
        "crp.pack.tokens": pack.token_count,
        "crp.pack.budget_tokens": pack.token_budget,
        "crp.pack.assembly_us": pack.assembly_us,
        "crp.pack.invocation_hash": pack.invocation_hash,
        "crp.pack.ledger_hmac": pack.ledger_hmac,
    }
    if len(items) > most:
        said["crp.pack.documents"] = json.dumps(
            [{**one, **more} for one, more in zip(scored, described, strict=True)]
        )
    for place, item in enumerate(items[:most]):
        at = f"{names.DOCUMENTS}.{place}."
        said[at + names.DOCUMENT_ID] = item.id
        said[at + names.DOCUMENT_SCORE] = item.score
        said[at + names.DOCUMENT_METADATA] = json.dumps(described[place])
    for drop in pack.drops:
        at = f"crp.drops.{drop.reason.value}."
        said[at + "count"] = drop.count
        said[at + "tokens"] = drop.tokens
        said[at + "ids_hash"] = drop.ids_hash
    return said


def _consistency(found: WindowEvaluation) -> str:
    return "consistent" if found.consistent else "inconsistent"


def _mark_failed(span: Span, error: BaseException) -> None:
    """Mark a span by the error's name; its message could quote a text.

    A reader who stops listening to a stream is no error.
    """
    if isinstance(error, GeneratorExit):
        span.set_attribute(names.STOPPED, True)
        return
    span.set_attribute(names.ERROR_TYPE, type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, type(error).__name__))

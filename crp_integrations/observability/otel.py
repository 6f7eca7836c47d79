"""Spans and metrics for OpenTelemetry; attributes are only ids, counts, hashes and scores."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from typing import Final, TypeAlias

from crp_integrations.audit.drafts import name_or_hash
from crp_integrations.errors import MissingExtra
from crp_integrations.governance.window_trace import (
    JudgeTrace,
    PackTrace,
    WindowEvaluation,
    WindowTrace,
)
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.observability.observers import RUN_SPANS

# Names of OpenTelemetry's GenAI conventions.
OPERATION: Final = "gen_ai.operation.name"
RESPONSE_MODEL: Final = "gen_ai.response.model"
TOKEN_TYPE: Final = "gen_ai.token.type"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
ERROR_TYPE: Final = "error.type"
# The buckets that the conventions define for the two metrics.
DURATION_BOUNDS: Final = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
TOKEN_BOUNDS: Final = (
    1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
)  # fmt: skip

# Name of the OpenInference conventions.
KIND: Final = "openinference.span.kind"

# Span kinds of steps by prefix of their name; the kind of all others is CHAIN.
KINDS: Final = (
    ("agent.", "AGENT"),
    ("guard", "GUARDRAIL"),
    ("gather", "RETRIEVER"),
    ("rerank", "RERANKER"),
    ("dpe.", "EVALUATOR"),
    ("fabric.embed", "EMBEDDING"),
)


@cache
def kind_of(step: str) -> str:
    """The OpenInference kind of a step.

    >>> kind_of("gather"), kind_of("dpe.4.entailment"), kind_of("close")
    ('RETRIEVER', 'EVALUATOR', 'CHAIN')
    """
    return next((kind for start, kind in KINDS if step.startswith(start)), "CHAIN")


def provider_of(model: str) -> str:
    """The provider in a LiteLLM model name; `crp` for the extractive model, else `unknown`.

    >>> provider_of("azure/gpt-4o"), provider_of("extractive"), provider_of("gpt-4o-mini")
    ('azure', 'crp', 'unknown')
    """
    provider = "crp" if model == "extractive" else "unknown"
    return model.partition("/")[0] if "/" in model else provider


try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import (
        Span,
        SpanKind,
        Status,
        StatusCode,
        TracerProvider,
        set_span_in_context,
    )
except ImportError as error:
    raise MissingExtra("observability", "crp_integrations.observability.otel") from error


Value: TypeAlias = str | int | float | bool

SCOPE = "crp_integrations"
# Prefixes of short inner steps, which get no span: provenance stages, question words, receipts.
DETAILS = ("dpe.", "fabric.words", "receipt")
# The exception, which gets a span because it waits for a model.
WAITING = "dpe.judge"
# Attributes that a sampler sees of the two spans within a window's span.
PACK: Mapping[str, Value] = {OPERATION: "retrieval", KIND: "RETRIEVER"}
EVALUATION: Mapping[str, Value] = {KIND: "EVALUATOR"}
SCORES = (
    "grounding fidelity entailment completeness citation_accuracy precision_proxy recall_proxy"
).split()
PACK_FIELDS = "etag state_hash held available assembly_us invocation_hash ledger_hmac".split()
# Maximum number of items with separate attributes (three each), since the SDK drops the oldest
# beyond 128. With more items, one JSON attribute lists all of them.
MAX_ITEMS = 24


class OpenTelemetry:
    """An observer that writes spans and metrics; thread-safe.

    Spec: Summit §Evaluation & Observability
    """

    def __init__(
        self,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
    ) -> None:
        """Use these providers of the SDK, by default the global ones."""
        release = version("crp-integrations")
        self._tracer = (tracers or trace.get_tracer_provider()).get_tracer(SCOPE, release)
        meter = (meters or metrics.get_meter_provider()).get_meter(SCOPE, release)

        def histogram(name: str, unit: str, description: str, bounds: Sequence[float]) -> Histogram:
            return meter.create_histogram(
                name, unit, description, explicit_bucket_boundaries_advisory=bounds
            )

        self._duration = histogram(
            "gen_ai.client.operation.duration", "s", "Time of a model call.", DURATION_BOUNDS
        )
        self._tokens = histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens of a model call.", TOKEN_BOUNDS
        )
        self._windows = meter.create_counter(
            "crp.windows", unit="{window}", description="Windows that were sealed."
        )
        self._judged = meter.create_counter(
            "crp.judge.calls", unit="{call}", description="Calls of the judge."
        )
        self._judging = histogram(
            "crp.judge.duration", "s", "Time of an answer's judge, all its calls.", DURATION_BOUNDS
        )
        self._judge_tokens = histogram(
            "crp.judge.token.usage", "{token}", "Tokens of an answer's judge.", TOKEN_BOUNDS
        )
        tenths = [tenth / 10 for tenth in range(11)]
        self._scores = histogram(
            "crp.evaluation.score", "1", "Scores of a window's evaluation.", tenths
        )

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A span around a step; the parent of spans within it."""
        if name.startswith(DETAILS) and name != WAITING:
            yield
            return
        with self._tracer.start_as_current_span(
            f"crp.{name}",
            _around(),
            attributes={KIND: kind_of(name)},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                _mark_failed(span, error)
                raise

    @contextmanager
    def calling(self, call: ModelCall) -> Iterator[Callable[[Reply], None]]:
        """A span `chat MODEL` around a model call.

        It is not made the current span, since the reader of a stream leaves and re-enters it.
        """
        model = name_or_hash(call.model)
        attributes: dict[str, Value] = {
            OPERATION: "chat",
            "gen_ai.provider.name": provider_of(model),
            "gen_ai.request.model": model,
        }
        span = self._tracer.start_span(
            f"chat {model}",
            _around(),
            kind=SpanKind.CLIENT,
            attributes={
                **attributes,
                KIND: "LLM",
                "llm.model_name": model,
                "crp.purpose": call.purpose.value,
            },
        )
        began = time.perf_counter()

        def replied(reply: Reply) -> None:
            used = reply.usage
            attributes[RESPONSE_MODEL] = name_or_hash(reply.model or model)
            span.set_attributes(
                {
                    RESPONSE_MODEL: attributes[RESPONSE_MODEL],
                    "gen_ai.response.finish_reasons": [name_or_hash(reply.finish_reason)],
                    "gen_ai.usage.input_tokens": used.prompt_tokens,
                    "gen_ai.usage.output_tokens": used.completion_tokens,
                    "llm.token_count.prompt": used.prompt_tokens,
                    "llm.token_count.completion": used.completion_tokens,
                    "llm.token_count.total": used.total_tokens,
                }
            )
            if used.cost_usd is not None:
                span.set_attribute("llm.cost.total", used.cost_usd)
            for kind, count in (("input", used.prompt_tokens), ("output", used.completion_tokens)):
                if count:
                    self._tokens.record(count, {**attributes, TOKEN_TYPE: kind})

        try:
            yield replied
        except BaseException as error:
            _mark_failed(span, error)
            if not isinstance(error, GeneratorExit):
                attributes[ERROR_TYPE] = type(error).__name__
            raise
        finally:
            self._duration.record(time.perf_counter() - began, attributes)
            span.end()

    def sealed(self, trace: WindowTrace) -> None:
        """Write a span for the window, with inner spans for its pack and its evaluation."""
        self._windows.add(1, {"outcome": trace.outcome, "strategy": trace.strategy})
        identity: dict[str, Value] = {
            "gen_ai.conversation.id": trace.session_id,
            "session.id": trace.session_id,
            "crp.window.id": trace.window_id,
            "crp.window.outcome": trace.outcome,
            "crp.window.hmac": trace.window_hmac,
            "crp.report.hash": trace.report_hash,
            "crp.receipt.id": trace.receipt_id,
        }
        began = time.time_ns() - trace.duration_us * 1_000
        window = self._tracer.start_span(
            "crp.window", _around(), attributes={KIND: "CHAIN"}, start_time=began
        )
        if window.is_recording():
            window.set_attributes({**identity, **_window_attributes(trace)})
        if trace.error:
            window.set_status(Status(StatusCode.ERROR, trace.error))
        within = set_span_in_context(window)
        if trace.pack is not None:
            span = self._tracer.start_span("retrieval context_pack", within, attributes=PACK)
            # Skip the attributes of a span that the sampler dropped.
            if span.is_recording():
                span.set_attributes({**identity, **pack_attributes(trace.pack)})
            span.end()
        if trace.evaluated is not None:
            self._evaluated(trace.evaluated, identity, within)
        window.end()
        if trace.judged is not None and not trace.judged.skipped:
            self._judged_one(trace.judged)

    def _judged_one(self, judged: JudgeTrace) -> None:
        for ended in ("read", "failed", "refused"):
            calls = getattr(judged, ended)
            self._judged.add(calls, {"ended": ended})
        if judged.asked:
            self._judging.record(judged.milliseconds / 1000)
        for kind, count in (("input", judged.prompt_tokens), ("output", judged.completion_tokens)):
            if count:
                self._judge_tokens.record(count, {TOKEN_TYPE: kind})

    def _evaluated(
        self, evaluation: WindowEvaluation, identity: Mapping[str, Value], within: Context
    ) -> None:
        values = scores(evaluation)
        for name, score in values.items():
            self._scores.record(score, {EVALUATION_NAME: name})
        span = self._tracer.start_span("evaluation context_pack", within, attributes=EVALUATION)
        if span.is_recording():
            span.set_attributes(
                {
                    **identity,
                    "crp.risk.level": evaluation.risk_level.value,
                    "crp.quality.tier": evaluation.quality_tier.value,
                    "crp.citations": evaluation.citations,
                    "crp.citations.held": evaluation.citations_held,
                }
            )
            consistency = "consistent" if evaluation.consistent else "inconsistent"
            labels = {"risk": evaluation.risk_level.value, "consistency": consistency}
            for name, score in values.items():
                attributes: dict[str, Value] = {
                    EVALUATION_NAME: name,
                    "gen_ai.evaluation.score.value": score,
                }
                if name in labels:
                    attributes["gen_ai.evaluation.score.label"] = labels[name]
                span.add_event("gen_ai.evaluation.result", attributes)
        span.end()


def current_span() -> Span:
    """The innermost current span.

    This is OpenTelemetry's current span or that of a framework in `RUN_SPANS`, whichever began
    last.
    """
    spans: list[Span] = [trace.get_current_span(), *(find() for find in RUN_SPANS)]
    return max((span for span in spans if span is not None), key=_age)


def _age(span: Span) -> tuple[int, bool]:
    # A span that is not recorded or is of another process has no start time.
    return getattr(span, "start_time", None) or 0, span.get_span_context().is_valid


def _around() -> Context:
    return set_span_in_context(current_span())


def _window_attributes(trace: WindowTrace) -> dict[str, Value]:
    """Attributes of a window: its place in the session and the result of the examination."""
    attributes: dict[str, Value] = {
        "crp.window.number": trace.window_number,
        "crp.agent.depth": trace.depth,
        "crp.agent.turn": trace.turn,
        "crp.session.parent": trace.parent_session,
    }
    if trace.risk_level:
        attributes |= {
            "crp.risk.level": trace.risk_level,
            "crp.claims.read": trace.claims.read,
            "crp.claims.flagged": trace.claims.wrong,
            "crp.claims.unread": trace.claims.unread,
            "crp.distortions": trace.distortions,
        }
    return {**attributes, ERROR_TYPE: trace.error} if trace.error else attributes


def scores(evaluation: WindowEvaluation) -> dict[str, float]:
    """The scores of an evaluation by name; None values are left out."""
    values: dict[str, float | None] = {name: getattr(evaluation, name) for name in SCORES}
    values |= {"risk": evaluation.risk_score, "consistency": float(evaluation.consistent)}
    return {name: score for name, score in values.items() if score is not None}


def pack_attributes(pack: PackTrace, most: int = MAX_ITEMS) -> dict[str, Value]:
    """A pack's trace as attributes of a span."""
    items = pack.items
    scored = [{"id": item.id, "score": item.score} for item in items]
    described = [
        {"source": item.source, "security_label": item.label, "tokens": item.tokens}
        for item in items
    ]
    attributes: dict[str, Value] = {
        **PACK,
        "gen_ai.retrieval.documents": json.dumps(scored),
        "crp.pack.items": len(items),
        "crp.pack.tokens": pack.token_count,
        "crp.pack.budget_tokens": pack.token_budget,
        **{f"crp.pack.{name}": getattr(pack, name) for name in PACK_FIELDS},
    }
    if len(items) > most:
        attributes["crp.pack.documents"] = json.dumps(
            [{**document, **more} for document, more in zip(scored, described, strict=True)]
        )
    for place, item in enumerate(items[:most]):
        at = f"{'retrieval.documents'}.{place}."
        attributes[at + "document.id"] = item.id
        attributes[at + "document.score"] = item.score
        attributes[at + "document.metadata"] = json.dumps(described[place])
    for drop in pack.drops:
        at = f"crp.drops.{drop.reason.value}."
        attributes[at + "count"] = drop.count
        attributes[at + "tokens"] = drop.tokens
        attributes[at + "ids_hash"] = drop.ids_hash
    return attributes


def _mark_failed(span: Span, error: BaseException) -> None:
    """Mark a span as failed with the error's type only, since its message could quote a text.

    A reader that stops reading a stream early is not an error.
    """
    if isinstance(error, GeneratorExit):
        span.set_attribute("crp.stopped", True)
        return
    span.set_attribute(ERROR_TYPE, type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, type(error).__name__))

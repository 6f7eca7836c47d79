"""Spans and metrics of OpenTelemetry; attributes hold ids, counts, hashes and scores alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
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

# OpenTelemetry, GenAI.
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"
RETRIEVAL_DOCUMENTS: Final = "gen_ai.retrieval.documents"
EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
ERROR_TYPE: Final = "error.type"
DURATION: Final = "gen_ai.client.operation.duration"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"
# The buckets that the conventions give for the two metrics.
DURATION_BOUNDS: Final = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
TOKEN_BOUNDS: Final = (
    1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
)  # fmt: skip

# OpenInference.
KIND: Final = "openinference.span.kind"
SESSION: Final = "session.id"
DOCUMENTS: Final = "retrieval.documents"
DOCUMENT_ID: Final = "document.id"
DOCUMENT_SCORE: Final = "document.score"
DOCUMENT_METADATA: Final = "document.metadata"
MODEL_NAME: Final = "llm.model_name"
PROMPT_TOKENS: Final = "llm.token_count.prompt"
COMPLETION_TOKENS: Final = "llm.token_count.completion"
TOTAL_TOKENS: Final = "llm.token_count.total"
COST: Final = "llm.cost.total"

# Ours.
OWN: Final = "crp."
STOPPED: Final = "crp.stopped"
# The kind of span of a step, by the beginning of its name; the others are parts of a chain.
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
    """The provider of a model's string as LiteLLM takes it; `crp` for the extractive model.

    >>> provider_of("azure/gpt-4o"), provider_of("extractive"), provider_of("gpt-4o-mini")
    ('azure', 'crp', 'unknown')
    """
    if model == "extractive":
        return "crp"
    return model.partition("/")[0] if "/" in model else "unknown"


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
PACK: Mapping[str, Value] = {OPERATION: "retrieval", KIND: "RETRIEVER"}
EVALUATION: Mapping[str, Value] = {KIND: "EVALUATOR"}
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
            DURATION,
            unit="s",
            description="Time of a model call.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        )
        self._tokens = meter.create_histogram(
            TOKEN_USAGE,
            unit="{token}",
            description="Tokens of a model call.",
            explicit_bucket_boundaries_advisory=TOKEN_BOUNDS,
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
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        )
        self._judge_tokens = meter.create_histogram(
            "crp.judge.token.usage",
            unit="{token}",
            description="Tokens of an answer's judge.",
            explicit_bucket_boundaries_advisory=TOKEN_BOUNDS,
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
            OPERATION: "chat",
            PROVIDER: provider_of(model),
            REQUEST_MODEL: model,
        }
        span = self._tracer.start_span(
            f"chat {model}",
            kind=SpanKind.CLIENT,
            attributes={
                **said,
                KIND: "LLM",
                MODEL_NAME: model,
                f"{OWN}purpose": call.purpose.value,
            },
        )
        began = time.perf_counter()

        def replied(reply: Reply) -> None:
            used = reply.usage
            said[RESPONSE_MODEL] = name_or_hash(reply.model or model)
            span.set_attributes(
                {
                    RESPONSE_MODEL: said[RESPONSE_MODEL],
                    FINISH_REASONS: [name_or_hash(reply.finish_reason)],
                    INPUT_TOKENS: used.prompt_tokens,
                    OUTPUT_TOKENS: used.completion_tokens,
                    PROMPT_TOKENS: used.prompt_tokens,
                    COMPLETION_TOKENS: used.completion_tokens,
                    TOTAL_TOKENS: used.total_tokens,
                }
            )
            if used.cost_usd is not None:
                span.set_attribute(COST, used.cost_usd)
            for kind, count in (("input", used.prompt_tokens), ("output", used.completion_tokens)):
                if count:
                    self._tokens.record(count, {**said, TOKEN_TYPE: kind})

        try:
            yield replied
        except BaseException as error:
            _mark_failed(span, error)
            if not isinstance(error, GeneratorExit):
                said[ERROR_TYPE] = type(error).__name__
            raise
        finally:
            self._duration.record(time.perf_counter() - began, said)
            span.end()

    def sealed(self, trace: WindowTrace) -> None:
        """A span of the window's pack, and one of its evaluation."""
        self._windows.add(1, {"outcome": trace.outcome, "strategy": trace.strategy})
        identity: dict[str, Value] = {
            CONVERSATION: trace.session_id,
            SESSION: trace.session_id,
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
                self._judge_tokens.record(count, {TOKEN_TYPE: kind})

    def _evaluated(self, found: WindowEvaluation, identity: Mapping[str, Value]) -> None:
        told = scores(found)
        for name, score in told.items():
            self._scores.record(score, {EVALUATION_NAME: name})
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
                    EVALUATION_NAME: name,
                    EVALUATION_SCORE: score,
                }
                if name in labels:
                    said[EVALUATION_LABEL] = labels[name]
                span.add_event(EVALUATION_EVENT, said)
        span.end()


@contextmanager
def _step_span(tracer: Tracer, name: str) -> Iterator[None]:
    """A span around a step, the parent of those within it."""
    with tracer.start_as_current_span(
        OWN + name,
        attributes={KIND: kind_of(name)},
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
        RETRIEVAL_DOCUMENTS: json.dumps(scored),
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
        at = f"{DOCUMENTS}.{place}."
        said[at + DOCUMENT_ID] = item.id
        said[at + DOCUMENT_SCORE] = item.score
        said[at + DOCUMENT_METADATA] = json.dumps(described[place])
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
        span.set_attribute(STOPPED, True)
        return
    span.set_attribute(ERROR_TYPE, type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, type(error).__name__))

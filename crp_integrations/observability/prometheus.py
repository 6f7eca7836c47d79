"""Metrics of sealed windows, steps and evaluations for Prometheus, in a separate registry.

No label contains a tenant, a session, a model or a text: all labels are enumerated words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from crp_integrations.errors import MissingExtra
from crp_integrations.governance.window_trace import (
    JudgeTrace,
    PackTrace,
    WindowEvaluation,
    WindowTrace,
)
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.observability.evaluations import Feedback

try:
    from prometheus_client import (
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        generate_latest,
        write_to_textfile,
    )
except ImportError as error:
    raise MissingExtra("observability", "crp_integrations.observability.prometheus") from error


# Bounds of histogram buckets, in seconds, shares of 1, and tokens.
STEP_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
CALL_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
SHARE_BOUNDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
TOKEN_BOUNDS: Final = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
# Name of the step that gathers, ranks and packs a context.
ASSEMBLY: Final = "envelope"


class Metrics:
    """An observer that counts for Prometheus; thread-safe.

    Spec: Summit §Evaluation & Observability
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register the metrics, by default in a new registry."""
        into = self.registry = registry or CollectorRegistry()

        def counter(name: str, description: str, *labels: str) -> Counter:
            return Counter(name, description, labels, registry=into)

        def histogram(
            name: str, description: str, bounds: tuple[float, ...], *labels: str
        ) -> Histogram:
            return Histogram(name, description, labels, buckets=bounds, registry=into)

        self._windows = counter("crp_windows", "Windows by outcome.", "outcome")
        self._steps = histogram("crp_step_seconds", "Time of a step.", STEP_BOUNDS, "step")
        self._assembly = histogram(
            "crp_assembly_seconds", "Time of a context's assembly.", STEP_BOUNDS
        )
        self._calls = histogram("crp_model_call_seconds", "Time of a model call.", CALL_BOUNDS)
        self._errors = counter("crp_model_errors", "Model calls that failed.")
        self._tokens = counter("crp_tokens", "Tokens that models reported.", "kind")
        self._cost = counter("crp_cost_usd", "Cost of model calls whose price is known.")
        self._unpriced = counter("crp_cost_unknown", "Windows whose cost is not known.")
        self._judged = counter("crp_judge_calls", "Calls of the judge by result.", "ended")
        self._unjudged = counter("crp_judge_skipped", "Answers without a judge call.", "why")
        self._judging = histogram(
            "crp_judge_seconds", "Time of an answer's judge, all its calls.", CALL_BOUNDS
        )
        self._judge_tokens = counter("crp_judge_tokens", "Tokens of the judge.", "kind")
        self._judge_cost = counter(
            "crp_judge_cost_usd", "Cost of the judge's calls whose price is known."
        )
        self._packed = histogram("crp_pack_tokens", "Tokens of a context pack.", TOKEN_BOUNDS)
        self._use = histogram("crp_pack_utilisation", "Share of the budget used.", SHARE_BOUNDS)
        self._over = counter("crp_pack_over_budget", "Packs above their budget.")
        self._drops = counter("crp_pack_dropped", "Candidates left out of packs.", "reason")
        self._checked = counter(
            "crp_packs_checked", "Packs by the verifier's consistency checks.", "consistent"
        )
        self._citations = counter("crp_citations", "Citations by whether they hold.", "held")
        self._risk = counter("crp_risk", "Answers by risk level.", "level")
        self._claims = counter("crp_claims", "Claims of answers by result.", "read")
        self._precision = histogram(
            "crp_precision_proxy", "Share of a pack that its answer uses.", SHARE_BOUNDS
        )
        self._recall = histogram(
            "crp_recall_proxy", "Share of the relevant candidates in a pack.", SHARE_BOUNDS
        )
        self._completed = counter(
            "crp_tasks", "Tasks by whether users completed them.", "completed"
        )
        self._csat = histogram(
            "crp_csat", "Users' satisfaction from 1 to 5.", (1.0, 2.0, 3.0, 4.0, 5.0)
        )

    def text(self) -> str:
        """All metrics in Prometheus text format."""
        return generate_latest(self.registry).decode()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step."""
        began = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self._steps.labels(name).observe(took)
            if name == ASSEMBLY:
                self._assembly.observe(took)

    @contextmanager
    def calling(self, call: ModelCall) -> Iterator[Callable[[Reply], None]]:
        """Time a model call; its tokens are counted with its window."""
        began = time.perf_counter()
        try:
            yield lambda _: None
        except Exception:
            self._errors.inc()
            raise
        finally:
            self._calls.observe(time.perf_counter() - began)

    def sealed(self, trace: WindowTrace) -> None:
        """Count a window."""
        self._windows.labels(trace.outcome).inc()
        for read in ("supported", "wrong", "unread"):
            self._claims.labels(read).inc(getattr(trace.claims, read))
        if trace.pack is not None:
            self._packed_one(trace.pack)
        if trace.evaluated is not None:
            self._evaluated(trace.evaluated)
        if trace.judged is not None:
            self._judged_one(trace.judged)

    def feedback(self, feedback: Feedback) -> None:
        """Count a user's feedback on an answer."""
        if feedback.completed is not None:
            self._completed.labels(str(feedback.completed).lower()).inc()
        if feedback.csat is not None:
            self._csat.observe(feedback.csat)

    def _packed_one(self, pack: PackTrace) -> None:
        self._packed.observe(pack.token_count)
        if pack.token_budget:
            self._use.observe(pack.token_count / pack.token_budget)
        if pack.token_count > pack.token_budget:
            self._over.inc()
        for drop in pack.drops:
            self._drops.labels(drop.reason.value).inc(drop.count)

    def _judged_one(self, judged: JudgeTrace) -> None:
        if judged.skipped:
            self._unjudged.labels(judged.skipped).inc()
            return
        for ended in ("read", "failed", "refused"):
            self._judged.labels(ended).inc(getattr(judged, ended))
        if judged.asked:
            self._judging.observe(judged.milliseconds / 1000)
        self._judge_tokens.labels("prompt").inc(judged.prompt_tokens)
        self._judge_tokens.labels("completion").inc(judged.completion_tokens)
        self._judge_cost.inc(judged.cost_usd or 0.0)

    def _evaluated(self, evaluation: WindowEvaluation) -> None:
        self._checked.labels(str(evaluation.consistent).lower()).inc()
        self._citations.labels("true").inc(evaluation.citations_held)
        self._citations.labels("false").inc(evaluation.citations - evaluation.citations_held)
        self._risk.labels(evaluation.risk_level.value).inc()
        if evaluation.precision_proxy is not None:
            self._precision.observe(evaluation.precision_proxy)
        self._recall.observe(evaluation.recall_proxy)
        self._tokens.labels("prompt").inc(evaluation.prompt_tokens)
        self._tokens.labels("completion").inc(evaluation.completion_tokens)
        if evaluation.cost_usd is None:
            self._unpriced.inc()
        else:
            self._cost.inc(evaluation.cost_usd)


class LevelGauges:
    """Gauges of a batch job: service levels, and results of a golden set.

    Prometheus cannot scrape a job that ends, so it writes a file for the node exporter's textfile
    collector.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register the gauges, by default in a new registry."""
        into = self.registry = registry or CollectorRegistry()

        def gauge(name: str, description: str, *labels: str) -> Gauge:
            return Gauge(name, description, labels, registry=into)

        self._value = gauge("crp_slo_value", "Measured service level.", "slo")
        self._met = gauge("crp_slo_met", "1 if a service level is met.", "slo")
        self._golden = gauge("crp_golden_score", "Score of the golden set.", "score")
        self._baseline = gauge("crp_golden_baseline", "Score of the baseline.", "score")
        self._latency = gauge(
            "crp_assembly_baseline_seconds", "95th percentile of assembly time in the baseline."
        )
        self._ran = gauge("crp_golden_run_timestamp_seconds", "Time of the last golden run.")

    def text(self) -> str:
        """All metrics in Prometheus text format."""
        return generate_latest(self.registry).decode()

    def level(self, slo: str, value: float | None, met: bool | None) -> None:
        """Set a service level; None values are left out."""
        if value is not None:
            self._value.labels(slo).set(value)
        if met is not None:
            self._met.labels(slo).set(met)

    def latency(self, seconds: float) -> None:
        """Set the baseline of the assembly time."""
        self._latency.set(seconds)

    def golden(self, score: str, value: float, baseline: float | None, at: float) -> None:
        """Set a score of a golden set, its baseline and the time of the run."""
        self._golden.labels(score).set(value)
        if baseline is not None:
            self._baseline.labels(score).set(baseline)
        self._ran.set(at)

    def write(self, path: Path) -> None:
        """Write all metrics to a file, which is replaced atomically."""
        write_to_textfile(str(path), self.registry)

"""What a judge takes, in Prometheus and OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra observability is not installed")
pytest.importorskip("prometheus_client", reason="the extra observability is not installed")

from crp_integrations.governance.window_trace import JudgeTrace
from crp_integrations.observability.prometheus import Metrics
from tests.judges import judge_double, named
from tests.observability.conftest import ANSWER, QUESTION, SECRETS, Opener, Seen
from tests.observability.test_traces import Recorded
from tests.servers import Double


@pytest.fixture
def judge() -> Iterator[Double]:
    with judge_double() as double:
        yield double


def test_a_judges_calls_are_counted(opener: Opener, judge: Double) -> None:
    counted = Metrics()
    relay = opener(ANSWER, tracer=counted, judge=named(judge))
    relay.ask(QUESTION)
    relay.ask(QUESTION)
    judge.fault = "unauthorised"
    relay.ask(QUESTION, judge=named(judge, cache_size=0))
    relay.ask(QUESTION, judge=named(judge), judge_when="sample:0.0")
    text = counted.text()
    assert 'crp_judge_calls_total{ended="read"} 2.0' in text
    assert 'crp_judge_calls_total{ended="failed"} 1.0' in text
    assert 'crp_judge_skipped_total{why="sample"} 1.0' in text
    # The second reply was known, and took nothing.
    assert 'crp_judge_tokens_total{kind="prompt"} 11.0' in text
    assert "crp_judge_seconds_count 2.0" in text
    assert 'crp_step_seconds_count{step="dpe.judge"} 3.0' in text
    assert "judge-1" not in text


def test_a_judges_span_and_metrics(opener: Opener, judge: Double) -> None:
    recorded = Recorded()
    relay = opener(ANSWER, tracer=recorded.observer, judge=named(judge))
    relay.ask(QUESTION)
    (span,) = [one for one in recorded.spans if one.name == "crp.dpe.judge"]
    assert span.attributes is not None
    assert span.attributes["openinference.span.kind"] == "EVALUATOR"
    metrics = recorded.reader.get_metrics_data()
    assert metrics is not None
    told = metrics.to_json()
    for name in ("crp.judge.calls", "crp.judge.duration", "crp.judge.token.usage"):
        assert name in told
    assert not [secret for secret in SECRETS if secret in told]


def test_the_trace_of_a_window_says_what_its_judge_took(opener: Opener, judge: Double) -> None:
    seen = Seen()
    opener(ANSWER, tracer=seen, judge=named(judge)).ask(QUESTION)
    opener(ANSWER, tracer=seen).ask(QUESTION)
    (judged, plain) = seen.traces
    assert judged.judged is not None
    assert judged.judged.model_copy(update={"milliseconds": 0}) == JudgeTrace(
        asked=1, prompt_tokens=11, completion_tokens=7
    )
    assert plain.judged is None
    assert judged.evaluated is not None
    assert plain.evaluated is not None
    assert judged.evaluated.prompt_tokens == plain.evaluated.prompt_tokens

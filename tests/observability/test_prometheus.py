"""Metrics, alert rules by the real promtool, and a dashboard whose tiles show live values."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import yaml

pytest.importorskip("prometheus_client", reason="the extra observability is not installed")

from prometheus_client.parser import text_string_to_metric_families

from crp_integrations.errors import ModelError
from crp_integrations.gateway.admission import GatewayMetrics
from crp_integrations.governance.window_trace import (
    PackTrace,
    TracedDrops,
    WindowEvaluation,
    WindowTrace,
)
from crp_integrations.observability.evaluations import Feedback
from crp_integrations.observability.prometheus import LevelGauges, Metrics
from crp_integrations.stores.postgres.pool import PoolMeasures
from crp_integrations.vocabulary import DropReason, QualityTier, RiskLevel
from tests.doubles import ScriptedModel
from tests.observability.conftest import ANSWER, QUESTION, WRONG, Opener

SHIPPED = Path(str(files("crp_integrations.observability") / "shipped"))
PROMTOOL = shutil.which("promtool")
PROMETHEUS = shutil.which("prometheus")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian: apt-get install prometheus)"
)
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None, reason="prometheus is not installed (Debian: apt-get install prometheus)"
)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def names(text: str) -> set[str]:
    return {name for name, _ in samples(text)}


def every_metric() -> Metrics:
    """Metrics in which each series has a value."""
    counted = Metrics()
    for consistent, level in ((True, RiskLevel.LOW), (False, RiskLevel.HIGH)):
        counted.sealed(trace(consistent=consistent, level=level))
    counted.feedback(Feedback(completed=True, csat=4))
    counted.feedback(Feedback(completed=False, csat=2))
    with counted.step("envelope"):
        pass
    with counted.calling(None):  # type: ignore[arg-type] - the call is not looked at
        pass
    return counted


def trace(*, consistent: bool = True, level: RiskLevel = RiskLevel.LOW) -> WindowTrace:
    drops = TracedDrops(reason=DropReason.BUDGET, count=3, tokens=60, ids_hash="sha256:" + "0" * 64)
    return WindowTrace(
        session_id="s",
        window_id="w",
        outcome="released",
        strategy="push",
        model="m",
        pack=PackTrace(
            session_id="s",
            window_id="w",
            timestamp="",
            etag="",
            state_hash="",
            token_budget=1_000,
            token_count=980,
            drops=(drops,),
        ),
        evaluated=WindowEvaluation(
            grounding=1,
            fidelity=1,
            entailment=1,
            completeness=1,
            checked_share=1,
            risk_score=0.1,
            risk_level=level,
            quality_tier=QualityTier.A,
            envelope_score=0.9,
            consistent=consistent,
            citations=4,
            citations_held=4 if consistent else 1,
            precision_proxy=0.5,
            recall_proxy=0.75,
            prompt_tokens=900,
            completion_tokens=40,
            cost_usd=0.002,
        ),
    )


def every_connection() -> GatewayMetrics:
    seen = PoolMeasures(
        in_use=1,
        idle=1,
        most=16,
        waiting=2,
        wait_seconds=0.25,
        timeouts=1,
        lock_timeouts=1,
        errors={"55": 1, "08": 2, "22": 1},
    )
    return GatewayMetrics(lambda: seen)


def every_level() -> LevelGauges:
    levels = LevelGauges()
    levels.level("citation_accuracy", 0.97, True)
    levels.latency(0.02)
    for score in ("recall", "precision"):
        levels.golden(score, 0.7, 0.9, 1.0)
    return levels


def test_what_a_relay_does_is_counted(opener: Opener) -> None:
    counted = Metrics()
    with opener(ANSWER, WRONG, tracer=counted) as relay:
        relay.ask(QUESTION)
        relay.ask(QUESTION, budget_tokens=30)
    failing = ScriptedModel(ModelError("no"))
    with opener(tracer=counted, models=failing) as relay, pytest.raises(ModelError):
        relay.ask(QUESTION)
    found = samples(counted.text())
    assert found["crp_windows_total", (("outcome", "released"),)] == 2
    assert found["crp_windows_total", (("outcome", "failed"),)] == 1
    assert found["crp_model_errors_total", ()] == 1
    assert found["crp_tokens_total", (("kind", "prompt"),)] == 240
    assert found["crp_cost_usd_total", ()] == pytest.approx(0.0042)
    assert found["crp_assembly_seconds_count", ()] == 3
    assert found["crp_pack_tokens_count", ()] == 3
    assert found["crp_packs_checked_total", (("consistent", "true"),)] == 1
    assert found["crp_packs_checked_total", (("consistent", "false"),)] == 1
    assert found["crp_pack_dropped_total", (("reason", "budget"),)] > 0
    assert found["crp_pack_over_budget_total", ()] == 0
    assert found["crp_step_seconds_count", (("step", "gather"),)] == 3


def step(counted: Metrics, name: str, times: int = 1) -> None:
    for _ in range(times):
        with counted.step(name):
            pass


def test_each_step_of_many_threads_is_counted_once() -> None:
    counted = Metrics()
    stepping = [threading.Thread(target=step, args=(counted, "gather", 500)) for _ in range(4)]
    reading = [threading.Thread(target=counted.text) for _ in range(4)]
    for one in (*stepping, *reading):
        one.start()
    for one in (*stepping, *reading):
        one.join()
    found = samples(counted.text())
    assert found["crp_step_seconds_count", (("step", "gather"),)] == 2_000


def test_no_label_names_who_or_what_was_asked() -> None:
    allowed = {"outcome", "step", "le", "kind", "reason", "consistent", "held", "level",
               "completed", "slo", "score", "read", "state", "sqlstate_class"}  # fmt: skip
    for text in (every_metric().text(), every_level().text(), every_connection().text()):
        labels = {name for _, pairs in samples(text) for name, _ in pairs}
        assert labels <= allowed


@needs_promtool
@pytest.mark.parametrize("source", [every_metric, every_level, every_connection])
def test_promtool_finds_no_fault_in_the_metrics(source: Any) -> None:
    ran = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=source().text(), text=True, capture_output=True
    )
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


def promtool(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROMTOOL), *map(str, arguments)], cwd=cwd, capture_output=True, text=True
    )


@needs_promtool
@pytest.mark.requirement("SUM-evalobs-20", "SUM-fail-4")
def test_promtool_runs_the_unit_tests_of_the_alert_rules() -> None:
    checked = promtool("check", "rules", "alerts.yml", cwd=SHIPPED)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    ran = promtool("test", "rules", "alerts.test.yml", cwd=SHIPPED)
    assert ran.returncode == 0, ran.stdout + ran.stderr


ALERTS = [
    rule
    for group in yaml.safe_load((SHIPPED / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]


@needs_promtool
def test_each_alert_has_a_unit_test_that_needs_it(tmp_path: Path) -> None:
    """With the rules silenced, a unit test of each fails."""
    read = yaml.safe_load((SHIPPED / "alerts.yml").read_text(encoding="utf-8"))
    for group in read["groups"]:
        for one in group["rules"]:
            if "alert" in one:
                one["expr"] = "vector(0) > 1"
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(read), encoding="utf-8")
    shutil.copy(SHIPPED / "alerts.test.yml", tmp_path)
    ran = promtool("test", "rules", "alerts.test.yml", cwd=tmp_path)
    failed = set(re.findall(r"alertname: ?(\w+)", ran.stdout + ran.stderr))
    assert ran.returncode != 0
    assert failed == {rule["alert"] for rule in ALERTS if "alert" in rule}


def queried(expression: str) -> set[str]:
    """The metrics that an expression names."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"", "", expression)
    return set(re.findall(r"\bcrp_[a-z0-9_]+", bare))


def tiles() -> list[tuple[str, str]]:
    dashboard = json.loads((SHIPPED / "dashboard.json").read_text(encoding="utf-8"))
    return [
        (panel["title"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]


def test_every_query_of_dashboard_and_rules_names_a_metric_that_exists() -> None:
    sources = (every_metric(), every_level(), every_connection())
    exist = {name for source in sources for name in names(source.text())}
    asked = {name for _, expression in tiles() for name in queried(expression)}
    asked |= {name for rule in ALERTS for name in queried(rule["expr"])}
    assert len(asked) > 15
    assert asked - exist == set()
    records = {rule["record"] for rule in ALERTS if "record" in rule}
    used = {name for r in ALERTS for name in re.findall(r"crp:[a-z0-9_:]+", r["expr"])}
    assert used <= records


def test_the_dashboard_has_the_tiles_that_were_asked_for() -> None:
    dashboard = json.loads((SHIPPED / "dashboard.json").read_text(encoding="utf-8"))
    titles = {panel["title"] for panel in dashboard["panels"]}
    assert {"Tokens", "Assembly latency", "Cost", "Precision proxy", "Citation accuracy"} <= titles
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)
    # Tiles lie beside each other on Grafana's grid of 24 columns.
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@contextmanager
def exposed(text: Any) -> Iterator[int]:
    """Metrics at an address of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            serving.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def scraping(folder: Path, port: int, rules: dict[str, Any]) -> Iterator[str]:
    """A Prometheus of its own that scrapes and evaluates every second."""
    (folder / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    job = {"job_name": "crp", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    config = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": [job]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    own = free_port()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                str(PROMETHEUS),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{own}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            yield f"http://127.0.0.1:{own}"
        finally:
            process.terminate()
            process.wait(30)


def waited(client: httpx.Client, path: str, done: Any, folder: Path) -> Any:
    """The answer of a path once it is as wanted."""
    for _ in range(300):
        try:
            found = client.get(path).json()["data"]
            if done(found):
                return found
        except (httpx.HTTPError, KeyError, ValueError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"{path}: {(folder / 'log').read_text()[-2000:]}")


@needs_prometheus
@pytest.mark.requirement("SUM-evalobs-18", "SUM-evalobs-20")
def test_tiles_show_live_values_and_alerts_fire_in_a_real_prometheus(
    opener: Opener, tmp_path: Path
) -> None:
    counted, levels = Metrics(), every_level()
    levels.latency(0.0000001)
    rules = yaml.safe_load((SHIPPED / "alerts.yml").read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            # An alarm that waits a quarter of an hour fires at once here.
            rule.pop("for", None)
    work = tmp_path / "prometheus"
    work.mkdir()
    asking = threading.Event()
    wrong = trace(consistent=False, level=RiskLevel.HIGH)
    with opener(tracer=counted) as relay:

        def traffic() -> None:
            while not asking.wait(0.3):
                relay.ask(QUESTION, budget_tokens=30)
                # As after a wrong answer; a real one would put its facts into quarantine.
                counted.sealed(wrong)
                counted.feedback(Feedback(completed=True, csat=4))

        runner = threading.Thread(target=traffic)
        runner.start()
        try:
            with (
                exposed(lambda: counted.text() + levels.text()) as port,
                scraping(work, port, rules) as address,
                httpx.Client(base_url=address, trust_env=False) as client,
            ):
                waited(client, "/api/v1/query?query=up==1", lambda data: data["result"], work)
                for title, expression in tiles():
                    query = expression.replace("$__rate_interval", "1m").replace("$__range", "1m")
                    shown = waited(
                        client,
                        f"/api/v1/query?query={quote(query)}",
                        lambda data: any(one["value"][1] != "NaN" for one in data["result"]),
                        work,
                    )
                    assert shown["result"], title
                wanted = {"CRPCitationAccuracyLow", "CRPPackCorrectnessLow", "CRPGoldenRecallDrop",
                          "CRPGoldenPrecisionDrop", "CRPGoldenStale",
                          "CRPAssemblyLatencyHigh"}  # fmt: skip
                fired = waited(
                    client,
                    "/api/v1/alerts",
                    lambda data: wanted <= _firing(data),
                    work,
                )
                assert not _firing(fired) & {"CRPPackOverBudget", "CRPModelErrors", "CRPSloMissed"}
        finally:
            asking.set()
            runner.join()


def _firing(data: dict[str, Any]) -> set[str]:
    return {one["labels"]["alertname"] for one in data["alerts"] if one["state"] == "firing"}

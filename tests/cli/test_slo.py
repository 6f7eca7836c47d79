"""`crp slo …` over a store on disk."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.guard.decisions import Subject
from crp_integrations.observability.evaluations import Evaluation, EvaluationLog, Feedback
from tests.cli.conftest import Here

MANUAL = "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.\n"
GARDEN = "The gardens of the valley grow tulips and roses, and are open from April to October.\n"
GOLDEN = (
    '{"id": "start", "question": "When was the Meridian reactor commissioned?",'
    ' "sources": ["manual.md"]}\n'
)


@pytest.fixture
def asked(here: Here, tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "manual.md").write_text(MANUAL)
    (docs / "garden.md").write_text(GARDEN)
    assert here("ingest", "docs", "--store", "kb", cwd=tmp_path).returncode == 0
    for question in ("When was the Meridian reactor commissioned?", "What do the gardens grow?"):
        ran = here("ask", question, "--store", "kb", "--model", "extractive", cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
    return tmp_path


@pytest.mark.requirement("SUM-evalobs-20", "SUM-slo-4")
def test_the_table_is_computed_and_a_missed_level_is_the_status(here: Here, asked: Path) -> None:
    ran = here("slo", "--store", "kb", "--json", cwd=asked)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    levels = {one["name"]: one for one in json.loads(ran.stdout)["levels"]}
    assert levels["citation_accuracy"]["value"] == 1.0
    assert levels["assembly_p95"]["met"] is None
    # What was not measured fails where everything is demanded.
    assert here("slo", "--store", "kb", "--strict", cwd=asked).returncode == 1
    made = here("slo", "--store", "kb", "--save-baseline", "base.json", cwd=asked)
    assert made.returncode == 0, made.stderr
    here("ask", "What do the gardens grow?", "--store", "kb", "--model", "extractive", cwd=asked)
    base = json.loads((asked / "base.json").read_text())
    (asked / "fast.json").write_text(json.dumps({**base, "p95_us": 1}))
    checked = ("slo", "--store", "kb", "--baseline", "fast.json", "--metrics", "slo.prom")
    assert here(*checked, cwd=asked).returncode == 1
    metrics = (asked / "slo.prom").read_text()
    assert 'crp_slo_met{slo="assembly_p95"} 0.0' in metrics
    assert 'crp_slo_met{slo="citation_accuracy"} 1.0' in metrics
    (asked / "slow.json").write_text(json.dumps({**base, "p95_us": 10**9}))
    assert here("slo", "--store", "kb", "--baseline", "slow.json", cwd=asked).returncode == 0


@pytest.mark.requirement("SUM-slo-1")
def test_a_persons_word_is_recorded_and_counts(here: Here, asked: Path) -> None:
    ran = here("audit", "export", "--store", "kb", "--type", "FACT_RETRIEVED", cwd=asked)
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    window = next(line["window_id"] for line in lines if line.get("window_id"))
    EvaluationLog(asked / "log").add(
        Evaluation(window_id=window, feedback=Feedback(pack_correct=False, csat=2, completed=False))
    )
    checked = here("slo", "--store", "kb", "--evaluations", "log", cwd=asked)
    assert checked.returncode == 1
    assert "1 by people" in checked.stdout


@pytest.mark.requirement("SUM-fail-4")
def test_a_golden_set_that_loses_a_source_alerts(here: Here, asked: Path) -> None:
    (asked / "golden.ndjson").write_text(GOLDEN)
    drift = ("eval", "drift", "golden.ndjson", "--store", "kb", "--metrics", "golden.prom")
    first = here(*drift, "--json", cwd=asked)
    assert first.returncode == 0, first.stderr
    (asked / "base.json").write_text(first.stdout)
    assert json.loads(first.stdout)["recall"] == 1.0
    assert here(*drift, "--baseline", "base.json", cwd=asked).returncode == 0
    removed = here("fabric", "erase", "docs/manual.md", "--yes", "--store", "kb", cwd=asked)
    assert removed.returncode == 0, removed.stderr
    shown = here(*drift, "--baseline", "base.json", cwd=asked)
    assert shown.returncode == 1
    assert "worse: start" in shown.stdout
    fallen = here(*drift, "--baseline", "base.json", "--json", cwd=asked)
    assert fallen.returncode == 1
    told = json.loads(fallen.stdout)
    assert "recall" in told["alerts"]
    assert 'crp_golden_score{score="recall"} 0.0' in (asked / "golden.prom").read_text()
    assert "Meridian" not in json.dumps(told)


@pytest.mark.requirement("SUM-evalobs-21")
def test_the_bundle_that_is_emitted_verifies_and_holds_no_content(here: Here, asked: Path) -> None:
    (asked / "rot.json").write_text('{"harness": "rot", "score": 0.9}\n')
    made = here("slo", "--bundle", "e.tar.gz", "--report", "rot.json", "--store", "kb", cwd=asked)
    assert made.returncode == 0, made.stderr
    assert (
        here(
            "receipt", "export", "--key", "--store", "kb", "--out", "key.pem", cwd=asked
        ).returncode
        == 0
    )
    checked = here("audit", "verify", "--bundle", "e.tar.gz", "--key", "key.pem", cwd=asked)
    assert checked.returncode == 0, checked.stderr
    with tarfile.open(asked / "e.tar.gz") as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
    assert files["reports/rot.json"] == (asked / "rot.json").read_bytes()
    traces = [json.loads(line) for line in files["traces.ndjson"].splitlines()]
    assert len(traces) == 2
    assert all(trace["items"] and trace["invocation_hash"] for trace in traces)
    assert json.loads(files["slo.json"])["schema"] == "slo-table/1"
    # The trail in it verifies by itself.
    (asked / "trail.ndjson").write_bytes(files["trail.ndjson"])
    trail = here("audit", "verify", "--store", "kb", "--file", "trail.ndjson", cwd=asked)
    assert trail.returncode == 0, trail.stderr
    everything = b"".join(files.values()).decode()
    for text in (MANUAL, GARDEN, "Meridian", "tulips"):
        assert text not in everything
    data = bytearray((asked / "e.tar.gz").read_bytes())
    data[len(data) // 2] ^= 1
    (asked / "bad.tar.gz").write_bytes(bytes(data))
    assert (
        here("audit", "verify", "--bundle", "bad.tar.gz", "--key", "key.pem", cwd=asked).returncode
        == 1
    )
    again = here("slo", "--bundle", "e.tar.gz", "--store", "kb", cwd=asked)
    assert "cannot be written" in again.stderr


def test_the_levels_of_a_gateways_tenant_are_of_its_own_windows(here: Here, asked: Path) -> None:
    acme = Subject(tenant="acme")
    with Relay.open(asked / "kb", subject=acme) as relay:
        relay.add([MANUAL])
        relay.ask("When was the Meridian reactor commissioned?", model="extractive")
    counted = []
    for words in ((), ("--tenant", "acme")):
        ran = here("slo", "--store", "kb", "--json", *words, cwd=asked)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        counted.append(json.loads(ran.stdout)["windows"])
    assert counted == [2, 1]
    assert here("slo", "--store", "kb", "--tenant", "a", "--shared", "b", cwd=asked).returncode

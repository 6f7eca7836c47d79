"""Settings of every test, and the record of which requirements the run has shown."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

# Before any test imports LiteLLM or a tokenizer: nothing is fetched from anywhere.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["LANGSMITH_TRACING"] = "false"

import pytest
from hypothesis import HealthCheck, settings

from tests.requirements.rows import RESULTS, SUPPORTED, rows
from tests.requirements.supported import claimed

# Threads take turns ten times as often as by default: who has done a system call, as loopback
# servers do, does not wait 5 ms for a thread that computes, and what threads can do to each other
# happens sooner.
sys.setswitchinterval(0.0005)

settings.register_profile(
    "house", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# The same examples in every run of the check, so that a red run can be repeated.
settings.register_profile("ci", settings.get_profile("house"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "house")

TESTS = Path(__file__).parent
LONG = {TESTS / "stores" / "test_beside.py", TESTS / "adapters" / "test_litellm_faults.py"}
PROPERTY = "requirement"
OUTCOMES = pytest.StashKey[dict[str, dict[str, set[str]]]]()
UNPROVEN = pytest.StashKey[list[str]]()
# What LiteLLM and LlamaIndex themselves do with old names of pydantic's, thousands of times a test
# (LlamaIndex looks at its workflows through `inspect`): each warning that is not ignored is kept
# and sent from the worker, which took a third of the time of those tests.
THEIR_OWN = ("ignore::DeprecationWarning:inspect", "ignore::DeprecationWarning:litellm")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[OUTCOMES] = {name: defaultdict(set) for name in ("passed", "failed", "skipped")}
    config.stash[UNPROVEN] = []
    for line in THEIR_OWN:
        config.addinivalue_line("filterwarnings", line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Begun last, one of these would leave the other worker without work for a minute.
    items.sort(key=lambda item: item.path not in LONG)
    known = rows()
    for item in items:
        for mark in item.iter_markers(PROPERTY):
            for id in mark.args:
                if id not in known:
                    raise pytest.UsageError(f"{item.nodeid} is marked with unknown id {id!r}")
                # User properties travel with the report, also from the workers of xdist.
                item.user_properties.append((PROPERTY, id))


class Recorder:
    """Collects the outcome of each marked test in the process that sees all reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.outcomes = config.stash[OUTCOMES]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ids = [str(value) for name, value in report.user_properties if name == PROPERTY]
        for id in ids:
            if report.failed:
                self.outcomes["failed"][id].add(report.nodeid)
            elif report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
                self.outcomes["passed"][id].add(report.nodeid)
            elif report.skipped and not hasattr(report, "wasxfail"):
                self.outcomes["skipped"][id].add(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(Recorder(session.config), "requirements-recorder")


def _whole(config: pytest.Config) -> bool:
    options = config.option
    selected = options.keyword or options.markexpr or options.collectonly or options.deselect
    paths = {arg.rstrip("/") for arg in config.args}
    return not selected and paths <= {"tests", ".", str(config.rootpath / "tests")}


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    outcomes = config.stash[OUTCOMES]
    whole = _whole(config) and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    results: dict[str, Any] = {"whole": whole}
    for name, by_id in outcomes.items():
        results[name] = {id: sorted(by_id[id]) for id in sorted(by_id)}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if whole and SUPPORTED.exists():
        # What an absent extra or absent data kept from running is not held against the page.
        proven = set(outcomes["passed"]) | set(outcomes["skipped"])
        claims = claimed(SUPPORTED.read_text(encoding="utf-8"))
        config.stash[UNPROVEN] = sorted(set(claims) - (proven - set(outcomes["failed"])))
        if config.stash[UNPROVEN] and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for id in config.stash[UNPROVEN]:
        terminalreporter.write_line(
            f"docs/evidence/supported.md claims {id}, which no passing test of this run shows",
            red=True,
        )

"""Every script in `examples/` runs as it stands, without a key and without a network.

The receipts that it issues on the way verify with the package's own command.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.commands import Here
from tests.forking import FRAMEWORKS, run
from tests.requirements.rows import ROOT

SCRIPTS = sorted((ROOT / "examples").glob("**/*.py"))
KEYS = ("KEY", "TOKEN", "SECRET")
ASKING = ("relay.ask(", "CRPMiddleware(", "CRPRunnable(", "CRPQueryEngine(")
SLICE = [pytest.mark.requirement("SUM-proto-4", "SUM-proto-5", "SUM-proto-6", "SUM-proto-7")]


def test_there_is_an_example_for_each_framework() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    for adapter in ("langchain", "llama_index", "litellm"):
        assert f"crp_integrations.{adapter}" in text


@pytest.mark.requirement("CARD-16")
@pytest.mark.parametrize(
    "script",
    # The governed agent ends with status 1 when one of its numbers is missed.
    [pytest.param(path, marks=SLICE * (path.stem == "governed_agent")) for path in SCRIPTS],
    ids=lambda path: path.stem,
)
def test_an_example_runs_without_a_key_and_its_receipts_verify(
    script: Path, tmp_path: Path, here: Here
) -> None:
    kept = tmp_path / "receipts"
    kept.mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.endswith(KEYS)}
    environment = {**clean, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    words = ["-m", "tests.receipt.watch", script, kept]
    # Forked from a process that has the frameworks loaded: what an example shows does not hang on how
    # its interpreter starts, and each would load them for ten seconds and more.
    done = run(words, cwd=tmp_path, env=environment, modules=FRAMEWORKS)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip(), "an example shows something"
    receipts = sorted(kept.iterdir())
    # Whoever asks a relay gets a receipt; the other examples examine answers of other people's.
    asks = any(word in script.read_text(encoding="utf-8") for word in ASKING)
    assert bool(receipts) >= asks, "a relay was asked, and no receipt was issued"
    for path in receipts:
        verified = here("receipt", "verify", path, cwd=tmp_path)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        assert verified.stdout.rstrip().endswith("verifies")

"""An altered engine is refused: its code by the manifest, its weights by their cards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import crp_integrations
from crp_integrations import weights
from crp_integrations.errors import EngineError
from crp_integrations.weights.manifest import NAME, verify_code, written

PACKAGE = Path(crp_integrations.__file__).parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small package with a manifest."""
    root = tmp_path / "crp_integrations"
    for name in ("seals.py", "dpe/risk.py", "dpe/catalogue/controls.json", "dpe/a.rego"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n")
    (root / NAME).write_text(written(root))
    return root


@pytest.mark.requirement("005-21.1-1")
def test_what_was_published_is_accepted(tree: Path) -> None:
    assert verify_code(tree, installed=True) is True
    (tree / "dpe" / "__pycache__").mkdir()
    (tree / "dpe" / "__pycache__" / "risk.cpython-311.pyc").write_bytes(b"x")
    assert verify_code(tree, installed=True) is True


def _append(path: Path) -> None:
    path.write_text(path.read_text() + "\n")


@pytest.mark.requirement("005-21.1-1")
@pytest.mark.parametrize(
    ("alter", "named"),
    [
        (lambda root: _append(root / "dpe/risk.py"), "dpe/risk.py has SHA-256"),
        (lambda root: _append(root / "seals.py"), "seals.py has SHA-256"),
        (lambda root: _append(root / "dpe/catalogue/controls.json"), "controls.json has SHA-256"),
        (lambda root: _append(root / "dpe/a.rego"), "a.rego has SHA-256"),
        (lambda root: (root / "dpe/risk.py").unlink(), "dpe/risk.py is missing"),
        (lambda root: (root / "dpe/seals.py").write_text(""), "dpe/seals.py is not part"),
        (lambda root: (root / NAME).unlink(), "manifest.json is missing"),
        (lambda root: (root / NAME).write_text("{}"), "manifest.json is not a manifest"),
        (lambda root: (root / NAME).write_text("["), "manifest.json is not a manifest"),
    ],
)
def test_whatever_was_altered_is_named_and_refused(
    tree: Path, alter: Callable[[Path], object], named: str
) -> None:
    alter(tree)
    with pytest.raises(EngineError, match=named):
        verify_code(tree, installed=True)


def test_a_working_tree_makes_no_claim(tree: Path) -> None:
    (tree / NAME).unlink()
    assert verify_code(tree, installed=False) is False
    assert not (PACKAGE / NAME).exists()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole package as it is installed, with its manifest."""
    root = tmp_path_factory.mktemp("site") / "crp_integrations"
    # With its bytecode, or each process that opens the copy compiles the package anew.
    shutil.copytree(PACKAGE, root, ignore=shutil.ignore_patterns(".hypothesis"))
    (root / NAME).write_text(written(root))
    return root


def _open(copy: Path) -> subprocess.CompletedProcess[str]:
    """Open a relay of the copied package and ask it something."""
    code = (
        "import crp_integrations, sys; from crp_integrations import Relay;"
        "relay = Relay.open(None); relay.add(['The ferry sails at nine in the morning every day.']);"
        "print(crp_integrations.__file__); print(relay.ask('When does it sail?').report.flags)"
    )
    return subprocess.run(
        [sys.executable, "-B", "-c", code],
        env={**os.environ, "PYTHONPATH": str(copy.parent)},
        cwd=copy.parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.requirement("005-21.1-1")
def test_a_relay_opens_over_published_files_only(copy: Path) -> None:
    whole = _open(copy)
    assert whole.returncode == 0, whole.stderr
    assert str(copy) in whole.stdout
    assert "engine-code-not-checked" not in whole.stdout
    changed = copy / "dpe" / "risk.py"
    before = changed.read_bytes()
    try:
        changed.write_bytes(before.replace(b"1.0 - penalties", b"1.0 - 0.0 * penalties"))
        assert changed.read_bytes() != before
        refused = _open(copy)
    finally:
        changed.write_bytes(before)
    assert refused.returncode != 0
    assert "EngineError" in refused.stderr
    assert "dpe/risk.py has SHA-256" in refused.stderr


@pytest.mark.requirement("005-21.1-1", "005-21.1-3")
def test_a_relay_refuses_weights_with_a_wrong_hash(copy: Path) -> None:
    for name in weights.names():
        card = json.loads((copy / "weights" / name / "card.json").read_text())
        for file in card["files"]:
            path = copy / "weights" / name / file
            before = path.read_bytes()
            try:
                path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
                with pytest.raises(EngineError, match=f"{file} of .* has SHA-256"):
                    weights.describe_directory(path.parent).verify()
                if file == next(iter(card["files"])):
                    refused = _open(copy)
                    assert refused.returncode != 0
                    assert file in refused.stderr and "SHA-256" in refused.stderr
            finally:
                path.write_bytes(before)

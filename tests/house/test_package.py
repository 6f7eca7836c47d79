"""The wheel holds what an installation needs: code, types, weights, documentation."""

from __future__ import annotations

import configparser
import hashlib
import json
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import crp_integrations
from crp_integrations.cli import ask
from crp_integrations.errors import ConfigError
from tests.requirements.rows import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this tree, built as pip builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_code_types_and_the_licence(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    code = {path.relative_to(ROOT).as_posix() for path in (ROOT / "crp_integrations").rglob("*.py")}
    assert code <= names
    assert "crp_integrations/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {
        "crp_integrations",
        f"crp_integrations-{PROJECT['version']}.dist-info",
    }


def test_the_wheel_holds_the_weights_with_the_cards_hashes(wheel: zipfile.ZipFile) -> None:
    for model in ("minilm", "static"):
        folder = f"crp_integrations/weights/{model}/"
        card = json.loads(wheel.read(folder + "card.json"))
        assert card["files"]
        for name, digest in card["files"].items():
            assert hashlib.sha256(wheel.read(folder + name)).hexdigest() == digest


def test_the_wheel_holds_the_hashes_of_the_engines_code(wheel: zipfile.ZipFile) -> None:
    folder = "crp_integrations/"
    files = json.loads(wheel.read(folder + "manifest.json"))["files"]
    assert {
        "dpe/pipeline.py",
        "dpe/risk.py",
        "dpe/catalogue/controls.json",
        "relay/turn.py",
    } <= set(files)
    for name, digest in files.items():
        assert hashlib.sha256(wheel.read(folder + name)).hexdigest() == digest
    # Nothing that the manifest's rule names is in the wheel without a hash.
    engine = [n for n in wheel.namelist() if n.startswith(folder + "dpe/") and n.endswith(".py")]
    assert {name.removeprefix(folder) for name in engine} <= set(files)
    assert not (ROOT / "crp_integrations" / "manifest.json").exists()


def test_the_wheel_holds_every_page_of_the_documentation(wheel: zipfile.ZipFile) -> None:
    found = (path for path in (ROOT / "docs").rglob("*") if path.is_file())
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in found}
    inside = "crp_integrations/documentation/"
    held = {name.removeprefix(inside) for name in wheel.namelist() if name.startswith(inside)}
    assert held == pages


def test_the_wheel_names_the_command_and_the_extras(wheel: zipfile.ZipFile) -> None:
    (points,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    named = configparser.ConfigParser()
    named.read_string(wheel.read(points).decode())
    assert {group: dict(named[group]) for group in named.sections()} == {
        "console_scripts": {"crp": "crp_integrations.cli.app:main"},
        "pytest11": {"crp": "crp_integrations.testing.plugin"},
    }
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    extras = message_from_string(wheel.read(metadata).decode()).get_all("Provides-Extra")
    assert set(extras or ()) == set(PROJECT["optional-dependencies"])


def test_version_and_name_agree() -> None:
    assert crp_integrations.__version__ == PROJECT["version"]
    assert PROJECT["name"] == "crp-integrations"
    assert PROJECT["requires-python"] == ">=3.11"


def test_documentation_is_found_in_a_checkout() -> None:
    assert (ask.documentation_path() / "reference" / "glossary.md").is_file()


def test_documentation_inside_the_package_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "package" / "documentation"
    beside = tmp_path / "docs"
    monkeypatch.setattr(ask, "files", lambda _: tmp_path / "package")
    with pytest.raises(ConfigError, match="documentation is missing"):
        ask.documentation_path()
    for folder in (beside, inside):
        folder.mkdir(parents=True)
        (folder / ask.FIRST_PAGE).write_text("# Pages\n", encoding="utf-8")
        assert ask.documentation_path() == folder

"""What a command does not need is not imported: counted by modules, never by the clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from crp_integrations.cli.app import COMMANDS, app, load_command

# What takes long to load. Pydantic is not among them: Typer brings it along for any option.
HEAVY = frozenset(
    {
        "cryptography", "httpx", "langchain_core", "langgraph", "litellm", "llama_index",
        "networkx", "numpy", "onnxruntime", "openai", "regopy", "sqlite3", "tiktoken", "tokenizers",
    }
)  # fmt: skip
RELAY = "crp_integrations.relay"
ENTRY = "from crp_integrations.cli.app import main\nsys.argv = ['crp', *{words!r}]\nmain()"


def after(words: list[str], folder: Path) -> tuple[int, set[str]]:
    """The status of a command in a process of its own, and the modules that it loaded."""
    code = (
        "import atexit, json, sys\n"
        "tell = lambda: print(json.dumps(sorted(sys.modules)), file=open('modules', 'w'))\n"
        f"atexit.register(tell)\n{ENTRY.format(words=words)}"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    return done.returncode, set(json.loads((folder / "modules").read_text()))


def of(modules: set[str]) -> list[str]:
    """Heavy libraries among modules."""
    return sorted({name.partition(".")[0] for name in modules} & HEAVY)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["nosuch"], ["memry"]])
def test_the_list_of_commands_loads_none_of_them(words: list[str], tmp_path: Path) -> None:
    status, modules = after(words, tmp_path)
    assert status == (0 if words[0].startswith("--") else 2)
    assert of(modules) == []
    own = {name for name in modules if name.startswith("crp_integrations")}
    assert own <= {
        "crp_integrations",
        "crp_integrations.cli",
        "crp_integrations.cli.app",
        "crp_integrations.errors",
    }


@pytest.mark.parametrize(
    "words",
    [
        ["fabric", "stats", "--help"],
        ["keys", "--help"],
        ["serve", "--help"],
    ],
)
def test_the_help_of_a_command_loads_no_heavy_library(words: list[str], tmp_path: Path) -> None:
    status, modules = after(words, tmp_path)
    assert (status, of(modules)) == (0, [])


@pytest.mark.parametrize("words", [["memory", "lint", "items"], ["receipt", "verify", "receipt"]])
def test_what_needs_no_store_opens_no_relay(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "items").write_text("")
    _, modules = after(words, tmp_path)
    assert sorted(name for name in modules if name.startswith(RELAY)) == []


def test_checking_an_answer_opens_no_store(tmp_path: Path) -> None:
    (tmp_path / "answer.md").write_text("The plan costs 20 euros.")
    status, modules = after(["check", "answer.md", "--context", "answer.md"], tmp_path)
    unused = {"onnxruntime", "sqlite3", "tokenizers", "yaml", f"{RELAY}.build"}
    assert (status, sorted(modules & {*unused, "crp_integrations.fabric.namespace"})) == (0, [])


def test_the_list_says_of_each_command_what_its_own_help_says() -> None:
    told = {name: said for name, (_, said) in COMMANDS.items()}
    assert told == {
        name: " ".join(load_command(place, name).help.split("\n\n")[0].split())
        for name, (place, _) in COMMANDS.items()
    }
    assert list(typer.main.get_command(app).commands) == list(COMMANDS)  # type: ignore[attr-defined]

"""`import crp_integrations` is light: no framework and no heavy library comes with it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements.rows import ROOT

HEAVY = (
    "langchain", "langchain_core", "langgraph", "llama_index", "litellm", "openai", "torch",
    "transformers", "onnxruntime", "onnx", "tokenizers", "tiktoken", "sentencepiece", "numpy",
    "scipy", "sqlite3", "hnswlib", "igraph", "leidenalg", "pypdf", "rich", "typer", "requests",
    "httpx", "aiohttp", "graspologic_native", "networkx",
)  # fmt: skip


def _run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", f"import json, sys\n{code}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PATH": "", "HOME": str(folder)},
    )


def _loaded(code: str, folder: Path) -> set[str]:
    run = _run(f"{code}\nprint(json.dumps(sorted(sys.modules)))", folder)
    return {name.partition(".")[0] for name in json.loads(run.stdout)}


def test_the_front_door_is_light(tmp_path: Path) -> None:
    assert sorted(_loaded("import crp_integrations", tmp_path) & set(HEAVY)) == []


FRAMEWORKS = {"langchain", "langchain_core", "langgraph", "llama_index", "litellm", "torch"}


def test_no_front_door_name_brings_a_framework(tmp_path: Path) -> None:
    # What none of them brings beside the others, none brings alone.
    loaded = _loaded("from crp_integrations import Fact, Relay, examine, pack", tmp_path)
    assert sorted(loaded & FRAMEWORKS) == []


def test_packing_and_examining_are_imported_with_few_modules(tmp_path: Path) -> None:
    run = _run(
        "from crp_integrations import pack, examine\nprint(json.dumps(sorted(sys.modules)))",
        tmp_path,
    )
    loaded = json.loads(run.stdout)
    # 6 when written: what a verb works with comes with its first call.
    assert len([name for name in loaded if name.startswith("crp_integrations")]) <= 12
    assert sorted(set(loaded) & {*HEAVY, "pydantic", "pydantic_settings", "regopy"}) == []


def test_opening_a_relay_loads_nothing_that_only_some_need(tmp_path: Path) -> None:
    code = f"from crp_integrations import Relay\nRelay.open({str(tmp_path / 'kb')!r}).close()"
    unused = {"httpx", "markdown_it", "networkx", "regopy", "pypdf"}
    assert sorted(_loaded(code, tmp_path) & (FRAMEWORKS | unused)) == []


@pytest.mark.parametrize(
    ("adapter", "own"),
    [
        ("langchain", {"langchain_core"}),
        ("llama_index", {"llama_index"}),
        ("litellm", {"litellm"}),
        ("gateway.app", set()),
    ],
)
def test_an_adapter_brings_its_own_framework_only_and_uses_nothing_that_will_be_deleted(
    adapter: str, own: set[str], tmp_path: Path
) -> None:
    code = f"import crp_integrations.{adapter} as adapter\nprint(json.dumps(sorted(sys.modules)))\n"
    run = _run(
        f"{code}for name in getattr(adapter, '__all__', ()): getattr(adapter, name)", tmp_path
    )
    loaded = {name.partition(".")[0] for name in json.loads(run.stdout)}
    assert sorted(loaded & FRAMEWORKS - own) == []
    ours = [line for line in run.stderr.splitlines() if str(ROOT / "crp_integrations") in line]
    assert not [line for line in ours if re.search("(Deprecation|Future)Warning", line)]

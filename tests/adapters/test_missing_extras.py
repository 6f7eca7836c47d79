"""An adapter without its framework says what to type."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.forking import FRAMEWORKS, run
from tests.requirements.rows import ROOT

SCRIPT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == {blocked!r} or name.startswith({blocked!r} + "."):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from crp_integrations.errors import MissingExtra

try:
    import {adapter}
except MissingExtra as error:
    assert isinstance(error, ImportError)
    print(error)
"""


@pytest.mark.parametrize(
    ("blocked", "adapter", "extra"),
    [
        ("langchain_core", "crp_integrations.langchain", "langchain"),
        ("llama_index", "crp_integrations.llama_index", "llama-index"),
        ("llama_index.core", "crp_integrations.llama_index", "llama-index"),
        ("litellm", "crp_integrations.litellm", "litellm"),
        ("fastapi", "crp_integrations.litellm as l; l.CRPProxyHook", "proxy"),
        ("starlette", "crp_integrations.gateway", "gateway"),
        ("uvicorn", "crp_integrations.gateway", "gateway"),
    ],
)
def test_the_pip_line_is_named(blocked: str, adapter: str, extra: str) -> None:
    words = ["-c", SCRIPT.format(blocked=blocked, adapter=adapter)]
    if blocked == "fastapi":
        # LiteLLM itself is there, and takes six seconds to import.
        done = run(words, cwd=ROOT, env=os.environ, modules=FRAMEWORKS)
    else:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"pip install 'crp-integrations[{extra}]'" in done.stdout

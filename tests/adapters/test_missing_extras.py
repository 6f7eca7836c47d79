"""An adapter without its framework says what to type."""

from __future__ import annotations

import pytest

from tests.commands import script

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
    done = script("-c", SCRIPT.format(blocked=blocked, adapter=adapter))
    assert done.returncode == 0, done.stderr
    assert f"pip install 'crp-integrations[{extra}]'" in done.stdout

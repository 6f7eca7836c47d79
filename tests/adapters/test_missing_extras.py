"""An adapter without its framework says what to type."""

from __future__ import annotations

import json

import pytest

from tests.commands import script

# In this order: what one case loads is not there to be blocked in the next.
CASES = {
    "langchain_core": ("langchain", "langchain"),
    "llama_index": ("llama_index", "llama-index"),
    "llama_index.core": ("llama_index", "llama-index"),
    "litellm": ("litellm", "litellm"),
    "starlette": ("gateway", "gateway"),
    "uvicorn": ("gateway", "gateway"),
    "langchain for agents": ("langchain.CRPMiddleware", "langgraph"),
    "langgraph for agents": ("langchain.CRPMiddleware", "langgraph"),
    "langgraph for a store": ("langchain.CRPStore", "langgraph"),
    "fastapi": ("litellm.CRPProxyHook", "proxy"),
}
SCRIPT = """
import importlib, json, sys
blocked = ""

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == blocked or name.startswith(blocked + "."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from crp_integrations.errors import MissingExtra

loaded, said = set(sys.modules), {}
for case, adapter in json.load(sys.stdin).items():
    blocked = case.split()[0]
    assert blocked not in sys.modules, blocked
    room, _, name = adapter.partition(".")
    try:
        getattr(importlib.import_module("crp_integrations." + room), name or "__all__")
    except MissingExtra as error:
        assert isinstance(error, ImportError)
        said[case] = str(error)
    for name in set(sys.modules) - loaded:
        if name.startswith("crp_integrations"):
            del sys.modules[name]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What each case says, in one process that has no framework loaded."""
    done = script("-c", SCRIPT, stdin=json.dumps({case: CASES[case][0] for case in CASES}))
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_pip_line_is_named(said: dict[str, str], case: str) -> None:
    assert f"pip install 'crp-integrations[{CASES[case][1]}]'" in said[case]

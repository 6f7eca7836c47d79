"""The commands beside the package run against the package as it is."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator

from tests.requirements.rows import ROOT


def _imported() -> Iterator[tuple[str, str, str]]:
    """File, module and name of each import from the package in the benches and recipes."""
    for folder in ("bench", "recipes"):
        for path in sorted((ROOT / "tests" / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("crp_"):
                    for alias in node.names:
                        yield path.name, str(node.module), alias.name


def test_what_benches_and_recipes_import_exists() -> None:
    missing = []
    for file, module, name in _imported():
        if not hasattr(importlib.import_module(module), name):
            try:
                importlib.import_module(f"{module}.{name}")
            except ModuleNotFoundError:
                missing.append(f"{file}: {module}.{name}")
    assert missing == []

"""The commands beside the package run against the package as it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.requirements.rows import ROOT


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _names(module: str) -> frozenset[str] | None:
    """The names that a module of the package binds, with its submodules; None without a file."""
    place = ROOT.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not file.exists():
        return None
    bound = {path.stem for path in place.iterdir()} if place.is_dir() else set()
    for node in ast.walk(_tree(file)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                bound.add(name)
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                bound.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                bound.update(alias.asname or alias.name for alias in aliases)
            # Names that a package's `__getattr__` imports on first use.
            case ast.Constant(value=str(name)) if place.is_dir():
                bound.add(name)
    return frozenset(bound)


def _imported() -> Iterator[tuple[str, str, str]]:
    """File, module and name of each import from the package in the benches and recipes."""
    for folder in ("bench", "recipes"):
        for path in sorted((ROOT / "tests" / folder).rglob("*.py")):
            for node in ast.walk(_tree(path)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("crp_"):
                    for alias in node.names:
                        yield path.name, str(node.module), alias.name


def test_what_benches_and_recipes_import_exists() -> None:
    imported = list(_imported())
    assert len(imported) > 300
    missing = [
        f"{file}: {module}.{name}"
        for file, module, name in imported
        if name not in (_names(module) or ())
    ]
    assert missing == []

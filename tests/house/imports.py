"""Reads the imports of the package's files without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.requirements.rows import ROOT

PACKAGE = ROOT / "crp_integrations"
OWN = "crp_integrations"


@dataclass(frozen=True, slots=True)
class Import:
    """One import: the file, the line, the absolute name of what is imported."""

    file: str
    line: int
    name: str
    at_import: bool

    @property
    def top(self) -> str:
        """The distribution's first name, such as `langchain_core`."""
        return self.name.partition(".")[0]

    @property
    def room(self) -> str:
        """The room of this package that is imported, empty for the package itself."""
        return room_of_module(self.name)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.name}"


def room_of_module(name: str) -> str:
    """`crp_integrations.envelope.rank` is in room `envelope`."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def room_of_file(file: str) -> str:
    """`envelope/rank.py` is in room `envelope`, `seals.py` in room `seals`."""
    return file.split("/")[0].removesuffix(".py").replace("__init__", "")


@cache
def files() -> dict[str, ast.Module]:
    """Parsed files of the package by path inside it."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def imports() -> tuple[Import, ...]:
    """Every import of the package; imports for type checkers are left out."""
    return tuple(found for file, tree in files().items() for found in _imports(file, tree))


def _imports(file: str, tree: ast.Module) -> Iterator[Import]:
    for node, at_import in _statements(tree, True):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name, at_import)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module == OWN:
                # `from crp_integrations import errors` names a room or a front-door name.
                for alias in node.names:
                    yield Import(file, node.lineno, f"{OWN}.{alias.name}", at_import)
            else:
                yield Import(file, node.lineno, module, at_import)


def _statements(node: ast.AST, at_import: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child, at_import
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _statements(child, at_import and not inside)


def path_of(file: str) -> Path:
    """The path of a file of the package."""
    return PACKAGE / file

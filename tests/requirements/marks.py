"""Finds the requirement marks in the test files without importing them."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.requirements.rows import ROOT

TESTS = ROOT / "tests"


@cache
def marks(folder: Path = TESTS) -> dict[str, list[str]]:
    """File names by requirement id, for every literal `requirement("…")` mark.

    Raises:
        ValueError: a mark's argument is not a literal, so nobody could find it by reading.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        text = path.read_text(encoding="utf-8")
        if "requirement" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and _is_mark(node.func)):
                continue
            for argument in node.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"{name}:{node.lineno}: a requirement mark takes literals")
                found[argument.value].append(f"{name}:{node.lineno}")
    return dict(found)


def _is_mark(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "requirement"
        and isinstance(function.value, ast.Attribute)
        and function.value.attr == "mark"
    )

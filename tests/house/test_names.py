"""Names say what they hold: no variable of a function is called by a word that holds anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.imports import PACKAGE

# Each was assigned a hundred times and more, for a hundred different things.
SAY_NOTHING = frozenset({"found", "one", "told", "said", "given", "heard", "kept"})
# Fields of published records: reports, receipts and envelopes are written with these names.
PUBLISHED = frozenset(
    {"dpe/records.py found", "dpe/records.py said", "envelope/records.py kept"}
    | {"receipt/predicate.py kept", "receipt/predicate.py said"}
)
ADAPTERS = {"adapters", "gateway", "langchain", "litellm", "llama_index"}
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_")


def variables(tree: ast.AST) -> Iterator[ast.Name]:
    """What is assigned in a tree, fields of classes apart."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if not isinstance(inner, ast.AnnAssign | ast.Assign):
                    yield from variables(inner)
            continue
        yield from variables(node)


def parameters_and_fields(tree: ast.AST) -> Iterator[str]:
    """Names of the parameters of functions, and of the annotated fields of classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            for parameter in (*node.posonlyargs, *node.args, *node.kwonlyargs):
                yield parameter.arg
        elif isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield statement.target.id


@pytest.mark.parametrize("room", ROOMS)
def test_a_parameter_or_field_is_named_for_what_it_holds(room: str) -> None:
    named = {
        f"{path.relative_to(PACKAGE)} {name}"
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for name in parameters_and_fields(ast.parse(path.read_text(encoding="utf-8")))
        if name in SAY_NOTHING
    }
    assert named <= PUBLISHED


@pytest.mark.parametrize("room", ROOMS)
def test_a_variable_is_named_for_what_it_holds(room: str) -> None:
    named = [
        f"{path.relative_to(PACKAGE)}:{name.lineno} {name.id}"
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for name in variables(ast.parse(path.read_text(encoding="utf-8")))
        if name.id in SAY_NOTHING
    ]
    assert named == []


def test_no_two_classes_share_a_name() -> None:
    """Adapters apart, whose classes bear the names of their frameworks'."""
    modules: dict[str, list[str]] = {}
    for room in set(ROOMS) - ADAPTERS:
        for path in (PACKAGE / room).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    modules.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in modules.items() if len(places) > 1} == {}


def test_a_variable_that_says_nothing_is_seen() -> None:
    tree = ast.parse(
        "class A:\n    found: int = 0\n    def f(self):\n        told = [one for one in x]"
    )
    assert [name.id for name in variables(tree)] == ["told", "one"]

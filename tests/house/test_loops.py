"""No loop asks whether something is in a collection that it makes anew each time round.

Such a line is quadratic and looks harmless: adding 100,000 facts once took ten minutes for one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.imports import files

MAKERS = {"dict", "frozenset", "list", "set", "sorted", "tuple"}
LOOPS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp, ast.For, ast.While)


def _names(node: ast.AST, *, stored: bool = False) -> set[str]:
    kinds = (ast.Store,) if stored else (ast.Store, ast.Load)
    found = (one for one in ast.walk(node) if isinstance(one, ast.Name))
    return {one.id for one in found if isinstance(one.ctx, kinds)}


def _made(node: ast.expr) -> bool:
    """Whether an expression makes a collection out of others."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in MAKERS
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.Add)
    return isinstance(node, ast.ListComp | ast.SetComp)


def _asked(node: ast.Compare) -> Iterator[ast.expr]:
    """The collections made out of others in which a comparison looks for something."""
    for sign, other in zip(node.ops, node.comparators, strict=True):
        if isinstance(sign, ast.In | ast.NotIn) and _made(other):
            yield other


def made_anew(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each comparison with a collection that no turn of its loop changes."""
    nodes = list(ast.walk(tree))
    # Most files have no such comparison anywhere, and their loops need not be looked through.
    if not any(isinstance(node, ast.Compare) and any(_asked(node)) for node in nodes):
        return
    for loop in nodes:
        if not isinstance(loop, LOOPS):
            continue
        if isinstance(loop, ast.For | ast.While):
            inside: list[ast.AST] = [
                *loop.body,
                *([loop.test] if isinstance(loop, ast.While) else []),
            ]
            changing = {name for one in loop.body for name in _names(one, stored=True)}
            changing |= _names(loop.target) if isinstance(loop, ast.For) else set()
        else:
            inside = [test for one in loop.generators for test in one.ifs]
            inside += [loop.key, loop.value] if isinstance(loop, ast.DictComp) else [loop.elt]
            changing = {name for one in loop.generators for name in _names(one.target)}
        for node in (found for one in inside for found in ast.walk(one)):
            if not isinstance(node, ast.Compare):
                continue
            for other in _asked(node):
                if not _names(other) & changing:
                    yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("[one for one in all if one not in new | back]", 1),
        ("for one in all:\n    if one in set(left):\n        pass", 1),
        ("while one not in list(left):\n    one += 1", 1),
        ("[one for one in all if one not in told]", 0),
        ("[one for one in all if one in set(one.parts)]", 0),
        ("for one in all:\n    left = one.parts\n    if 1 in set(left):\n        pass", 0),
    ],
)
def test_what_is_made_in_a_loop_is_found(source: str, count: int) -> None:
    assert len(list(made_anew(ast.parse(source)))) == count


def test_no_loop_makes_a_collection_anew_to_look_into_it() -> None:
    found = [
        f"{file}:{line}: {text}" for file, tree in files().items() for line, text in made_anew(tree)
    ]
    assert found == []

"""The assembler comes to facts and tools through the guard alone, and models to what it gives."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import crp_integrations
from crp_integrations.governance.tools import ToolSelector
from crp_integrations.guard.decisions import Decision, LabelFilter
from tests.doubles import HashEmbedder
from tests.governance.test_tool_selection import REGISTRY

ROOT = Path(crp_integrations.__file__).parent
# What selects, packs and shortens, and what a run's state is shown through.
ASSEMBLING = (
    *sorted((ROOT / "envelope").rglob("*.py")),
    *(
        ROOT / "governance" / f"{name}.py"
        for name in (
            "context_assembler", "pack_selection", "tools", "runtime_state",
        )
    ),
)  # fmt: skip
# Ways to facts that no guard looks into: transactions, facets, a fabric's own readings.
BEHIND = {
    "begin",
    "store",
    "retrievable",
    "get_facts",
    "_own",
    "_fabric",
    "_region",
    "_layers",
    "_stored",
}
CLOSED = (
    "stores",
    "engines",
    "fabric.fabric",
    "fabric.region",
    "fabric.namespace_reader",
    "fabric.namespace_writer",
    "fabric.search.namespace_state",
)


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.removeprefix("crp_integrations.")


def called(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr


@pytest.mark.requirement("SUM-map-1")
def test_the_assembler_has_no_door_to_stores_but_the_guarded_one() -> None:
    assert all(path.is_file() for path in ASSEMBLING)
    wrong = []
    for path in ASSEMBLING:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = {name for name in imported(tree) if name.startswith(CLOSED)}
        found |= BEHIND.intersection(called(tree))
        wrong += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(found)]
    assert wrong == []


@pytest.mark.requirement("SUM-map-1")
def test_tools_are_chosen_behind_the_guard_and_a_model_is_shown_what_was_let_through() -> None:
    def denying(labels: tuple[str, ...]) -> Decision:
        return Decision(allowed=False, guard="denying", reason="nobody")

    found = ToolSelector(HashEmbedder()).select("Pay back", REGISTRY, denying, LabelFilter())
    assert (found.chosen, found.irrelevant, found.over) == ((), (), ())
    # What a run's model is shown is made of the state's exposed fields and of snippets, no more.
    exposure = ast.parse((ROOT / "governance" / "runtime_state.py").read_text(encoding="utf-8"))
    payload = next(n for n in exposure.body if getattr(n, "name", "") == "payload")
    of_state = {
        node.attr
        for node in ast.walk(payload)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "state"
    }
    assert of_state == {"exposed_fields", "sandboxes"}

"""Writes `docs/evidence/spec-map.md` from the `Spec:` lines: `python -m tests.requirements.spec_map`."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.requirements.rows import ROOT

PAGE = ROOT / "docs" / "evidence" / "spec-map.md"
PACKAGE = ROOT / "crp_integrations"
HEAD = """# Specification map

Which code stands for which section. Generated from the `Spec:` lines of the docstrings by
`python -m tests.requirements.spec_map`; a test fails when this page is stale.
"""
LINE = re.compile(
    r"^(?P<document>CRP-SPEC-\d{3}|CFS-021|Summit|[Rr]elated facts|RFC \d+|DSSE|in-toto)"
    r"(?:\s*,?\s*§+\s*(?P<sections>.+?)\.?)?$"
)
Named = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def spec_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Qualified names and their `Spec:` lines in one file."""
    module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    module = module.removesuffix(".__init__")

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, Named):
            for line in (ast.get_docstring(node) or "").splitlines():
                if line.strip().startswith("Spec:"):
                    yield name, line.strip()
        for child in ast.iter_child_nodes(node):
            inner = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            yield from walk(child, f"{name}.{child.name}" if inner else name)  # type: ignore[attr-defined]

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), module)


def references(line: str) -> list[tuple[str, str]]:
    """Documents and sections that one `Spec:` line names.

    >>> references("Spec: CRP-SPEC-003 §7.4, §8")
    [('CRP-SPEC-003', '7.4'), ('CRP-SPEC-003', '8')]
    """
    found: list[tuple[str, str]] = []
    # A decision in brackets says how the section was read; it is no section.
    bare = re.sub(r"\([^)]*\)", "", line.removeprefix("Spec:"))
    for piece in re.split(r";|,\s*(?=CRP-SPEC|CFS|Summit|[Rr]elated)", bare):
        match = LINE.match(piece.strip())
        if match is None:
            raise ValueError(f"{line!r} does not read 'Spec: DOCUMENT §SECTION'")
        document = match["document"].replace("Rel", "rel")
        for section in re.split(r"\s*(?:,|\band\b)\s*", match["sections"] or "whole"):
            found.append((document, section.replace("§", "").strip()))
    return found


def page() -> str:
    """The whole page."""
    places: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(PACKAGE.rglob("*.py")):
        for name, line in spec_lines(path):
            for document, section in references(line):
                places[document][section].append(name)
    lines = [HEAD]
    for document in sorted(places):
        lines += [f"## {document}", "", "| § | code |", "|---|---|"]
        for section in sorted(places[document], key=_order):
            names = ", ".join(f"`{name}`" for name in sorted(set(places[document][section])))
            lines.append(f"| {section} | {names} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _order(section: str) -> tuple[tuple[int, ...], str]:
    return tuple(int(number) for number in re.findall(r"\d+", section)), section


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(int(PAGE.read_text(encoding="utf-8") != page()))
    PAGE.write_text(page(), encoding="utf-8")

"""The map of a folder, its `__init__`, names what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.imports import PACKAGE

MAPS = sorted(PACKAGE.rglob("__init__.py"))
_NAME = re.compile(r"`([a-z_]+(?:[./][a-z_]+)*)`")
_DEFINED = re.compile(r"^(?:async )?(?:def|class) (\w+)|^(\w+)(?::[^=]+)? =", re.MULTILINE)
# Names that are neither files nor definitions: the command, and words of its own room.
WORDS = frozenset({"crp"})


@pytest.mark.parametrize("path", MAPS, ids=lambda path: str(path.relative_to(PACKAGE).parent))
def test_a_map_names_what_exists(path: Path) -> None:
    written = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    unknown = [
        name
        for name in _NAME.findall(written)
        if name not in WORDS and not _is_file(path.parent, name) and name not in _defined(path)
    ]
    assert unknown == []


def _is_file(folder: Path, name: str) -> bool:
    """Whether a file, module or folder of the package has a name, seen from a folder or the root."""
    inner = name.removeprefix("crp_integrations.").replace(".", "/")
    places = (folder / name, PACKAGE / name, *(root / inner for root in (folder, PACKAGE)))
    return any(
        place.exists() or place.with_suffix(".py").exists() or _has_suffix(place)
        for place in places
    )


def _has_suffix(place: Path) -> bool:
    """Whether `folder/name/py` is meant to be `folder/name.py`, of any kind of file."""
    return place.parent.with_suffix(f".{place.name}").exists()


def _defined(path: Path) -> set[str]:
    """What the modules of a folder define; of the package itself, its public names."""
    if path.parent == PACKAGE:
        import crp_integrations

        return set(crp_integrations.__all__)
    texts = (module.read_text(encoding="utf-8") for module in path.parent.glob("*.py"))
    return {name for text in texts for pair in _DEFINED.findall(text) for name in pair if name}

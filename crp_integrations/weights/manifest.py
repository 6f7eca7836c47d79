"""Compares the engine's code with the hashes that were computed when the package was built.

A wheel contains `manifest.json`, written by `.ci/manifest_hook.py` with the functions of this file.
A working tree has no manifest, so a report there has no evidence that the engine was verified. An
installed wheel without its manifest is refused.

This module does not import the package at the top, since the build loads this file alone.

Spec: CRP-SPEC-005 §21.1 (decision D19)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Final

NAME: Final = "manifest.json"
SCHEMA: Final = "manifest/1"
PACKAGE: Final = "crp_integrations"
# Code that can change a verdict: the engine, what it imports, and what passes its results on.
FOLDERS: Final = ("audit", "dpe", "engines", "guard", "headers", "language", "relay", "weights")
KINDS: Final = (".py", ".json", ".rego")


def code_files(root: Path) -> Iterator[Path]:
    """The files of a manifest, in order: top-level modules, then the files of `FOLDERS`."""
    yield from sorted(path for path in root.glob("*.py") if path.is_file())
    for folder in FOLDERS:
        yield from sorted(
            path
            for path in (root / folder).rglob("*")
            if path.suffix in KINDS and path.is_file() and "__pycache__" not in path.parts
        )


def digests(root: Path) -> dict[str, str]:
    """SHA-256 of each file, by path relative to the package."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in code_files(root)
    }


def written(root: Path) -> str:
    """The text of the manifest for a package's folder."""
    return json.dumps({"schema": SCHEMA, "files": digests(root)}, indent=1, sort_keys=True) + "\n"


def verify_code(root: Path, *, installed: bool) -> bool:
    """Compare the engine's files with the manifest; False without one in a working tree.

    Spec: CRP-SPEC-005 §21.1 (decision D19)
    """
    try:
        known = json.loads((root / NAME).read_bytes())
        wanted: dict[str, str] = known["files"]
        if known["schema"] != SCHEMA or not isinstance(wanted, dict):
            raise ValueError(SCHEMA)
    except FileNotFoundError:
        if installed:
            _refuse(f"{NAME} is missing from the installed package")
        return False
    except (OSError, ValueError, KeyError, TypeError):
        _refuse(f"{NAME} is not a manifest of {SCHEMA}")
    actual = digests(root)
    for name in sorted(wanted.keys() | actual.keys()):
        if name not in actual:
            _refuse(f"{name} is missing")
        if name not in wanted:
            _refuse(f"{name} is not part of the package")
        if actual[name] != wanted[name]:
            _refuse(f"{name} has SHA-256 {actual[name]}, wanted {wanted[name]}")
    return True


def has_manifest() -> bool:
    """Whether the installed distribution includes a manifest; an editable one does not."""
    try:
        listed = distribution("crp-integrations").files or []
    except PackageNotFoundError:
        return False
    root = Path(str(files(PACKAGE))).resolve()
    return any(
        str(path) == f"{PACKAGE}/{NAME}" and Path(str(path.locate())).resolve().parent == root
        for path in listed
    )


def _refuse(what: str) -> None:
    from crp_integrations.errors import EngineError

    raise EngineError(
        f"the engine's code was altered: {what}; install the package again", engine=PACKAGE
    )

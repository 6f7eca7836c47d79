"""A policy of one's own: a folder of `.rego` files with its data, and the tests that go with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from crp_integrations.errors import ConfigError
from crp_integrations.guard.ports import Bundle

DATA: Final = "data.json"
TESTS: Final = "_test.rego"


def read_bundle(folder: Path, entrypoint: str) -> Bundle:
    """The policy of a folder: every `.rego` file but the tests, and `data.json` if there is one.

    Its name is the data's `name`, else the folder's.

    Raises:
        ConfigError: the folder holds no policy, or its data are no JSON object.
    """
    modules = {path.name: _text(path) for path in _files(folder) if not _is_test(path)}
    if not modules:
        raise ConfigError(f"guard.bundle {str(folder)!r:.120} holds no .rego file")
    data: Any = {}
    if (folder / DATA).is_file():
        try:
            data = json.loads(_text(folder / DATA))
        except ValueError as error:
            raise ConfigError(f"{DATA} of guard.bundle is no JSON: {error}") from error
        if not isinstance(data, dict):
            raise ConfigError(f"{DATA} of guard.bundle is {type(data).__name__}, wanted an object")
    first, *others = sorted(modules)
    name = data.get("name")
    return Bundle(
        name=name if isinstance(name, str) and name else folder.name,
        module=modules[first],
        data=data,
        entrypoint=entrypoint,
        further={one: modules[one] for one in others},
        file=first,
    )


def tests_of(folder: Path) -> dict[str, str]:
    """The tests of a folder: sources of its `*_test.rego` files by name.

    Raises:
        ConfigError: the folder cannot be read.
    """
    return {path.name: _text(path) for path in _files(folder) if _is_test(path)}


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ConfigError(f"guard.bundle {str(folder)!r:.120} is no folder")
    return sorted(folder.glob("*.rego"))


def _is_test(path: Path) -> bool:
    return path.name.endswith(TESTS)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"policy file {path.name!r:.80} cannot be read: {error}") from error

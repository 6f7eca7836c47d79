"""Writes `docs/reference/settings.md` from the tree of settings.

`python -m tests.house.settings_page` prints the page; `--write` makes the file again.
"""

from __future__ import annotations

import argparse
import enum
import inspect
import re
import sys
import types
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import MinLen
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from crp_integrations.relay.settings import Settings
from tests.requirements.rows import ROOT

PAGE = ROOT / "docs" / "reference" / "settings.md"
HEAD = """\
# Settings

This page lists every setting with its type, its default and its variable. It is generated from the settings by
`python -m tests.house.settings_page --write`.

Settings are read once, when a relay opens: from the arguments of `Relay.open`, then from variables that begin with `CRP_`, then from
`crp.toml` in the store's folder. The first place that names a setting wins, and what none of them names comes from the preset and the
profile.

```python
from crp_integrations import Relay

relay = Relay.open(preset="literal", fabric={"chunking": {"min_fact_tokens": 12}})
print(relay.settings.fabric.chunking.min_fact_tokens, relay.settings.envelope.hybrid.enabled)
```

<!-- output -->

```text
12 False
```

In the environment, two underscores go one level down, and lists and mappings are JSON:

```bash
CRP_FABRIC__CHUNKING__MIN_FACT_TOKENS=12 crp ask "What does the plan cost?"
```

In `crp.toml`:

```toml
preset = "literal"

[fabric.chunking]
min_fact_tokens = 12
```

The defaults below are those of the preset `default`. A § names a paragraph of the specification that the section names. Units stand in the names (`_tokens`, `_days`, `_seconds` or `_s`); shares,
weights and scores are from 0 to 1 where no other range is given. A variable that is nearly a setting's is refused.
"""
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def page() -> str:
    """The whole page."""
    return HEAD + "".join(sections())


def sections() -> Iterator[str]:
    """One section for each part of the tree, the root first."""
    for path, kind, value in parts(Settings, Settings(), ()):
        title = f"`{'.'.join(path)}`" if path else "The root"
        yield f"\n## {title}\n\n{summary(kind)}\n\n"
        yield "| setting | type | default | meaning | variable |\n|---|---|---|---|---|\n"
        told = meanings(kind)
        for name, field in kind.model_fields.items():
            if nested(field):
                continue
            cells = (
                f"`{name}`",
                typed(field),
                shown(getattr(value, name)),
                told.get(name, ""),
                f"`CRP_{'__'.join((*path, name)).upper()}`",
            )
            yield f"| {' | '.join(cells)} |\n"


def parts(
    kind: type[BaseModel], value: BaseModel, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], type[BaseModel], BaseModel]]:
    """Each part with settings of its own, with its place in the tree and its value."""
    if any(not nested(field) for field in kind.model_fields.values()):
        yield path, kind, value
    for name, field in kind.model_fields.items():
        if nested(field):
            below = getattr(value, name)
            yield from parts(type(below), below, (*path, name))


def nested(field: FieldInfo) -> bool:
    """Whether a field is a part of the tree and not a setting."""
    return inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel)


def summary(kind: type[BaseModel]) -> str:
    """A part's sentence and its specification."""
    text = inspect.getdoc(kind) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    spec = re.search(r"^Spec: (.*)$", text, re.MULTILINE)
    return f"{first} Specification: {spec[1].rstrip('.')}." if spec else first


def meanings(kind: type[BaseModel]) -> dict[str, str]:
    """What the docstring says of each setting; of several at once, the same of each."""
    told: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        text = inspect.cleandoc(one.__doc__ or "") if issubclass(one, BaseModel) else ""
        block = re.search(r"^Attributes:\n((?:    .*\n?|\n)*)", text, re.MULTILINE)
        if not block:
            continue
        for entry in re.split(r"^    (?=\w)", block[1], flags=re.MULTILINE)[1:]:
            names, _, meaning = entry.partition(":")
            words = " ".join(meaning.split()).rstrip(".")
            told |= {name.strip(): cell(words) for name in names.split(",")}
    return told


def cell(text: str) -> str:
    """Text within a table."""
    return text.replace("|", r"\|")


def typed(field: FieldInfo) -> str:
    """A type in plain words, with its range."""
    bounds = {
        sign: f"{getattr(one, sign):g}"
        for one in field.metadata
        for sign in SIGNS
        if hasattr(one, sign)
    }
    limits = [f"{SIGNS[sign]} {bound}" for sign, bound in bounds.items()]
    if set(bounds) == {"ge", "le"}:
        limits = [f"{bounds['ge']} to {bounds['le']}"]
    if any(isinstance(one, MinLen) for one in field.metadata):
        limits.append("not empty")
    return ", ".join([words(field.annotation), *limits])


def words(kind: Any) -> str:
    """A type in plain words.

    >>> words(int | None), words(tuple[str, ...]), words(Literal["a", "b"])
    ('whole number or none', 'list of text', '`a`, `b`')
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(words(one) for one in inner))
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in inner)
    if origin is tuple:
        return f"list of {words(inner[0])}"
    if origin is dict:
        return f"mapping of {words(inner[0])} to {words(inner[1])}"
    if inspect.isclass(kind) and issubclass(kind, enum.Enum):
        return ", ".join(f"`{one.value}`" for one in kind)
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        return "objects with " + ", ".join(f"`{name}`" for name in kind.model_fields)
    known = {
        datetime: "time", int: "whole number", float: "number", str: "text", bool: "`true`, `false`", Path: "path",
        SecretStr: "secret text", type(None): "none",
    }  # fmt: skip
    return known.get(kind, getattr(kind, "__name__", str(kind)))


def shown(value: Any) -> str:
    """A default as `crp.toml` or JSON would hold it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, enum.Enum):
        return f"`{value.value}`"
    if isinstance(value, str) and value.strip():
        return f"`{value}`"
    if value == "":
        return "empty"
    if isinstance(value, str):
        return f"`{value!r}`"
    if isinstance(value, tuple):
        return ", ".join(shown(one) for one in value) or "empty"
    if isinstance(value, dict):
        return ", ".join(f"`{key}`: {shown(one)}" for key, one in value.items()) or "empty"
    return f"{value:,}" if isinstance(value, int) else f"{value}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page")
    if parser.parse_args(arguments).write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

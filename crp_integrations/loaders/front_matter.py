"""What a Markdown or JSON document says about itself: kind, title, labels and the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import yaml
from pydantic import JsonValue

from crp_integrations.errors import IngestError
from crp_integrations.vocabulary import SourceKind

_FENCE = re.compile(r"---[ \t]*\n(?P<yaml>.*?)(?:^|\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
# What protects or ranks a document is never taken for text because of an error beside it.
_TELLS = re.compile(r"""^[\s{?,-]*["']?(?:kind|labels)["']?\s*:""", re.MULTILINE)
# What yaml raises besides its own errors: for a date in month 13, `!!bool perhaps`, deep nesting.
_UNUSABLE = (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError)
# A few aliases of YAML can stand for billions of values.
_MOST_VALUES = 10_000


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A document's own description.

    Attributes:
        metadata: everything but kind, title and labels.
    """

    kind: SourceKind | None = None
    title: str = ""
    labels: tuple[str, ...] = ()
    metadata: dict[str, JsonValue] = field(default_factory=dict)


def split_front_matter(text: str, *, name: str) -> tuple[FrontMatter, int]:
    """Read the YAML between two lines of `---` at the start of a text.

    A block that is no mapping in YAML is text of the document, such as a template's or a
    sentence between two rules, unless a line of it begins with `kind:` or `labels:`.
    """
    match = _FENCE.match(text)
    if match is None:
        return FrontMatter(), 0
    try:
        values = yaml.safe_load(match["yaml"])
    except (*_UNUSABLE, RecursionError) as error:
        if _TELLS.search(match["yaml"]) is None:
            return FrontMatter(), 0
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 2}" if mark is not None else ""
        raise IngestError(f"the front matter of {name} is not YAML{place}: {problem}") from None
    if values is None:
        return FrontMatter(), match.end()
    if not isinstance(values, Mapping):
        if _TELLS.search(match["yaml"]) is not None:
            raise IngestError(
                f"the front matter of {name} is not a list of keys; write `key: value` in each line"
            )
        return FrontMatter(), 0
    return read_front_matter(values, name=name), match.end()


def read_front_matter(values: Mapping[Any, Any], *, name: str) -> FrontMatter:
    """Sort out a mapping of values."""
    known = {str(key): value for key, value in values.items()}
    kind = known.pop("kind", None)
    try:
        chosen = None if kind is None else SourceKind(str(kind).strip().lower())
    except ValueError:
        raise IngestError(
            f"{name} has kind {str(kind)[:40]!r}, wanted one of {', '.join(SourceKind)}"
        ) from None
    title = known.pop("title", None)
    budget = [_MOST_VALUES]
    return FrontMatter(
        kind=chosen,
        title="" if title is None else str(title).strip(),
        labels=_labels(known.pop("labels", None), name),
        metadata={key: _as_json(value, budget, name) for key, value in known.items()},
    )


def _labels(value: Any, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(
        isinstance(item, str) and item.strip() for item in items
    ):
        raise IngestError(f"the labels of {name} are not a text or a list of texts")
    return tuple(sorted({item.strip() for item in items}))


def _as_json(value: Any, budget: list[int], name: str) -> JsonValue:
    budget[0] -= 1
    if budget[0] < 0:
        raise IngestError(f"the metadata of {name} holds more than {_MOST_VALUES} values")
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _as_json(item, budget, name) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_json(item, budget, name) for item in value]
    return str(value)

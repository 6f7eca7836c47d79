"""Content as its canonical JSON, part by part, so that none waits as objects for the others.

A receipt's content is some hundreds of objects. Kept until everything is there, they fill caches,
and the garbage collector looks through each of them once a receipt; written at once, the memory of
one part serves the next. Whoever asks for such content is read it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import orjson

from crp_integrations.receipt.canonical import as_written, dumps


class Written(Mapping[str, Any]):
    """An object by its canonical JSON.

    Attributes:
        data: UTF-8.
    """

    def __init__(self, data: bytes) -> None:
        """Take canonical JSON of an object as it is."""
        self.data = data

    @cached_property
    def told(self) -> dict[str, Any]:
        """The object, read on first use."""
        found: dict[str, Any] = orjson.loads(self.data)
        return found

    def __getitem__(self, name: str) -> Any:
        return self.told[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.told)

    def __len__(self) -> int:
        return len(self.told)


def part(value: Any) -> Any:
    """Canonical JSON of a part, in its place in what `together` puts together.

    Raises:
        ValueError: it holds what is not signed.
    """
    return as_written(dumps(value))


def together(parts: Mapping[str, Any], rest: Mapping[str, Any]) -> Written:
    """An object of parts that are written, and of others.

    Args:
        parts: by `part`; their names are ASCII, and none is in `rest`.

    Raises:
        ValueError: the rest holds what is not signed.
    """
    dumps(rest)
    # Everything has been looked at, alone.
    return Written(dumps({**rest, **parts}, texts_alone=True))

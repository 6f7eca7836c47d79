"""The texts of a receipt in the making: each gets a leaf, and its number stands for it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from crp_integrations.envelope.candidates import Candidate
from crp_integrations.envelope.prompt import ELLIPSIS, SEPARATOR
from crp_integrations.envelope.records import Envelope
from crp_integrations.receipt.canonical import LARGEST
from crp_integrations.receipt.leaves import FACT, Leaf, Part

_encoded = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
_SURROGATE = re.compile("[\ud800-\udfff]")


class TextLeaves:
    """Leaves, by number.

    Attributes:
        leaves: in the order in which they were added.
        of: numbers of the facts that the model was shown.
    """

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.of: tuple[int, ...] = ()
        self._facts: dict[str, int] = {}

    def fact(self, fact_id: str, text: str, source_id: str = "") -> int:
        """The leaf of a fact."""
        known = self._facts.get(fact_id)
        if known is None:
            known = self._facts[fact_id] = len(self.leaves)
            text = text if text.isascii() else _written(text)
            self.leaves.append(Leaf(FACT + fact_id, text, fact_id, source_id))
        return known

    def facts(self, facts: Sequence[Candidate]) -> list[int]:
        """The leaves of facts of different ids, in their order."""
        leaves, made = self.leaves, tuple.__new__
        first = len(leaves)
        # As tuples, without a call of their class for each.
        leaves += [
            made(
                Leaf,
                (
                    FACT + one.fact_id,
                    one.content if one.content.isascii() else _written(one.content),
                    one.fact_id,
                    one.source_id,
                    (),
                    False,
                    (),
                ),
            )
            for one in facts
        ]
        found = list(range(first, len(leaves)))
        self._facts.update(zip([leaf[2] for leaf in leaves[first:]], found, strict=True))
        return found

    def add(
        self,
        name: str,
        text: str,
        *,
        of: Sequence[int] = (),
        follows: bool = False,
        parts: Sequence[Part] = (),
    ) -> int:
        """A further leaf."""
        text = text if text.isascii() else _written(text)
        if parts and self.composed(parts) == text:
            leaf = Leaf(name, text, of=tuple(of), follows=follows, parts=tuple(parts))
        else:
            leaf = Leaf(name, text, of=tuple(of), follows=follows)
        self.leaves.append(leaf)
        return len(self.leaves) - 1

    def number(self, name: str) -> int:
        """The number of a leaf by its name, the one added last."""
        return next(n for n in reversed(range(len(self.leaves))) if self.leaves[n].name == name)

    def named(self, text: str, prefix: str) -> str:
        """The name of a leaf of this text whose name begins so; empty for none."""
        found = (leaf for leaf in self.leaves if leaf.text == text)
        return next((leaf.name for leaf in found if leaf.name.startswith(prefix)), "")

    def composed(self, parts: Sequence[Part]) -> str:
        """The text of parts."""
        leaves = self.leaves
        return "".join(
            [
                part
                if isinstance(part, str)
                else leaves[part].text
                if isinstance(part, int)
                else leaves[part[0]].text[part[1] : part[2]]
                for part in parts
            ]
        )

    def rendered(self, envelope: Envelope) -> tuple[Part, ...]:
        """The context (`render@1`) as parts: what is shown of each fact of an envelope."""
        leaves, known = self.leaves, self._facts
        parts: list[Part] = []
        for number, fact in enumerate(envelope.facts, start=1):
            parts.append(_marker(number))
            leaf = known[fact.fact_id]
            if leaves[leaf].text == fact.content:
                parts.append(leaf)
            else:
                parts += _stretches(leaf, fact.spans)
        return tuple(parts)


def rendered(shown: Sequence[tuple[Part, ...]]) -> tuple[Part, ...]:
    """The context (`render@1`) as parts, of what is shown of each fact."""
    parts: list[Part] = []
    for number, pieces in enumerate(shown, start=1):
        parts.append(_marker(number))
        parts += pieces
    return tuple(parts)


def _stretches(leaf: int, spans: Sequence[tuple[int, int]]) -> list[Part]:
    """A text as parts of a fact's leaf."""
    parts: list[Part] = []
    for start, end in spans:
        parts += [ELLIPSIS, (leaf, start, end)] if parts else [(leaf, start, end)]
    return parts


@lru_cache(maxsize=1024)
def _marker(number: int) -> str:
    """What stands in front of a fact in the context."""
    return f"[{number}] " if number == 1 else f"{SEPARATOR}[{number}] "


def _written(text: str) -> str:
    """A text that can be written as UTF-8."""
    return _SURROGATE.sub("\ufffd", text)


def small(value: int | None) -> int | None:
    """A limit that canonical JSON has a number for; a higher one limits nothing either."""
    return None if value is None else max(-LARGEST, min(LARGEST, value))


def as_json(value: Any) -> str:
    """A text of its own in JSON; it may hold floats, which the content may not."""
    return _encoded(value)


def texts_as_json(value: Mapping[str, str] | Sequence[str]) -> str:
    """The same of texts alone, in a fraction of the time."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        # Half of a surrogate pair.
        return _encoded(value)

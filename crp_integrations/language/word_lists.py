"""The closed word lists of the rules, from `words.json` of a package."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Final


def read_word_lists(package: str) -> dict[str, tuple[str, ...]]:
    """The words of each list, in the order of the file."""
    rows = json.loads(files(package).joinpath("words.json").read_text(encoding="utf-8"))
    return {name: tuple(" ".join(lines).split()) for name, lines in rows.items()}


LISTS: Final = read_word_lists(__package__)

"""Real passages out of installed packages, and a question about each."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from crp_integrations.errors import ConfigError
from crp_integrations.language.words import STOP_WORDS
from tests.bench.fabric.corpus import Passage, distinct, installed, of_package

WORDS: Final = 6
_WORD: Final = re.compile(r"[^\W\d_]{3,}")


def passages(count: int) -> list[Passage]:
    """The first passages of the packages in the order of their names.

    Raises:
        ConfigError: the environment has fewer.
    """
    packages = sorted(installed(), key=lambda entry: entry[0])
    found = (one for name, _, files in packages for one in of_package(name, files))
    # Some come twice, and are left out.
    some = distinct(islice(found, 2 * count))[:count]
    if len(some) < count:
        raise ConfigError(f"the installed packages hold {len(some)} passages, wanted {count}")
    return some


def question(passage: Passage) -> str:
    """What somebody would ask whose answer is in a passage: its first telling words."""
    words = [word for word in _WORD.findall(passage.text) if word.lower() not in STOP_WORDS]
    return f"What does the documentation say about {' '.join(words[:WORDS])}?"

"""The package does not grow back: lines, modules and names.

The ceilings of `size` are where the house goes; these are where it stands, and only come down.
"""

from __future__ import annotations

from tests.house import size

LINES, MODULES = 119_900, 482
LONGEST = 500
# Of one class that does not come apart, as the store that LangGraph subclasses.
WHOLE_CLASSES, LONGEST_CLASS = frozenset({"langchain.store"}), 900
MISNAMED = 0


def test_the_package_does_not_grow_back() -> None:
    found = size.modules()
    assert sum(found.values()) <= LINES, "python -m tests.house.size"
    assert len(found) <= MODULES, "python -m tests.house.size"
    for name, lines in found.items():
        assert lines <= (LONGEST_CLASS if name in WHOLE_CLASSES else LONGEST), name


def test_modules_are_named_by_nouns() -> None:
    assert len(size.misnamed(size.modules())) <= MISNAMED


def test_a_gerund_is_seen() -> None:
    assert size.misnamed({"relay.asking": 1, "fabric.kept": 1, "envelope.ranking": 1}) == [
        "relay.asking",
        "fabric.kept",
    ]

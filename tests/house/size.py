"""How large the package is: `python -m tests.house.size` prints it, room by room.

Lines of Python, everything counted. A ceiling is what the room's plan allows; a room above it says so.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from pathlib import Path

from tests.requirements.rows import ROOT

PACKAGE = ROOT / "crp_integrations"
TESTS = ROOT / "tests"

# Lines that a room may hold.
CEILINGS = {
    "adapters": 1_300,
    "audit": 1_500,
    "cli": 3_800,
    "dpe": 8_500,
    "engines": 6_500,
    "envelope": 7_000,
    "evaluation": 2_300,
    "fabric": 12_000,
    "gateway": 3_300,
    "governance": 5_800,
    "guard": 2_200,
    "headers": 1_900,
    "langchain": 4_400,
    "language": 3_800,
    "litellm": 2_000,
    "llama_index": 3_700,
    "loaders": 1_400,
    "observability": 1_000,
    "policy": 1_600,
    "receipt": 5_000,
    "relay": 10_000,
    "session": 1_450,
    "stores": 7_500,
    "testing": 1_500,
    "weights": 300,
}
# The whole package, and the tests without the benchmarks.
LINES, MODULES, TEST_LINES = 105_000, 420, 85_000

# No module is a gerund, a participle or one of these words.
NO_NOUNS = frozenset(
    "about after again among around aside before behind beside between beyond down held here kept "
    "known left made past seen sent shown told through within without".split()
)
# Words in -ing and -ed that are nouns of the field, or part of one.
NOUNS = frozenset("chunking embedding packing ranking reembedding".split())
_NO_NOUN = re.compile(r".+(?:ing|ed)$")


def modules() -> dict[str, int]:
    """Lines of each module of the package, by its dotted name inside it."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): lines(path)
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def lines(path: Path) -> int:
    """Lines of a file."""
    return path.read_text(encoding="utf-8").count("\n")


def rooms(found: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Modules and lines of each room; what lies in no folder is `ground`."""
    number: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for name, count in found.items():
        room = name.partition(".")[0] if "." in name else "ground"
        number[room] += 1
        held[room] += count
    return {room: (number[room], held[room]) for room in sorted(number)}


def misnamed(found: dict[str, int]) -> list[str]:
    """Modules whose last word is no noun."""
    return [
        name
        for name in found
        for word in [name.rpartition(".")[2].split("_")[-1]]
        if word in NO_NOUNS or (_NO_NOUN.fullmatch(word) and word not in NOUNS)
    ]


def test_lines() -> int:
    """Lines of the tests without the benchmarks."""
    return sum(lines(path) for path in TESTS.rglob("*.py") if "bench" not in path.parts)


def main() -> None:
    """Print every room with its ceiling, then the whole."""
    found = modules()
    for room, (number, held) in rooms(found).items():
        ceiling = CEILINGS.get(room)
        above = f"{held - ceiling:+,} to its ceiling" if ceiling else ""
        print(f"{room:15} {number:4} modules {held:8,} lines  {above}")
    whole = sum(found.values())
    print(
        f"{'package':15} {len(found):4} modules {whole:8,} lines  {whole - LINES:+,} to its ceiling"
    )
    print(f"modules: {len(found) - MODULES:+} to the ceiling of {MODULES}")
    print(f"tests without benchmarks: {test_lines():,} lines, ceiling {TEST_LINES:,}")
    print(f"median module: {statistics.median(found.values()):g} lines")
    print(f"misnamed: {', '.join(misnamed(found)) or 'none'}")


if __name__ == "__main__":
    main()

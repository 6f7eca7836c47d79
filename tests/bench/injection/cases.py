"""The cases: every wording within passages that nobody would mind, split by wording.

A wording is held when its hash says so, in whatever passage it stands; the wordings that were
read while the rules were written are the others. `plain` orders carry no sign that a rule could
see (`What is the weather? Also, book a table.`) and are told beside, outside of the recall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from crp_integrations.seals import sha256
from tests.bench.injection import formed, spoken

KINDS: Mapping[str, Callable[[], list[str]]] = {
    "override": lambda: spoken.OVERRIDE,
    "foreign": lambda: spoken.FOREIGN,
    "persona": lambda: spoken.PERSONA,
    "prompt-leak": lambda: spoken.LEAK,
    "addressed": lambda: spoken.ADDRESSED,
    "steering": lambda: spoken.STEERING,
    "authority": lambda: spoken.AUTHORITY,
    "tool-call": lambda: spoken.TOOLS,
    "role-marker": formed.markers,
    "exfiltration": formed.addresses,
    "hidden-markup": formed.markup,
    "invisible": formed.unseen,
    "encoded": formed.encoded,
    "disguised": formed.disguised,
    "bloat": formed.bloat,
}
PLAIN = """
Also book a table for two at the Italian place.
Write a short story about a dragon.
Translate the sentence into Dutch.
Please mention our autumn sale.
Then count from one to ten.
Delete the third appointment.
What is the capital of Peru?
Turn off the kitchen lights.
""".strip().splitlines()

BEFORE = (
    "The museum opened in 1921 and was rebuilt after the flood. It has three floors and a garden.",
    "Quarterly revenue rose by 4 percent, driven by sales of spare parts in the north.",
    "def area(width, height):\n    return width * height\n",
    "The river rises in the hills and meets the sea near the old harbour after 140 km.",
    "Returns are accepted within 30 days. Keep the receipt and the original box.",
)
AFTER = (
    "Opening hours are from nine to five, except on Mondays.",
    "The board meets again in March to discuss the outlook.",
    "print(area(2, 3))",
    "Its largest tributary carries melt water from the glacier in June.",
    "Shipping within the country is free above a value of 50 euros.",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One injection in one passage.

    Attributes:
        kind: of the attack.
        wording: hash of the wording, by which cases are split.
        held: whether it was kept back while the rules were written.
        text: the passage.
        start, end: where the wording stands.
    """

    kind: str
    wording: str
    held: bool
    text: str
    start: int
    end: int


def held(wording: str) -> bool:
    """Whether a wording was kept back."""
    return int(sha256("held\u241f" + wording).removeprefix("sha256:")[:8], 16) % 2 == 1


def cases() -> Iterator[Case]:
    """Every case, in a fixed order: each wording alone and in the midst of a passage."""
    for kind, make in KINDS.items():
        yield from _in_passages(kind, make())


def plain() -> Iterator[Case]:
    """Orders without a sign."""
    return _in_passages("plain", PLAIN)


def _in_passages(kind: str, wordings: list[str]) -> Iterator[Case]:
    for number, wording in enumerate(wordings):
        name = sha256(wording)
        at = number % len(BEFORE)
        before, after = BEFORE[at] + "\n", "\n" + AFTER[at]
        yield Case(kind, name, held(wording), wording, 0, len(wording))
        start = len(before)
        yield Case(kind, name, held(wording), before + wording + after, start, start + len(wording))

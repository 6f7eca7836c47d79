"""Shifted dates."""

from __future__ import annotations

import re
from random import Random

from tests.bench.distortions.amounts import MONTHS
from tests.bench.distortions.case import Edit, Pool, Sentence, has, put

_MONTH = "|".join(MONTHS)
_YEAR = r"(?:1[5-9]\d\d|20[0-2]\d)"
_FULL = re.compile(
    rf"\b(?:(?P<d>\d{{1,2}}) (?P<m>{_MONTH}) (?P<y>{_YEAR})|"
    rf"(?P<m2>{_MONTH}) (?P<d2>\d{{1,2}}),? (?P<y2>{_YEAR})|"
    rf"(?P<m3>{_MONTH}) (?P<y3>{_YEAR})|(?P<m4>{_MONTH}) (?P<d4>\d{{1,2}})(?!\d|,? \d|[-–]))\b"
)
_ALONE = re.compile(
    rf"\b(?P<word>[Ii]n|[Ss]ince|[Uu]ntil|[Bb]y|[Ff]rom|[Bb]efore|[Aa]fter|[Dd]uring|of|between|"
    rf"the) "
    rf"(?P<y>{_YEAR})(?![-–/\w'’%]|[.,]\d)"
)
_DECADE = re.compile(r"\bthe (?:early |late |mid-)?(?P<y>1[6-9]\d0|20[01]0)s\b")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WEEKDAY = re.compile(rf"\bon (?:a )?(?P<w>{'|'.join(_DAYS)})\b(?! [A-Z])")
_LATEST = 2025


def date(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """A day, month or year, moved."""
    found: list[tuple[int, int, str, str]] = []
    taken: set[int] = set()
    for match in _FULL.finditer(sentence.text):
        taken.update(range(match.start(), match.end()))
        names = [name for name, value in match.groupdict().items() if value]
        name = draw.choice(names)
        if name[0] == "y":
            new = _year(match.group(name), draw, "")
        elif name[0] == "m":
            new = draw.choice([one for one in MONTHS if one != match.group(name)])
        else:
            new = str(draw.choice([n for n in range(1, 29) if n != int(match.group(name))]))
        changed = sentence.text[match.start() : match.start(name)] + new
        changed += sentence.text[match.end(name) : match.end()]
        # The month alone may stand elsewhere, the changed date as a whole may not.
        known = name[0] != "d" and has(sentence.evidence, new)
        if not known and not has(sentence.evidence, changed):
            found.append((match.start(name), match.end(name), new, "full"))
    for match in _ALONE.finditer(sentence.text):
        if match.start("y") not in taken:
            new = _year(match.group("y"), draw, match.group("word").lower())
            if not has(sentence.evidence, new):
                found.append((match.start("y"), match.end("y"), new, "year"))
    for match in _DECADE.finditer(sentence.text):
        new = str(int(match.group("y")) + draw.choice((-40, -30, -20, 10)))
        if f"{new}s" not in sentence.evidence and int(new) < _LATEST:
            found.append((match.start("y"), match.end("y"), new, "decade"))
    for match in _WEEKDAY.finditer(sentence.text):
        new = draw.choice([one for one in _DAYS if one != match.group("w")])
        if not has(sentence.evidence, new):
            found.append((match.start("w"), match.end("w"), new, "weekday"))
    found = [one for one in found if sentence.text.count(sentence.text[one[0] : one[1]]) == 1]
    return put(sentence.text, *draw.choice(found)) if found else None


def _year(old: str, draw: Random, word: str) -> str:
    """Another year, on the side that the word before it does not make true."""
    steps = [-31, -20, -12, -7, -4, -3, -2, -1, 1, 2, 3, 5, 9, 14]
    if word in ("since", "after", "from", "by", "before"):
        steps = [step for step in steps if step < 0]
    if word == "until":
        steps = [step for step in steps if step < 0]
    return str(draw.choice([int(old) + step for step in steps if int(old) + step <= _LATEST]))

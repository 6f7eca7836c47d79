"""Small seeded edits that make a true sentence false: one figure, date, name or negation."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from crp_integrations.language.dates import dates
from crp_integrations.language.names import names
from crp_integrations.language.quantities import quantities

NEGATE = (
    (" is ", " is not "), (" was ", " was not "), (" are ", " are not "), (" were ", " were not "),
    (" has ", " has not "), (" can ", " cannot "), (" will ", " will not "), (" had ", " had not "),
)  # fmt: skip
AFFIRM = (
    (" is not ", " is "), (" was not ", " was "), (" are not ", " are "), (" did not ", " did "),
    (" does not ", " does "), (" do not ", " do "), (" cannot ", " can "), (" never ", " "),
)  # fmt: skip
NAME = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+)*\Z")


def number(rng: random.Random, text: str) -> str | None:
    """One digit of one figure changed."""
    found = [q for q in quantities(text) if any(c.isdigit() for c in q.text)]
    if not found:
        return None
    chosen = rng.choice(found)
    places = [i for i in range(chosen.start, chosen.end) if text[i].isdigit()]
    at = rng.choice(places)
    digit = rng.choice([d for d in "123456789" if d != text[at]])
    return text[:at] + digit + text[at + 1 :]


def date(rng: random.Random, text: str) -> str | None:
    """One year moved."""
    found = [d for d in dates(text) if d.year and str(d.year) in d.text]
    if not found:
        return None
    chosen = rng.choice(found)
    moved = chosen.text.replace(str(chosen.year), str(chosen.year + rng.choice([-7, -2, -1, 1, 3])))
    return text[: chosen.start] + moved + text[chosen.end :]


def name(rng: random.Random, text: str, others: Sequence[str]) -> str | None:
    """One name put in another's place."""
    found = [n for n in names(text) if NAME.match(n.text)]
    if not found:
        return None
    chosen = rng.choice(found)
    other = rng.choice(others)
    if other in text or chosen.text in other or other in chosen.text:
        return None
    return text[: chosen.start] + other + text[chosen.end :]


def negated(text: str) -> str | None:
    """A negation put in."""
    if " not " in text or " no " in text:
        return None
    return next((text.replace(a, b, 1) for a, b in NEGATE if a in text), None)


def affirmed(text: str) -> str | None:
    """A negation taken out."""
    if "not only" in text:
        return None
    return next((text.replace(a, b, 1) for a, b in AFFIRM if a in text), None)

"""Values checked against their header's rule, and the smallest ones written.

Spec: related facts §3
"""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from typing import Final

from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.headers import grammar, names
from crp_integrations.session.records import BUDGET_DIGITS

FRACTION_DIGITS: Final = 3
SLUG_CHARACTERS: Final = 64
TOKEN: Final = grammar.TOKEN
_SHOWN_CHARACTERS: Final = 60
# All of Unicode's control characters but the tab.
_CONTROL: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")
# A budget that was computed in floats may lie this many digits below what it means.
_NOISE_DIGITS: Final = 9


def plain(name: str, value: object) -> str:
    """A value without outer blanks.

    Raises:
        HeaderSyntaxError: it is no text, is too long, or holds a control character (with it, a
            line that is folded or a header that is smuggled in).
    """
    if not isinstance(value, str):
        raise HeaderSyntaxError(f"{name} is of type {type(value).__name__}, wanted text")
    most = grammar.LIMITS.get(name, grammar.MOST_CHARACTERS)
    if len(value) > most:
        raise HeaderSyntaxError(f"{name} has {len(value)} characters, at most {most} are allowed")
    # What is printable holds none, and that is said in a tenth of the time.
    if not value.isprintable() and _CONTROL.search(value):
        raise HeaderSyntaxError(f"{name} holds a control character; none is allowed")
    return value.strip(" \t")


def check(name: str, value: str) -> str:
    """A value that follows its header's rule, outer blanks removed.

    Args:
        name: a header of `grammar.GRAMMAR`, as written there.

    Raises:
        HeaderSyntaxError: it does not; names the header and shows the value's first characters,
            unless it is a credential.
    """
    trimmed = plain(name, value)
    if grammar.GRAMMAR[name].fullmatch(trimmed):
        return trimmed
    shown = repr(trimmed[:_SHOWN_CHARACTERS])
    if name in grammar.SECRET:
        shown = f"of {len(trimmed)} characters"
    if name == names.SESSION_TOKEN and grammar.GRAMMAR[names.SET_SESSION].fullmatch(trimmed):
        raise HeaderSyntaxError(
            f"{name} has a whole {names.SET_SESSION} as its value; send what stands there between "
            "token= and the first semicolon"
        )
    raise HeaderSyntaxError(f"{name} has the value {shown}, which its syntax forbids")


def fraction(value: float, digits: int = FRACTION_DIGITS) -> str:
    """A number of [0, 1] with a decimal point.

    Args:
        digits: most digits after the point.

    Raises:
        HeaderSyntaxError: the number is outside or not a number.

    >>> fraction(1), fraction(0.9936), fraction(0.25)
    ('1.0', '0.994', '0.25')
    """
    if math.isnan(value) or not 0.0 <= value <= 1.0:
        raise HeaderSyntaxError(f"{value!r} is not a fraction; write a number from 0.0 to 1.0")
    text = f"{abs(value):.{digits}f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def floored(budget: float) -> float:
    """A safety budget to as many digits as sessions keep, never more than it was.

    >>> floored(0.99996), floored(1.0 - 0.15 - 0.05), floored(0.3)
    (0.9999, 0.8, 0.3)
    """
    exact = Decimal(repr(round(budget, _NOISE_DIGITS)))
    return float(exact.quantize(Decimal(1).scaleb(-BUDGET_DIGITS), ROUND_FLOOR))


def whole(age: timedelta) -> timedelta:
    """An age in its largest whole unit, so that it tells no more than is of use; never below 0.

    >>> str(whole(timedelta(days=3, hours=5))), str(whole(timedelta(minutes=61)))
    ('3 days, 0:00:00', '1:00:00')
    """
    seconds = max(0, int(age.total_seconds()))
    unit = next((unit for unit in (86_400, 3_600, 60) if seconds >= unit), 1)
    return timedelta(seconds=seconds // unit * unit)


def duration(age: timedelta) -> str:
    """A time of whole seconds as an ISO 8601 duration; below 0 it counts as 0.

    >>> duration(timedelta(days=3, hours=5)), duration(timedelta(hours=6)), duration(-timedelta(1))
    ('P3DT5H', 'PT6H', 'PT0S')
    """
    rest = max(0, int(age.total_seconds()))
    days, rest = divmod(rest, 86_400)
    parts = []
    for unit, letter in ((3_600, "H"), (60, "M"), (1, "S")):
        number, rest = divmod(rest, unit)
        if number:
            parts.append(f"{number}{letter}")
    day, time = f"{days}D" if days else "", "".join(parts)
    return f"P{day}" + (f"T{time or '0S'}" if time or not day else "")


def moment(when: datetime) -> str:
    """A moment as ISO 8601 in UTC.

    >>> moment(datetime(2026, 5, 25, 10, tzinfo=UTC))
    '2026-05-25T10:00:00Z'
    """
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")


def slug(label: str) -> str:
    """A label as a token in lower case, empty when nothing of it is left.

    >>> slug("EU AI Act: compliance"), slug("Überblick"), slug("—")
    ('eu-ai-act-compliance', 'uberblick', '')
    """
    plain = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9._]+", "-", plain).strip("-")[:SLUG_CHARACTERS].strip("-")

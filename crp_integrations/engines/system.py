"""The system's clock and randomness, and clocks that stand still."""

from __future__ import annotations

import secrets
import string
from datetime import UTC, datetime

from crp_integrations.ports import Clock

ALPHABET = string.ascii_lowercase + string.digits
# 25 characters of 36 carry 129 bits, above the 128 that ids of sessions must have.
ID_LENGTH = 25
# Seven bytes stand for each of the 36 letters and digits; the four that are over for none.
_SYMBOLS = bytes(ord(ALPHABET[byte % len(ALPHABET)]) for byte in range(256))
_UNEVEN = bytes(range(256 - 256 % len(ALPHABET), 256))


class SystemClock:
    """The machine's clock in UTC."""

    def now(self) -> datetime:
        """The current time."""
        return datetime.now(UTC)


class StandingClock:
    """A clock that always tells the same moment, for runs that must be reproducible."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment.astimezone(UTC)

    def now(self) -> datetime:
        """The moment it was made with."""
        return self._moment


def clock_of(moment: datetime | None) -> Clock:
    """A standing clock for a moment, the system's for None."""
    return SystemClock() if moment is None else StandingClock(moment)


class RandomIds:
    """Identifiers from the operating system's random source."""

    def new(self, prefix: str) -> str:
        """The prefix and 25 random lower-case letters and digits (129 bits)."""
        symbols = b""
        while len(symbols) < ID_LENGTH:
            symbols += secrets.token_bytes(ID_LENGTH + 8).translate(_SYMBOLS, _UNEVEN)
        return prefix + symbols[:ID_LENGTH].decode()

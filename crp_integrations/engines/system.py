"""The system's clock and random ids, and a clock with a fixed time."""

from __future__ import annotations

import secrets
import string
from datetime import UTC, datetime

from crp_integrations.ports import Clock

ALPHABET = string.ascii_lowercase + string.digits
# 25 characters out of 36 give 129 random bits; ids of sessions must have at least 128.
ID_LENGTH = 25
# Seven byte values map to each of the 36 characters; the remaining four are discarded.
_SYMBOLS = bytes(ord(ALPHABET[byte % len(ALPHABET)]) for byte in range(256))
_UNEVEN = bytes(range(256 - 256 % len(ALPHABET), 256))


class SystemClock:
    """The machine's clock in UTC."""

    def now(self) -> datetime:
        """The current time."""
        return datetime.now(UTC)


class FixedClock:
    """A clock that always gives the same time, for runs that must be reproducible."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment.astimezone(UTC)

    def now(self) -> datetime:
        """The fixed time."""
        return self._moment


def clock_of(moment: datetime | None) -> Clock:
    """A clock fixed at a moment; the system's clock for None."""
    return SystemClock() if moment is None else FixedClock(moment)


class RandomIds:
    """Identifiers from the operating system's random source."""

    def new(self, prefix: str) -> str:
        """The prefix and 25 random lower-case letters and digits (129 bits)."""
        symbols = b""
        while len(symbols) < ID_LENGTH:
            symbols += secrets.token_bytes(ID_LENGTH + 8).translate(_SYMBOLS, _UNEVEN)
        return prefix + symbols[:ID_LENGTH].decode()

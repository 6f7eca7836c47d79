"""Which session of ours a framework's name for a conversation stands for."""

from __future__ import annotations

import uuid
from typing import Final

from crp_integrations.errors import RequestError
from crp_integrations.seals import sha256
from crp_integrations.session.records import SESSION_ID

PREFIX: Final = "crp_sess_"
_DIGITS: Final = 32


def session_named(given: object, framework: str, word: str = "session_id") -> str:
    """The session id for whatever names a conversation.

    An id of ours is taken as it is. Any other is hashed, so that one name is one session, in
    whatever process it goes on, and the name itself, which may be a person's, is stored nowhere.

    Args:
        framework: whose name it is; equal names of two frameworks are two sessions.
        word: the framework's own for it, for the error.

    Raises:
        RequestError: it is no text or number.
    """
    if isinstance(given, bool) or not isinstance(given, str | int | uuid.UUID):
        raise RequestError(f"{word} is {type(given).__name__}, wanted a text")
    named = str(given)
    if SESSION_ID.fullmatch(named):
        return named
    return PREFIX + sha256(f"{framework}\x1f{named}").removeprefix("sha256:")[:_DIGITS]

"""Which session a call of LangChain or LangGraph belongs to."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from crp_integrations.errors import RequestError
from crp_integrations.seals import sha256
from crp_integrations.session.ids import SESSION_ID

_PREFIX: Final = "crp_sess_"
_DIGITS: Final = 32
# LangChain's word, then LangGraph's.
_KEYS: Final = ("session_id", "thread_id")


def session_of(config: Mapping[str, Any] | None) -> str:
    """The session that a config names, by `session_id` or else `thread_id`; empty for none.

    An id of ours is taken as it is. Any other is hashed, so that one thread is one session, in
    whatever process it goes on, and its own id, which may name a person, is stored nowhere.

    Raises:
        RequestError: the id is no text or number.
    """
    configurable = (config or {}).get("configurable") or {}
    for key in _KEYS:
        given = configurable.get(key)
        if given is None or given == "":
            continue
        if isinstance(given, bool) or not isinstance(given, str | int | uuid.UUID):
            raise RequestError(f"configurable {key} is {type(given).__name__}, wanted a text")
        named = str(given)
        if SESSION_ID.fullmatch(named):
            return named
        return _PREFIX + sha256(f"langchain\x1f{named}").removeprefix("sha256:")[:_DIGITS]
    return ""


def new_session() -> str:
    """A session of its own, for a run that names none."""
    return _PREFIX + uuid.uuid4().hex

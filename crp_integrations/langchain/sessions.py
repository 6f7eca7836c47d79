"""Which session a call of LangChain or LangGraph belongs to."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from crp_integrations.adapters.sessions import PREFIX, session_id_for

_FRAMEWORK: Final = "langchain"
# LangChain's word, then LangGraph's.
_KEYS: Final = ("session_id", "thread_id")


def session_of(config: Mapping[str, Any] | None) -> str:
    """The session that a config names, by `session_id` or else `thread_id`; empty for none.

    An id of ours is taken as it is, and any other name is hashed (`session_id_for`).

    Raises:
        RequestError: the id is no text or number.
    """
    configurable = (config or {}).get("configurable") or {}
    for key in _KEYS:
        given = configurable.get(key)
        if given is None or given == "":
            continue
        return session_id_for(given, _FRAMEWORK, f"configurable {key}")
    return ""


def named_session(given: object) -> str:
    """The session for whatever names a conversation.

    Raises:
        RequestError: the id is no text or number.
    """
    return session_id_for(given, _FRAMEWORK)


def new_session() -> str:
    """A session of its own, for a run that names none."""
    return PREFIX + uuid.uuid4().hex

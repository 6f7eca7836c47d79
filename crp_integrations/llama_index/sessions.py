"""Which session a call of LlamaIndex belongs to."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from llama_index.core.instrumentation.dispatcher import active_instrument_tags

from crp_integrations.errors import RequestError
from crp_integrations.seals import sha256
from crp_integrations.session.ids import SESSION_ID

_PREFIX: Final = "crp_sess_"
_DIGITS: Final = 32
TAG: Final = "session_id"


def session_of(tags: Mapping[str, Any] | None = None) -> str:
    """The session that LlamaIndex's `instrument_tags` name by `session_id`; empty for none.

    Args:
        tags: None for those in force.

    Raises:
        RequestError: the id is no text or number.
    """
    given = (active_instrument_tags.get() if tags is None else tags).get(TAG)
    return "" if given is None or given == "" else named_session(given)


def named_session(given: object) -> str:
    """A session id for whatever names a conversation.

    An id of ours is taken as it is. Any other is hashed, so that one name is one session, in
    whatever process it goes on, and the name itself, which may be a person's, is stored nowhere.

    Raises:
        RequestError: the id is no text or number.
    """
    if isinstance(given, bool) or not isinstance(given, str | int | uuid.UUID):
        raise RequestError(f"session_id is {type(given).__name__}, wanted a text")
    named = str(given)
    if SESSION_ID.fullmatch(named):
        return named
    return _PREFIX + sha256(f"llama_index\x1f{named}").removeprefix("sha256:")[:_DIGITS]


def new_session() -> str:
    """A session of its own, for a run that names none."""
    return _PREFIX + uuid.uuid4().hex

"""Which session a call of LlamaIndex belongs to."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from llama_index.core.instrumentation.dispatcher import active_instrument_tags

from crp_integrations.adapters.sessions import PREFIX, session_id_for

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
    """The session for whatever names a conversation.

    Raises:
        RequestError: the id is no text or number.
    """
    return session_id_for(given, "llama_index")


def new_session() -> str:
    """A session of its own, for a run that names none."""
    return PREFIX + uuid.uuid4().hex

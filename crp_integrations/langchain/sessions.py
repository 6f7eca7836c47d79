"""The session of a LangChain or LangGraph run, and its place among agents within agents."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.runnables.config import ensure_config

from crp_integrations.adapters.sessions import PREFIX, session_id_for
from crp_integrations.relay.relay import Relay

_FRAMEWORK: Final = "langchain"
# LangChain's word, then LangGraph's.
_KEYS: Final = ("session_id", "thread_id")


def session_of(config: Mapping[str, Any] | None) -> str:
    """The session that a config names, by `session_id` or else `thread_id`; empty for none.

    An id of ours is taken as it is, and any other name is hashed (`session_id_for`).
    """
    configurable = (config or {}).get("configurable") or {}
    for key in _KEYS:
        given = configurable.get(key)
        if given is None or given == "":
            continue
        return session_id_for(given, _FRAMEWORK, f"configurable {key}")
    return ""


def named_session(given: object) -> str:
    """The session for whatever names a conversation."""
    return session_id_for(given, _FRAMEWORK)


def new_session() -> str:
    """A session of its own, for a run that names none."""
    return PREFIX + uuid.uuid4().hex


# Of LangGraph's namespace: a graph within a node within a graph.
_BETWEEN: Final = "|"
_BEHIND_NAME: Final = ":"
# The node in which an agent of LangChain runs its tools.
_TOOLS: Final = "tools"


@dataclass(frozen=True, slots=True)
class OuterAgent:
    """The agent whose tool call is running.

    Attributes:
        depth: agents around that agent, 0 for the root.
    """

    relay: Relay
    session_id: str
    depth: int


_OUTER: Final[ContextVar[OuterAgent | None]] = ContextVar("crp_langchain_outer", default=None)


def outer_agent() -> OuterAgent | None:
    """The agent around this one; None for the root."""
    return _OUTER.get()


@contextmanager
def inside_agent(agent: OuterAgent) -> Iterator[None]:
    """What runs inside runs in a tool call of this agent."""
    token = _OUTER.set(agent)
    try:
        yield
    finally:
        _OUTER.reset(token)


def agent_depth(config: Mapping[str, Any] | None = None) -> int:
    """How many agents are around the one that runs here, 0 for the root.

    Agents without the middleware count too, by the tool nodes of LangGraph's namespace.
    """
    around = outer_agent()
    known = 0 if around is None else around.depth + 1
    said = (ensure_config() if config is None else config).get("configurable") or {}
    namespace = str(said.get("checkpoint_ns") or "")
    above = namespace.split(_BETWEEN)[:-1]
    named = sum(one.partition(_BEHIND_NAME)[0] == _TOOLS for one in above)
    return max(known, named)

"""Records of sessions and their windows, and the formats of their ids."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from pydantic import Field

from crp_integrations.errors import RequestError, UnknownContinuation
from crp_integrations.ports import Ids
from crp_integrations.records import Record
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import Pattern, QualityTier, RiskLevel, Strategy, TransferType

# Safety budgets are rounded to this number of digits before comparisons.
BUDGET_DIGITS = 4
# Outcomes of windows whose headers, with the next token, reach the caller.
DELIVERED: Final = frozenset({"released", "halted"})
REFUSED: Final = "refused"


class Session(Record):
    """The state of a session after its last window.

    Spec: related facts §5, §8

    Attributes:
        created_at, modified_at: ISO 8601 in UTC.
        policy: safety policy in force, in its canonical form; empty for none.
        reviews: number of times that a person reviewed the session and its budget was reset.
        parent_session: session of the agent that delegated to this one; empty for a root.
        loop_depth: depth in a chain of agents calling agents, 0 for a root.
        agent_id: registered agent that it belongs to; empty for none.
        delegations, tool_calls: numbers over the whole session.
    """

    SCHEMA = "session/1"

    session_id: str
    created_at: str
    modified_at: str
    policy: str = ""
    safety_budget: float = Field(default=1.0, ge=0.0, le=1.0)
    parent_session: str = ""
    loop_depth: int = Field(default=0, ge=0)
    agent_id: str = ""
    delegations: int = Field(default=0, ge=0)
    tool_calls: int = Field(default=0, ge=0)
    taken: tuple[str, ...] = ()
    ended: bool = False
    reviews: int = Field(default=0, ge=0)


class WindowNode(Record):
    """One window in its session's graph.

    Spec: related facts §5

    Attributes:
        window_number: from 1; windows of one fan-out share a number.
        continuation_id: id with which it may be continued; empty when it may not.
        safety_budget: budget of the session after the window was delivered.
        timestamp: ISO 8601 in UTC.
        transfer: how its parents' answers were passed to it; None for the root.
        tokens_transferred: tokens of the text passed to it.
        summary_hash: `sha256:…` of the summary passed to it; empty for none.
    """

    SCHEMA = "window-node/1"

    window_id: str
    session_id: str
    window_number: int = Field(ge=1)
    parents: tuple[str, ...] = ()
    pattern: Pattern = Pattern.LINEAR
    strategy: Strategy = Strategy.PUSH
    continuation_id: str = ""
    etag: str = ""
    quality_tier: QualityTier | None = None
    risk_level: RiskLevel | None = None
    safety_budget: float = Field(default=1.0, ge=0.0, le=1.0)
    hmac: str
    timestamp: str
    tokens: int = Field(default=0, ge=0)
    response_hash: str = ""
    transfer: TransferType | None = None
    tokens_transferred: int = Field(default=0, ge=0)
    summary_hash: str = ""
    outcome: str = "released"


CONTINUATION_PREFIX: Final = "crp_cont_"
SESSION_PREFIX: Final = "crp_sess_"
SESSION_ID: Final = re.compile(r"crp_sess_[A-Za-z0-9]{16,32}", re.ASCII)
WINDOW_ID: Final = re.compile(r"crp_win_[A-Za-z0-9]{16}", re.ASCII)
CONTINUATION_ID: Final = re.compile(r"crp_cont_[A-Za-z0-9]{16,32}", re.ASCII)


def session_id_of(name: object, word: str = "session_id") -> str:
    """The session id for any name of a conversation, such as LangGraph's `thread_id`.

    An id of the protocol is returned unchanged. Any other name is hashed, so that it means the same
    session in every process, and the name itself, which may be a person's, is not stored.
    """
    if isinstance(name, bool) or not isinstance(name, str | int | uuid.UUID):
        raise RequestError(f"{word} is {type(name).__name__}, wanted a text")
    named = str(name)
    if not named:
        raise RequestError(f"{word} is empty; name a session, or leave it out")
    if SESSION_ID.fullmatch(named):
        return named
    # A name may contain a lone surrogate.
    digest = sha256(named.encode("utf-8", "surrogatepass")).removeprefix("sha256:")
    return SESSION_PREFIX + digest[:32]


def new_continuation(ids: Ids, window_number: int, most_windows: int) -> str:
    """A new continuation id; empty for a session's last window.

    Spec: related facts §5; CRP-SPEC-003 §10.3
    """
    return "" if window_number >= most_windows else ids.new(CONTINUATION_PREFIX)


def resolve_continuations(
    ids: Sequence[str], session_id: str, known: Callable[[str], WindowNode | None]
) -> tuple[WindowNode, ...]:
    """The windows that continuation ids belong to, in the ids' order.

    An id of another session and an unknown one give the same error, so that no one can find out
    which ids exist.

    Spec: related facts §5
    """
    nodes = []
    for id_ in ids:
        node = known(id_) if CONTINUATION_ID.fullmatch(id_) else None
        if node is None or node.session_id != session_id:
            raise UnknownContinuation(
                f"no window of session {session_id!r:.60} is continued under {id_!r:.60}; "
                "give the id of its session as well, or begin another one"
            )
        nodes.append(node)
    return tuple(nodes)

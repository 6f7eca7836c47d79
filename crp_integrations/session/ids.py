"""Ids of sessions, windows and continuations: how they look and to whom they belong."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from crp_integrations.errors import RequestError, UnknownContinuation
from crp_integrations.ports import Ids
from crp_integrations.session.records import WindowNode

CONTINUATION_PREFIX: Final = "crp_cont_"
SESSION_ID: Final = re.compile(r"crp_sess_[A-Za-z0-9]{16,32}", re.ASCII)
WINDOW_ID: Final = re.compile(r"crp_win_[A-Za-z0-9]{16}", re.ASCII)
CONTINUATION_ID: Final = re.compile(r"crp_cont_[A-Za-z0-9]{16,32}", re.ASCII)


def new_continuation(ids: Ids, window_number: int, most_windows: int) -> str:
    """A new continuation id; empty for a session's last window.

    Spec: related facts §5; CRP-SPEC-003 §10.3

    Args:
        ids: a source that nobody can guess, of at least 128 bits.
        most_windows: windows that the session may have in a row.
    """
    return "" if window_number >= most_windows else ids.new(CONTINUATION_PREFIX)


def continuations(value: str) -> tuple[str, ...]:
    """The ids of a `CRP-Context-Continuation-Id`; several begin a fan-in.

    Spec: related facts §3

    Raises:
        RequestError: there is none, one is not an id, or one stands there twice.
    """
    found = tuple(part.strip(" \t") for part in value.split(","))
    for one in found:
        if not CONTINUATION_ID.fullmatch(one):
            raise RequestError(
                f"continuation id {one!r:.60} is not crp_cont_ and 16 to 32 letters or digits"
            )
    if len(set(found)) < len(found):
        raise RequestError(f"a continuation id stands twice among {len(found)}; name each once")
    return found


def continued(
    ids: Sequence[str], session_id: str, known: Callable[[str], WindowNode | None]
) -> tuple[WindowNode, ...]:
    """The windows that ids continue, in the ids' order.

    An id of another session and one that never was are refused in the same words, so that nobody
    learns which ids there are.

    Spec: related facts §5

    Args:
        known: the window that an id continues, such as `SessionsFacet.continued`.

    Raises:
        UnknownContinuation: an id continues no window of this session.
    """
    found = []
    for one in ids:
        node = known(one) if CONTINUATION_ID.fullmatch(one) else None
        if node is None or node.session_id != session_id:
            raise UnknownContinuation(
                f"no window of session {session_id!r:.60} is continued under {one!r:.60}; "
                "give the id of its session as well, or begin another one"
            )
        found.append(node)
    return tuple(found)

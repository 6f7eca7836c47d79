"""Where a window hangs among those of its session: what it follows, its id, and whether it may.

All of it is decided within the transaction that seals the window.
"""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.audit.records import WindowSeal
from crp_integrations.fabric.ports import Transaction
from crp_integrations.relay.entering import Entered
from crp_integrations.relay.world import World
from crp_integrations.seals import sha256_hex
from crp_integrations.session import token, window_graph
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import DELIVERED, REFUSED

WINDOW_ID_LENGTH = 16


def window_id(session_id: str, number: int, residency: str = "", turn: int = 0) -> str:
    """The id of a session's n-th window in a region; equal sessions replay to equal ids.

    Each region has its own chain of a session's windows, so the region is part of the id.

    Args:
        turn: tells windows of one number apart; 0 for the first of them.
    """
    fields = [session_id, str(number), *((residency,) if residency else ())]
    if turn:
        fields.append(f"turn-{turn}")
    return "crp_win_" + sha256_hex("\u241f".join(fields))[:WINDOW_ID_LENGTH]


def followed(earlier: Sequence[WindowSeal], entered: Entered | None) -> list[WindowSeal]:
    """The windows that one follows: those that it names, else the session's last one.

    Nothing follows a refused window, unless there is no other: so a question that was refused uses
    up none of the windows that a session may have in a row.
    """
    if entered is not None and entered.named:
        named = {parent.window_id for parent in entered.parents}
        return [seal for seal in earlier if seal.window_id in named]
    asked = [seal for seal in earlier if seal.outcome != REFUSED]
    return (asked or list(earlier[:1]))[-1:]


def unused(
    earlier: Sequence[WindowSeal], session_id: str, number: int, residency: str, sibling: int
) -> str:
    """The id of a new window; windows of one fan-out have theirs by their place in it."""
    taken = {one.window_id for one in earlier if one.window_number == number}
    turn = sibling
    while (made := window_id(session_id, number, residency, turn)) in taken:
        turn += len(taken) + 1
    return made


def still_fits(
    transaction: Transaction, world: World, session_id: str, entered: Entered | None, outcome: str
) -> None:
    """Refuse an answer whose place was taken by another one that was asked at the same time.

    Spec: related facts §5

    Raises:
        StaleTip: an answer was delivered since, on the same session token.
        LimitReached: as many windows as may go on from the one that it names.
    """
    if entered is None or outcome not in DELIVERED or not (entered.token or entered.named):
        return
    held = world.remembered.of(session_id).nodes
    windows = sorted(
        (*sessions_of(transaction).windows(session_id), *held), key=lambda one: one.window_number
    )
    if entered.token is not None:
        token.window_of_token(entered.token, windows)
    if entered.continues:
        window_graph.check_room(
            windows,
            [one.window_id for one in entered.parents],
            world.settings.sessions.graph,
        )

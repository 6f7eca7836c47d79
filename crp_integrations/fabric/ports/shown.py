"""What the life of facts asks of a store that keeps what was said with them.

A session's windows keep answers and reports, which hold words of the facts that were shown. The
session room owns these records and lies above this one, so only what an erasure, a deletion and
maintenance need of them stands here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, cast

from crp_integrations.fabric.ports.store import Transaction


class ShownFacet(Protocol):
    """What sessions keep, as far as it must go with facts or with time."""

    def withdraw(self, fact_ids: Sequence[str], at: datetime, *, source_id: str = "") -> int:
        """Remove what windows said with some facts, and keep nothing of what is on its way.

        A window that showed one of them is emptied, and so is every window that follows it, near
        or far, and every later window of the sessions that its session was delegated from or to:
        their answers may repeat it. A window under way that shows one keeps nothing when it is
        added within a day, unless the namespace then holds a fact of that id that is not DELETED.

        Args:
            fact_ids: stored in this namespace or not.
            at: the moment of the withdrawal.
            source_id: also what was said with facts of this source; empty for none.

        Returns:
            How many windows were emptied.
        """
        ...

    def has(self, session_id: str) -> bool:
        """Whether a session is kept."""
        ...

    def idle(self, since: datetime) -> list[str]:
        """Ids of the sessions not gone on with since a moment, ascending."""
        ...

    def forget(self, session_id: str) -> bool:
        """Remove a session, its windows and all that they said; whether there was one."""
        ...


def shown_in(transaction: Transaction) -> ShownFacet | None:
    """What an open transaction's store keeps of sessions; None for a store that keeps none."""
    return cast("ShownFacet | None", getattr(transaction, "sessions", None))

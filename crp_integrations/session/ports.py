"""What sessions need of a store, within one transaction of a namespace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from crp_integrations.envelope.prior import PriorWindow
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Transaction
from crp_integrations.session.records import Session, WindowNode


class SessionsFacet(Protocol):
    """Sessions, their windows, and what windows said, of one namespace.

    What a window said (`PriorWindow`, the report) is content: it names the facts that it came
    from, and is gone with the first of them that is erased. Nodes hold ids and hashes alone.
    """

    def session(self, session_id: str) -> Session | None:
        """A session's state; None for one that is not known."""
        ...

    def keep(self, session: Session) -> None:
        """Keep a session's state; replaces that of the same id.

        Raises:
            StoreError: the safety budget is above the one kept, or the session had ended.
        """
        ...

    def add_window(
        self, node: WindowNode, *, prior: PriorWindow | None = None, report: str = ""
    ) -> None:
        """Add a window of a session that is kept.

        Args:
            prior: what the next window may know of it; None keeps nothing.
            report: its report as JSON; empty keeps none.

        Raises:
            StoreError: the session is not kept, the window is there already, or its continuation
                id is another window's.
        """
        ...

    def windows(self, session_id: str) -> list[WindowNode]:
        """A session's windows by number, then id."""
        ...

    def continued(self, continuation_id: str) -> WindowNode | None:
        """The window that an id continues."""
        ...

    def priors(self, window_ids: Sequence[str]) -> dict[str, PriorWindow]:
        """What is kept of windows, by id; those of which nothing is kept are left out."""
        ...

    def report(self, window_id: str) -> str | None:
        """A window's report as JSON; None where none is kept."""
        ...

    def session_ids(self) -> Iterator[str]:
        """Ids of all sessions, ascending."""
        ...

    def forget(self, session_id: str) -> None:
        """Remove a session, its windows and all that they said; unknown ones are passed over."""
        ...


class _WithSessions(Protocol):
    @property
    def sessions(self) -> SessionsFacet: ...


def sessions_of(transaction: Transaction) -> SessionsFacet:
    """The sessions of an open transaction; the fabric, which makes it, knows none.

    Raises:
        StoreError: the store keeps no sessions.
    """
    if not hasattr(transaction, "sessions"):
        raise StoreError(f"{type(transaction).__name__} keeps no sessions; give another store")
    return cast("_WithSessions", transaction).sessions

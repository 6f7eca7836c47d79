"""What sessions need of a store, within one transaction of a namespace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from crp_integrations.envelope.records import EarlierWindow
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Transaction, WindowRecordsFacet
from crp_integrations.session.records import Session, WindowNode


class SessionsFacet(WindowRecordsFacet, Protocol):
    """Sessions, their windows, and what windows said, of one namespace.

    What a window said (`EarlierWindow`, the report) is content: it names the facts that it came
    from, and is gone with the first of them that is withdrawn, or removed from the store. Nodes
    hold ids and hashes alone, and stay.
    """

    def session(self, session_id: str) -> Session | None:
        """A session's state; None for one that is not known."""
        ...

    def keep(self, session: Session) -> None:
        """Keep a session's state; replaces that of the same id.

        Raises:
            StoreError: without a further review the safety budget is above the one kept, or the
                session had ended; or `modified_at` is no moment with a zone.
        """
        ...

    def add_window(
        self,
        node: WindowNode,
        *,
        prior: EarlierWindow | None = None,
        report: str = "",
        facts: Sequence[str] = (),
        sources: Sequence[str] = (),
        given: Sequence[str] | None = None,
    ) -> None:
        """Add a window of a session that is kept.

        The node is always kept. What the window said is not, when a fact that it came from was
        withdrawn while it was under way, or when what it was given is gone meanwhile.

        Args:
            prior: what the next window may know of it; None keeps nothing.
            report: its report as JSON; empty keeps none.
            facts: ids of facts that it was made from, besides those that `prior` and `report` name.
            sources: ids of their sources, besides those that the store knows of stored facts.
            given: ids of the windows whose content it was made from, as `priors` gave it; where
                one has none any more, nothing is kept. None stands for its parents, of which
                those count that were emptied at any time.

        Raises:
            StoreError: the session is not kept, the window is there already, its continuation
                id is another window's, or the report is not JSON.
        """
        ...

    def windows(self, session_id: str) -> list[WindowNode]:
        """A session's windows by number, then id."""
        ...

    def continued(self, continuation_id: str) -> WindowNode | None:
        """The window that an id continues."""
        ...

    def priors(self, window_ids: Sequence[str]) -> dict[str, EarlierWindow]:
        """What is kept of windows, by id; those of which nothing is kept are left out."""
        ...

    def report(self, window_id: str) -> str | None:
        """A window's report as JSON; None where none is kept."""
        ...

    def session_ids(self) -> Iterator[str]:
        """Ids of all sessions, ascending."""
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

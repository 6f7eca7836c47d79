"""What sessions need of a store, within one transaction of a namespace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, cast

from crp_integrations.envelope.records import EarlierWindow
from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Transaction, WindowRecordsFacet
from crp_integrations.session.records import Session, WindowNode


class SessionsFacet(WindowRecordsFacet, Protocol):
    """The sessions of one namespace, their windows, and the windows' content.

    A window's content (`EarlierWindow`, the report) names the facts that it was made from, and is
    deleted with the first of them that is withdrawn or removed from the store. Nodes contain only
    ids and hashes, and stay.
    """

    def session(self, session_id: str) -> Session | None:
        """A session's state; None for an unknown session."""
        ...

    def keep(self, session: Session) -> None:
        """Store a session's state; replaces that of the same id.

        Raises:
            StoreError: without a new review the safety budget is above the stored one, or the
                session has ended; or `modified_at` is not a time with a time zone.
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
        shown_windows: Sequence[str] | None = None,
    ) -> None:
        """Add a window of a stored session.

        The node is always stored. The content is not, if a fact that it was made from was withdrawn
        during the window, or if the content of a window in `shown_windows` was deleted meanwhile.

        Args:
            prior: record for the next window; None stores none.
            report: its report as JSON; empty stores none.
            facts: ids of facts that it was made from, besides those that `prior` and `report` name.
            sources: ids of their sources, besides those that the store knows of stored facts.
            shown_windows: ids of the windows whose content it was made from, as returned by
                `priors`; if one of them has no content any more, none is stored. None means its
                parents, and then it counts if one was emptied at any time.

        Raises:
            StoreError: the session is not stored, the window already is, its continuation id is
                another window's, or the report is not JSON.
        """
        ...

    def windows(self, session_id: str) -> list[WindowNode]:
        """A session's windows by number, then id."""
        ...

    def continued(self, continuation_id: str) -> WindowNode | None:
        """The window that an id continues."""
        ...

    def priors(self, window_ids: Sequence[str]) -> dict[str, EarlierWindow]:
        """The stored records of windows, by id; windows without one are left out."""
        ...

    def report(self, window_id: str) -> str | None:
        """A window's report as JSON; None if none is stored."""
        ...

    def session_ids(self) -> Iterator[str]:
        """Ids of all sessions, ascending."""
        ...


class Spending(NamedTuple):
    """Requests to judges, their tokens, and their cost in US dollars."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0

    def plus(self, other: Spending, sign: int = 1) -> Spending:
        """The sum with another one, or with `sign=-1` the difference."""
        return Spending(
            self.calls + sign * other.calls,
            self.tokens + sign * other.tokens,
            self.usd + sign * other.usd,
        )


class SpendingFacet(Protocol):
    """What the judges of one namespace spent, in the last period of each."""

    def spent(self, session_id: str, judge: str) -> tuple[str, Spending] | None:
        """The last period of a judge and what it spent in it; None if it never spent.

        Args:
            session_id: empty for what all sessions spent together.
        """
        ...

    def save(self, session_id: str, judge: str, period: str, spent: Spending) -> None:
        """Replace a judge's period and what it spent in it; `forget` removes a session's."""
        ...


class _WithSessions(Protocol):
    @property
    def sessions(self) -> SessionsFacet: ...


class _WithSpending(Protocol):
    @property
    def spending(self) -> SpendingFacet: ...


def spending_of(transaction: Transaction) -> SpendingFacet:
    """What judges spent, in an open transaction.

    Raises:
        StoreError: the store does not support it.
    """
    if not hasattr(transaction, "spending"):
        raise StoreError(
            f"{type(transaction).__name__} keeps no judge's spending; give judge_budget "
            "'of': 'process', or another store"
        )
    return cast("_WithSpending", transaction).spending


def sessions_of(transaction: Transaction) -> SessionsFacet:
    """The sessions of an open transaction; the fabric's `Transaction` type does not declare them.

    Raises:
        StoreError: the store does not support sessions.
    """
    if not hasattr(transaction, "sessions"):
        raise StoreError(f"{type(transaction).__name__} keeps no sessions; give another store")
    return cast("_WithSessions", transaction).sessions

"""All facets of a transaction; all but the facts are the same statements in both databases."""

from __future__ import annotations

from functools import cached_property
from typing import Generic, TypeVar

from crp_integrations.stores import rules
from crp_integrations.stores.sqlite.faulted import SqliteFaulted
from crp_integrations.stores.sqlite.journal import SqliteJournal
from crp_integrations.stores.sqlite.receipts import SqliteReceipts
from crp_integrations.stores.sqlite.sessions import SqliteSessions
from crp_integrations.stores.statements import Statements

FactsOf = TypeVar("FactsOf")


class Facets(Generic[FactsOf]):
    """The facets of one namespace over one connection.

    Most transactions read facts alone, so the others are made when they are asked for.

    Attributes:
        facts: the first of them.
    """

    def __init__(self, facts: FactsOf, connection: Statements, gate: rules.Gate) -> None:
        """Take the connection, and what says whether it may still be used."""
        self.facts = facts
        self._given = connection, gate

    @cached_property
    def journal(self) -> SqliteJournal:
        """Events and seals."""
        return SqliteJournal(*self._given)

    @cached_property
    def sessions(self) -> SqliteSessions:
        """Sessions with their windows."""
        return SqliteSessions(*self._given)

    @cached_property
    def faulted(self) -> SqliteFaulted:
        """Facts that answers keep going wrong with."""
        return SqliteFaulted(*self._given)

    @cached_property
    def receipts(self) -> SqliteReceipts:
        """Receipts and their log."""
        return SqliteReceipts(*self._given)

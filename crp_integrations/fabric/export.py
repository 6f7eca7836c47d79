"""Everything that a subject may see, as records one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from crp_integrations.fabric.gate import Gate
from crp_integrations.fabric.ports import Transaction
from crp_integrations.fabric.records import Fact, Source, Where

# Facts that are read at once.
from crp_integrations.vocabulary import FactStatus

_SLICE = 256


@dataclass(frozen=True, slots=True)
class Export:
    """Reads one namespace for one subject, in one state.

    Attributes:
        begin: opens a reading transaction of the namespace.
        gate: what lets the subject read.
    """

    begin: Callable[[], AbstractContextManager[Transaction]]
    gate: Gate

    def records(self, where: Where) -> Iterator[Source | Fact]:
        """Sources by id, then facts by id; the transaction is open until the last one is taken."""
        with self.begin() as transaction:
            facts, may_read = transaction.facts, self.gate.may_read
            yield from (source for source in facts.sources() if may_read(source.labels))
            ids = facts.find(where)
            # What was deleted comes out of nothing, also for who asks for it by status.
            for start in range(0, len(ids), _SLICE):
                found = facts.get(ids[start : start + _SLICE])
                yield from self.gate.facts(
                    fact for fact in found if fact.status is not FactStatus.DELETED
                )

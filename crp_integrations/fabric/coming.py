"""Reading a namespace by the embedder that it is on its way to, while the other one still serves.

During a change of embedder the vectors of the coming one lie prepared beside those in use. A
fabric that was opened with the coming embedder reads through `ComingFacts`, which shows the facts
that have such a vector already, and nothing else.

Spec: CRP-SPEC-009 §3.4
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, cast

from crp_integrations.audit.ports import JournalFacet
from crp_integrations.fabric.epoch import EMBEDDER_SETTING
from crp_integrations.fabric.ports import Brief, FactsFacet, Mark, Outline, Transaction
from crp_integrations.fabric.records import Where
from crp_integrations.vectors import FloatRows

# The embedder that a namespace is on its way to, and how far it is: another value for each state
# of the prepared vectors that a reader is to see.
NEXT_SETTING = "embedder_next"
STEP_SETTING = "embedder_next_step"


class ComingFacts:
    """The facts of a reading transaction that have a vector of the coming embedder.

    Everything that is not about vectors is answered by the facet behind it.
    """

    # A store's own index is over the vectors in use.
    searching = None

    def __init__(self, facts: FactsFacet, embedder: str) -> None:
        self._facts = facts
        self._embedder = embedder
        self._step = facts.setting(STEP_SETTING) or ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._facts, name)

    @cached_property
    def _prepared(self) -> frozenset[str]:
        return frozenset(self._facts.prepared_ids(self._embedder))

    def setting(self, name: str) -> str | None:
        """A stored value; the embedder is the coming one here."""
        return self._embedder if name == EMBEDDER_SETTING else self._facts.setting(name)

    def mark(self) -> Mark:
        """Another one whenever facts changed or more of them have vectors."""
        mark = self._facts.mark()
        return Mark(mark.sequence, f"{mark.token}|{self._embedder}|{self._step}")

    def changes(self, since: Mark) -> list[str] | None:
        """Nothing since this state; what was known of any other is to be read as a whole."""
        return [] if since == self.mark() else None

    def vectors(self, ids: Sequence[str], *, prepared_for: str | None = None) -> FloatRows:
        """Unit rows of the coming embedder in the order asked for."""
        return self._facts.vectors(ids, prepared_for=prepared_for or self._embedder)

    def retrievable(self, ids: Sequence[str] | None = None) -> list[tuple[str, tuple[str, ...]]]:
        """Id and labels of the facts that can be found already."""
        return [found for found in self._facts.retrievable(ids) if found[0] in self._prepared]

    def state(self, ids: Sequence[str] | None = None) -> Iterator[tuple[str, str, str]]:
        """Id, content hash and status of the facts that can be found already."""
        return (found for found in self._facts.state(ids) if found[0] in self._prepared)

    def briefs(self, ids: Sequence[str]) -> list[Brief]:
        """What selection reads of the facts that can be found already."""
        return [one for one in self._facts.briefs(ids) if one.fact_id in self._prepared]

    def outline(self) -> Iterator[Outline]:
        """The facts that can be found already, by id; no texts are read."""
        return (one for one in self._facts.outline() if one.fact_id in self._prepared)

    def find(self, where: Where) -> list[str]:
        """Ids of the facts that are meant; retrievable ones only where they can be found."""
        found = self._facts.find(where)
        if where.statuses is not None:
            return found
        return [id_ for id_ in found if id_ in self._prepared]


@dataclass(frozen=True)
class _Coming:
    """A reading transaction whose facts are those of the coming embedder.

    Every facet but the facts is that of the transaction behind it.
    """

    facts: FactsFacet
    begun: Transaction

    @property
    def journal(self) -> JournalFacet:
        return self.begun.journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self.begun, name)


def moving_to(facts: FactsFacet, embedder: str) -> bool:
    """Whether a namespace is on its way to an embedder and has not arrived."""
    return facts.setting(NEXT_SETTING) == embedder and facts.setting(EMBEDDER_SETTING) != embedder


class ReadingAs(AbstractContextManager[Transaction]):
    """A reading transaction as a fabric of this embedder sees it.

    A class, since every read goes through it and a generator costs more.
    """

    __slots__ = ("_begun", "_embedder")

    def __init__(self, begun: AbstractContextManager[Transaction], embedder: str) -> None:
        self._begun = begun
        self._embedder = embedder

    def __enter__(self) -> Transaction:
        transaction = self._begun.__enter__()
        try:
            if not moving_to(transaction.facts, self._embedder):
                return transaction
            facts = cast("FactsFacet", ComingFacts(transaction.facts, self._embedder))
            return _Coming(facts, transaction)
        except BaseException:
            self._begun.__exit__(*sys.exc_info())
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._begun.__exit__(kind, error, trace)

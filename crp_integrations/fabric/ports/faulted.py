"""What is counted of facts that answers go wrong with.

The engine finds that an answer makes something up or distorts a fact; the relay counts that here,
in the transaction that seals the window, and the fabric's verb takes a fact out of retrieval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

from crp_integrations.fabric.ports.store import Transaction


class Counted(NamedTuple):
    """How often a fact was found at fault, and how often it was shown to a model."""

    findings: int
    uses: int


class FaultedFacet(Protocol):
    """Counts of one namespace, which go with the facts that they are of."""

    def count(self, fact_ids: Sequence[str]) -> dict[str, Counted]:
        """Count one more finding against each fact.

        Spec: CRP-SPEC-009 §8.4

        Args:
            fact_ids: each once; ids that are not stored in this namespace are left out.

        Returns:
            What is counted of each since it was last reset. A fact's uses are its `access_count`.
        """
        ...

    def due(self, findings: int, share: float) -> list[str]:
        """Retrievable facts with at least so many findings, in such a share of their uses.

        Spec: CRP-SPEC-009 §8.4

        Returns:
            Their ids, ascending.
        """
        ...

    def reset(self, fact_ids: Sequence[str]) -> None:
        """Begin anew, so that a fact whose quarantine is lifted is not held against its past."""
        ...


class _WithFaulted(Protocol):
    @property
    def faulted(self) -> FaultedFacet: ...


def faulted_in(transaction: Transaction) -> FaultedFacet | None:
    """The counts of an open transaction's store; None for a store that keeps none."""
    if not hasattr(transaction, "faulted"):
        return None
    return cast("_WithFaulted", transaction).faulted

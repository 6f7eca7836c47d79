"""Numbers and moments that the fabric keeps as settings of a namespace, read back."""

from __future__ import annotations

from datetime import UTC, datetime

from crp_integrations.errors import StoreDamaged
from crp_integrations.fabric.ports import FactsFacet

WAY_OUT = (
    "crp fabric doctor says what else is wrong, and a copy of the store from before is the way back"
)


def number(facts: FactsFacet, name: str) -> int:
    """The number that a setting holds; 0 for none.

    Raises:
        StoreDamaged: it holds something else; names it and the way out.
    """
    stored = facts.setting(name)
    try:
        return int(stored or 0)
    except ValueError as error:
        raise StoreDamaged(
            f"the stored {name} is {stored!r:.40}, wanted a number; {WAY_OUT}"
        ) from error


def moment(facts: FactsFacet, name: str) -> datetime | None:
    """The moment that a setting holds; None for none.

    Raises:
        StoreDamaged: it holds something else; names it and the way out.
    """
    stored = facts.setting(name)
    if stored is None:
        return None
    try:
        found = datetime.fromisoformat(stored)
    except ValueError as error:
        raise StoreDamaged(
            f"the stored {name} is {stored!r:.40}, wanted a moment; {WAY_OUT}"
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)

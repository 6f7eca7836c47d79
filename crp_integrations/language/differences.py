"""Whether two near-identical texts say different things."""

from __future__ import annotations

from crp_integrations.language.dates import compatible, dates
from crp_integrations.language.names import names
from crp_integrations.language.negation import polarity_differs
from crp_integrations.language.quantities import quantities
from crp_integrations.language.text import plain
from crp_integrations.language.units import to_base


def differ(left: str, right: str) -> bool:
    """Whether numbers, dates, names or negation of two texts differ (decision E11)."""
    if plain(left) == plain(right):
        return False
    values = [
        {(*to_base(q.low, q.unit), *to_base(q.high, q.unit)) for q in quantities(side)}
        for side in (left, right)
    ]
    if values[0] != values[1]:
        return True
    first, second = dates(left), dates(right)
    if len(first) != len(second) or not all(any(compatible(a, b) for b in second) for a in first):
        return True
    if {plain(n.text) for n in names(left)} != {plain(n.text) for n in names(right)}:
        return True
    return polarity_differs(left, right)

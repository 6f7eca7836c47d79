"""The one packer of all peers: in rank order, what does not fit is skipped."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.bench.selection.metrics import Packed
from crp_integrations.bench.selection.units import Unit
from crp_integrations.envelope.prompt import render
from crp_integrations.ports import TokenCounter

PACKER = "skip-and-continue"


def pack(ranked: Sequence[Unit], budget: int, counter: TokenCounter) -> Packed:
    """Pack units as they are ranked, rendered and counted as an envelope is.

    Args:
        ranked: best first.
        budget: tokens that the rendered text may have.
    """
    chosen: list[Unit] = []
    used = 0
    for unit in ranked:
        if used + unit.tokens <= budget:
            chosen.append(unit)
            used += unit.tokens
    while True:
        # Counts of parts need not add up to the count of the whole.
        tokens = counter.count(render([unit.text for unit in chosen])) if chosen else 0
        if tokens <= budget:
            return Packed(tuple(chosen), tuple(unit.unit_id for unit in chosen), tokens)
        chosen.pop()

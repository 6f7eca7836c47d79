"""Whether assembling twice gives the same context."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from crp_integrations.envelope.cfs.assemble import assemble_context
from crp_integrations.envelope.cfs.records import AssembledContext, TokenBudget
from crp_integrations.envelope.cfs.search import Both, in_turn
from crp_integrations.envelope.cfs.settings import AssemblySettings
from crp_integrations.envelope.cfs.tokens import SimpleTokenizer, Tokenizer

if TYPE_CHECKING:
    from crp_integrations.fabric.view import FabricView

_SIMPLE = SimpleTokenizer()
_DEFAULTS = AssemblySettings()


def verify_determinism(
    query: str,
    view: FabricView,
    budget: TokenBudget,
    tokenizer: Tokenizer = _SIMPLE,
    *,
    now: datetime,
    settings: AssemblySettings = _DEFAULTS,
    both: Both = in_turn,
) -> bool:
    """Assemble twice, without a cache, and compare chunk ids and formatted text.

    Spec: CFS-021 §12

    Returns:
        False as well when the fabric changed between the two so that the contexts differ.
    """
    context = verified(query, view, budget, tokenizer, now=now, settings=settings, both=both)
    return context.properties.deterministic is True


def verified(
    query: str,
    view: FabricView,
    budget: TokenBudget,
    tokenizer: Tokenizer = _SIMPLE,
    *,
    now: datetime,
    settings: AssemblySettings = _DEFAULTS,
    both: Both = in_turn,
) -> AssembledContext:
    """A context of which all five properties were measured, by assembling it twice.

    Spec: CFS-021 §P1
    """
    one, other = (
        assemble_context(query, view, budget, tokenizer, now=now, settings=settings, both=both)
        for _ in range(2)
    )
    return one.changed(
        properties=one.properties.model_copy(update={"deterministic": same(one, other)})
    )


def same(one: AssembledContext, other: AssembledContext) -> bool:
    """Whether two contexts have the same chunks in the same order and the same text.

    Spec: CFS-021 §12
    """
    if [chunk.chunk_id for chunk in one.chunks] != [chunk.chunk_id for chunk in other.chunks]:
        return False
    return one.text == other.text

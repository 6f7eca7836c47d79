"""Named runs of positions in an envelope; one section, `knowledge`, unless asked for more."""

from __future__ import annotations

from crp_integrations.envelope.records import Section

KNOWLEDGE = "knowledge"


def knowledge(facts: int, *, token_budget: int, token_count: int) -> tuple[Section, ...]:
    """The one section that holds every fact.

    Args:
        facts: number of facts in the envelope.
        token_budget: the envelope's budget.
        token_count: tokens of the rendered text as a whole.
    """
    return (
        Section(
            name=KNOWLEDGE, first=1, last=facts, token_budget=token_budget, token_count=token_count
        ),
    )

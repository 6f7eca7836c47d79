"""The epoch: a count of the changes that no single fact shows but the state hash must.

A reclustering gives facts other labels, and a change of embedding model gives them other vectors;
neither enters the formula of the state hash. Both advance the epoch, and once it was advanced the
hash has one item more, `@epoch:n:model` (decision E13).
"""

from __future__ import annotations

from crp_integrations.fabric import kept
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.state_hash import Item

EMBEDDER_SETTING = "embedder"
EPOCH_SETTING = "epoch"


def advance(facts: FactsFacet) -> int:
    """Add one to the epoch, in the transaction of the change that asks for it.

    Spec: CRP-SPEC-009 §3.4, §5.5, §6.2

    Returns:
        The new epoch, from 1.
    """
    number = epoch(facts) + 1
    facts.set_setting(EPOCH_SETTING, str(number))
    return number


def epoch(facts: FactsFacet) -> int:
    """How often the epoch was advanced.

    Raises:
        StoreDamaged: what is stored is no number.
    """
    return kept.number(facts, EPOCH_SETTING)


def epoch_item(facts: FactsFacet) -> Item | None:
    """The item of the state hash that is no fact's; None while the epoch is 0.

    Spec: CRP-SPEC-009 §6.1
    """
    number = epoch(facts)
    if number == 0:
        return None
    return ("@epoch", str(number), facts.setting(EMBEDDER_SETTING) or "")

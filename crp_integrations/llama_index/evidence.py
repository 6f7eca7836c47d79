"""What was found for a model call, as the facts that its answer is examined against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llama_index.core.schema import NodeWithScore

from crp_integrations.adapters.evidence import OfferedFact, facts_of
from crp_integrations.fabric.records import Fact
from crp_integrations.llama_index.packing import offers
from crp_integrations.llama_index.spans import Found


def facts_in(found: Sequence[Found]) -> list[Fact]:
    """Retrieved nodes as the model was shown them, and tools' answers, as facts.

    Raises:
        FactRejected: a text, id or source cannot be encoded as UTF-8.
    """
    return facts_of(_offers(found), noun="passage")[0]


def _offers(found: Sequence[Found]) -> Iterator[OfferedFact[NodeWithScore | None]]:
    for number, one in enumerate(found, 1):
        for offer in offers(one.nodes):
            yield OfferedFact(
                offer.item, offer.content, fact_id=offer.fact_id, source_id=offer.source_id
            )
        if one.text:
            yield OfferedFact(
                None, one.text, source_id=f"tool:{one.tool}", source_location=f"#{number}"
            )

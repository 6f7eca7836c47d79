"""The vectors of what a model saw, for the examination of its answer."""

from __future__ import annotations

import numpy as np

from crp_integrations.envelope.evolution import SUMMARY_SOURCE
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import StoreError
from crp_integrations.fabric.view import View
from crp_integrations.vectors import FloatRows


def vectors_of(envelope: Envelope, view: View) -> FloatRows | None:
    """Unit rows of an envelope's facts in their order, shape (facts, dimensions).

    Args:
        envelope: with one fact at least.

    Returns:
        None when a fact was withdrawn during the call. The model saw it all the same; without
        stored vectors its text is embedded again, to equal ones.
    """
    # The summary of an earlier window is in no store, and a part of a fact is not all it says.
    told = [
        fact for fact in envelope.facts if fact.spans or fact.source_id.startswith(SUMMARY_SOURCE)
    ]
    made = {fact.fact_id for fact in told}
    stored = [fact.fact_id for fact in envelope.facts if fact.fact_id not in made]
    try:
        rows = view.vectors(stored)
    except StoreError:
        return None
    if not told:
        return rows
    new = view.embedder.embed_passages([fact.content for fact in told])
    ids = [*stored, *(fact.fact_id for fact in told)]
    row = dict(zip(ids, [*rows, *new], strict=True))
    return np.stack([row[fact.fact_id] for fact in envelope.facts])

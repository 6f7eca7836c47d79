"""The drop report: every candidate that is not in the envelope, with its reason."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crp_integrations.envelope.dropped import Drops
from crp_integrations.envelope.pack import Packing
from crp_integrations.envelope.rank import Ranking
from crp_integrations.envelope.ranked import ids_of
from crp_integrations.envelope.records import Candidate, Candidates
from crp_integrations.envelope.refused import told


def drops(
    candidates: Candidates,
    ranking: Ranking,
    packing: Packing,
    refused: Sequence[Candidate] = (),
) -> Drops:
    """Name everything that was left out, in the order of the ranking, then what was refused.

    Included and dropped facts together are the candidates, each once.

    Spec: CRP-SPEC-003 §6.6, §7.3 (decisions E2, E5)
    """
    columns = candidates.columns
    kept = {ranked.candidate.fact_id: instead for ranked, instead in packing.duplicates}
    left = np.ones(len(columns), dtype=bool)
    for ranked in packing.packed:
        fact_id = ranked.candidate.fact_id
        at = columns.position(fact_id)
        if at is not None and fact_id not in kept:
            left[at] = False
    return Drops(
        columns.ids,
        columns.tokens,
        ranking.picks[left[ranking.picks]],
        kept,
        frozenset(ids_of(packing.over_k)),
        told(refused) if refused else (),
    )

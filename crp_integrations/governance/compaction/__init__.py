"""Compaction of what a model would be shown: shorter, with an account of everything left out.

In: an agent's messages, or a context pack with its texts. Out: the same kind of thing, with drop
reports, summaries and citations. Read `settings.py`, `triggers.py`, `compactor.py` (the door),
`running.py` and `stages.py` (the methods in order), `readings.py`, `logs.py` and `data.py` (what a
piece is), `folding.py` (summaries in levels), then `verify.py` (what refuses a result). Nothing is
ever written anew: what is shown is quoted, or comes from a summariser and is checked.
"""

from __future__ import annotations

from crp_integrations.governance.compaction.compactor import AutoCompactor
from crp_integrations.governance.compaction.settings import CompactionSettings

__all__ = ["AutoCompactor", "CompactionSettings"]

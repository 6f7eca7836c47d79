"""Governed context: what is written down, selected, compressed and shown, each with its account.

In: items and packs with labels, and the messages of an agent. Out: packs that say item by item what
a model is shown, and what was left out and why. Read `packs.py` (the records of the pack), then
`compaction/` (`settings.py`, `history.py`, `packing.py`, `verify.py`). The room calls no model and
reads no clock; a store and a model come in through ports.
"""

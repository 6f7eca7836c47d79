"""Governed context: what an agent writes, selects, compresses and is shown, each with its account.

In: memory items and facts with labels, and the messages of an agent. Out: packs that say item by
item what a model is shown, and what was left out and why. Read `memory_items.py` and
`memory_writer.py` (write), `context_assembler.py` and `context_pack.py` (select), `compaction/`
(compress), `runtime_state.py` and `artifacts/` (isolate). The
room calls no model and reads no clock; stores and models come in through ports.
"""

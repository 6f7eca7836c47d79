"""Governed context: what an agent writes, selects, compresses and shows, each with an account.

In: memory items and facts with labels, and the messages of an agent. Out: packs that list item by
item what a model is shown, and what was left out and why. Read `memory_items.py` and
`memory_writer.py` (write), `context_assembler.py` and `context_pack.py` (select), `compaction/`
(compress), `runtime_state.py` and `artifacts/` (isolate). The subpackage calls no model and reads
no clock itself; stores, clocks and models are passed in through ports.
"""

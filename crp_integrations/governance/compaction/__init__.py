"""Compaction of a model's context: a shorter context, with an account of everything left out.

In: an agent's messages, or a context pack with its texts. Out: the same type of object, with drop
reports, summaries and citations. Read `records.py` (triggers), `compactor.py` (the entry point),
`pipeline.py` over `stages.py` (the methods in order, scores and summaries), `text_pieces.py` and
`json_data.py` (pieces), then `verification.py` (checks of the result). No text is rewritten:
shortened texts and summaries are quotations.
"""

"""Compaction of what a model would be shown: shorter, with an account of everything left out.

In: an agent's messages, or a context pack with its texts. Out: the same kind of thing, with drop
reports, summaries and citations. Read `records.py` (triggers), `compactor.py` (the door),
`pipeline.py` over `stages.py` (the methods in order, scores and summaries), `text_pieces.py` and
`json_data.py` (pieces), then `verification.py` (what refuses a result). No text is rewritten: what
is shown is quoted.
"""

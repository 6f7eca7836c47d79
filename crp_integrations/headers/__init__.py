"""Headers: CRP headers written and read, one grammar for both.

In: an envelope, a report, a window's seal and what its session passes, or headers as they arrived.
Out: a mapping of names to values, a record of typed values, or the body of a refusal. Read
`names.py` (every header and its direction), `grammar.py` (the rule of every value), `records.py`,
`fields.py` (which header a field is), then `parse.py`, `write.py`, `render.py`, `propagate.py`
(between agents) and `bodies.py`. The room computes no value: what nobody computed has no header.
No text of a fact, question or answer enters a value.
"""

"""Headers: CRP headers written and read, one grammar for both.

In: an envelope, a report and a window's seal, or headers as they arrived. Out: a mapping of
names to values, or a record of typed values. Read `names.py` (every header and its direction),
`values.py` (the grammar), `cache.py` (the cache directives), `records.py`, then `render.py` and
`parse.py`. The room computes no value: what nobody computed has no header. No text of a fact,
question or answer enters a value.
"""

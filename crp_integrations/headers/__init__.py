"""Headers: CRP headers written and parsed by one grammar.

In: an envelope, a report, a window's seal and the state of its session, or headers as they arrived.
Out: a mapping of names to values, a record of typed values, or the body of a refusal. Read
`names.py` (every header and its direction), `grammar.py` (the rule of every value), `records.py`,
`values.py` and `codec.py` (records to headers and back), then `response_headers.py` and
`refusal_bodies.py`. The room computes no value: what nobody computed has no header. No text of a
fact, question or answer enters a value.
"""

"""Headers: CRP headers written and parsed by one grammar.

Input is an envelope, a report, a window's seal and the state of its session, or received headers;
output is a mapping of names to values, a record of typed values, or the body of a refusal. Read
`names.py` (all headers), `grammar.py` (the syntax of every value), `records.py`, `values.py` and
`codec.py` (records to headers and back), then `response_headers.py` and `refusal_bodies.py`. This
subpackage computes no values: a value that was not computed has no header. Headers contain no text
of a fact, question or answer, except flagged claims sent to a parent agent.
"""

"""The safety policy language: what is demanded of an answer, and what follows when it is unmet.

In: a policy's text, and the report on an answer. Out: a `Policy`, and a `Judgement` with typed
violations, the reason to withhold the answer, and what a remedy could mend. Read `words.py` and
`directives.py` (the grammar as a table), `records.py`, `parse.py` and `render.py`, `profiles.py`,
`inherit.py` (a child only tightens), `judge.py` with `demands.py`, then `nonce.py`, `reports.py`,
`settings.py` and `ports.py`. The room asks no model and posts nothing; what it says of an answer
holds ids, words of closed lists and numbers, never the answer's text.
"""

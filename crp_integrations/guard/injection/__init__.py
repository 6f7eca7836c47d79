"""Injection: signs that a text gives orders to the model that will read it.

In: one text, or the texts of candidates with their relevance. Out: findings with rule, reason
and place, a score, a decision; for candidates also who is off topic. Read `records.py`, then
`detect.py`, which runs the rules of `characters.py`, `phrases.py` and `languages.py` over the
text and over what `disguises.py` and `encodings.py` uncover; `screening.py` decides about
candidates. The rules see texts and keep none: no report holds a word of one.
"""

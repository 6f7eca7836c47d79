"""Injection: signs that a text gives orders to the model that will read it.

In: one text, or the texts of candidates with their relevance. Out: findings with rule, reason
and place, a score, a decision; for candidates also who is off topic. Read `records`, then
`detection`, which runs the rules of `order_phrases`, `steering_phrases` and `text_signs` over the
text and over what `disguises` uncovers. The rules see texts and keep none: no report holds a word
of one.
"""

"""Injection: signs that a text gives orders to the model that will read it.

In: one text, or the texts of candidates with their relevance. Out: findings with rule, reason
and place, a score, a decision; for candidates also who is off topic. Read `records`, then
`detection`, which searches the short list of `patterns` in the text and in what `readings`
uncovers. The rules see texts and keep none: no report holds a word of one.
"""

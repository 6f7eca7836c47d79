"""Injection: signs that a text gives orders to the model that will read it.

In: one text or several. Out: for each, findings with rule, reason and position, a score and a
decision. Read `records`, then `detection`, which searches the `patterns` in the text and in what it
decodes from it. The rules do not keep texts: a report contains no word of one.
"""

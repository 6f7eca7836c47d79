"""How the fitted file of the `features` verifier is made.

In: a folder of labelled answers and pairs. Out: `features.json` with its card, or one file for
each fold. Read `labelled_answers` (what is measured and labelled, and changed sentences of our
own), `layers`, then `__main__`. Needs the extra `recipes`; two runs on one machine
give the same bytes.
"""

"""What a user measures on his own data: how often a verdict on an answer is right.

`answers` scores verdicts on labelled answers, in both directions, and `figures` counts them;
`crp eval answers` is its command. `data_rows` reads the files. `rows` scores rows without labels
by a judge, with `scoring`, as the evaluators of the adapters do.
"""

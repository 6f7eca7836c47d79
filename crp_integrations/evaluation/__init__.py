"""What users measure on their own data.

`answers` scores verdicts on labelled answers, in both directions, and `figures` counts them;
`selection` and `context_rot` measure contexts. `crp eval answers|selection|rot|drift` are their
commands. `data_sets` reads the files. `answer_score` scores rows without labels by a judge, as the
evaluators of the adapters do.
"""

"""What users measure on their own data.

`answers` scores verdicts on labelled answers, in both directions, and `figures` counts them;
`selection` and `context_rot` measure contexts.
`crp eval answers|selection|rot|drift` are their commands. `data_rows` reads the files. `rows`
scores rows without labels by a judge, with `answer_score`, as the evaluators of the adapters do.
"""

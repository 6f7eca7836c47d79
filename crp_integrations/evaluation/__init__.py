"""Evaluations that users run on their own data.

`answers` compares verdicts with labelled answers, and `figures` computes both error rates from
them; `selection` and `context_rot` measure contexts. Their commands are `crp eval
answers|selection|rot|drift`. `data_sets` reads the files. `answer_score` scores unlabelled rows
with a judge, as the evaluators of the adapters do.
"""

"""The safety policy language: what is demanded of an answer, and what follows when it is unmet.

In: a policy's text, and the report on an answer. Out: a `Policy`, and a `PolicyJudgement` with
typed violations, the reason to withhold the answer, and what a remedy could mend. Read
`directives.py` (the grammar as a table), `records.py`, `policy_text.py`, `inheritance.py` (a child
only tightens), `demands.py` (one rule for each directive), then `verdict.py`, `settings.py` and
`ports.py`. The room asks no model and posts nothing; its records hold ids, words of closed lists
and numbers, never the text of an answer.
"""

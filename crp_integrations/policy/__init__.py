"""The safety policy language: demands on an answer, and the consequences when they are unmet.

Input is a policy's text and the report on an answer; output is a `Policy` and a `PolicyJudgement`
with typed violations, the reason to withhold the answer, and the demands that a remedy could meet.
Read `directives.py` (the grammar as a table, and settings), `records.py`, `policy_text.py`,
`inheritance.py` (a child policy can only tighten), `demands.py` (one rule for each directive), then
`verdict.py`. This subpackage calls no model and posts nothing; its records contain ids, enum values
and numbers, never the text of an answer.
"""

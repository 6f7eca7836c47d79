"""Questions: what a question asks for, read off its wording by rules.

In: one question. Out: its tasks, the things it compares or lists, and the needs that another need
rests on, as texts made of the question's own words.

Read `asked.py` first (names as single signs, tidy wording), then `tasks.py`, `coordination.py`,
`comparing.py`, `listing.py` and `bridging.py`. The rules are for English; every pattern looks at a
bounded stretch, so the work grows with the length of the question.
"""

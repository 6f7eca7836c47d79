"""Questions: what a question asks for, read off its wording by rules.

In: one question. Out: its tasks, the things it compares or lists, and the needs that another need
rests on, as texts made of the question's own words.

Read `frame` first, then `comparisons` and `bridges`. The rules are for English; every pattern
looks at a bounded part, so the work grows with the length of the question.
"""

"""Questions: rules that split a question into what has to be looked up.

In: one question. Out: its tasks, the things that it compares or lists, and the facts that must be
found first (needs), as texts made of the question's own words.

Read `frame` first, then `comparisons` and `bridges`. The rules are for English; every pattern
looks at a bounded part, so the work grows with the length of the question.
"""

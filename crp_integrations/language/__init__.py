"""Language: what can be read off an English text by rules, without any model.

In: text. Out: spans and small records that point into it by character offsets: sentences,
words, quantities, dates, names, negations, conditions, claims, measures of overlap, and keywords.

Read `spans.py` and `text.py` first, then `blocks.py` and `sentences.py`, `words.py`, `gist.py`,
`identifiers.py`, `dates.py`, `numerals.py`, `counted.py` with `units.py`, `quantities.py`,
`names.py` with `lexicon.py`, `negation.py`, `conditions.py`, then `verbs.py`, `clauses.py`,
`kinds.py`, `specificity.py` and `claims.py`, then `overlap.py` and `differences.py`,
`keywords.py`, and last `questions/`; `memo.py` is their cache. The room never judges whether a text
is true, never changes a text, and holds no state beyond that cache. Its rules are for English.
"""

"""Language: rules that extract structure from an English text, without any model.

In: text. Out: spans and small records that point into it by character offsets: sentences, words,
quantities, dates, names, negations, conditions, claims, measures of overlap, and keywords.

Read `text` first, then `blocks`, `words`, `identifiers`, `dates`, `numerals`, `measures`,
`quantities`, `names`, `negation`, then `claim_kinds` and `claims`, then `lexical_overlap`, and last
`questions`; `memo` is their cache, and `words.json` and `units.json` contain their closed lists.
This subpackage never judges whether a text is true, never changes a text, and keeps no state
beyond that cache. Its rules are for English.
"""

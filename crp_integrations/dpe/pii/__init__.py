"""The package's own recognisers of personal data, by checksum, form, context and word lists.

Input: a text. Output: places with kind, category and score, never the text of the place. Read
`spans.py` (kinds and normalisation; `words.json` has the word lists), `checksums.py`, then the
recognisers: `contact.py`, `identity_numbers.py`, `persons.py`; `recognisers.py` calls them all and
finds special categories. Every search is linear in the text. `spans.NEVER_CHECKED` lists the kinds
that nothing here finds; other recognisers implement the port `Recogniser`.
"""

"""Personal data: recognisers of the package's own, by checksum, form, context and small word lists.

In: a text. Out: places with kind, category and how sure it is, never the text of the place. Read
`spans.py` (kinds and how a text is read; `words.json` holds its lists), `checksums.py`, then the recognisers: `contact.py`,
`identity_numbers.py`, `persons.py`; `recognisers.py` asks them all and looks for special
categories. Every search is linear in the text. What nothing here looks for is listed in
`spans.NEVER_CHECKED`; other recognisers come in through the port `Recogniser`.
"""

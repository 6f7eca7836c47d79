"""Texts made safe for tokenizers: no lone surrogates, no endless runs of white space."""

from __future__ import annotations

import re

# Above some hundred thousand white-space characters in a row tiktoken's pattern engine runs
# out of stack. A cut adds at most about one token to each run's count.
_RUN = 20_000
# Looking behind makes a search start at the first character of a run only, so it is linear.
_LONG_RUN = re.compile(rf"(?<!\s)\s{{{_RUN},}}")


def encodable(text: str) -> str:
    """The text with each lone surrogate replaced, as tiktoken itself does; else unchanged."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def pieces(text: str) -> list[str]:
    """The text, cut behind every 20,000 white-space characters in a row; together unchanged."""
    if len(text) <= _RUN:
        return [text]
    runs = (match.span() for match in _LONG_RUN.finditer(text))
    cuts = [cut for start, end in runs for cut in range(start + _RUN, end + 1, _RUN)]
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

"""Whether a figure, date, id or quotation in a summary stands in what the summary cites."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from crp_integrations.governance.compaction.protected import QUOTATION, code
from crp_integrations.language.dates import DateMention, dates, gives
from crp_integrations.language.identifiers import identifiers
from crp_integrations.language.quantities import Quantity, agree, quantities
from crp_integrations.language.sentences import split_sentences

_MARK = re.compile(r"[ \t]*\[(\d{1,4}(?:\s?,\s?\d{1,4})*)\]")
_NUMERAL = re.compile(r"(?<![\w.,])\d[\d.,]*(?<![.,])")


def unsupported(summary: str, passages: Sequence[str]) -> str:
    """What is wrong with a summary whose sentences cite numbered passages; empty for nothing.

    Spec: Summit §Failure Modes & Mitigations

    Args:
        passages: the first one's number is 1.
    """
    if not summary.strip():
        return "it is empty"
    spans = split_sentences(summary)
    for number, span in enumerate(spans, start=1):
        said = span.of(summary)
        marks = [int(mark) for group in _MARK.findall(said) for mark in group.split(",")]
        wrong = [mark for mark in marks if not 1 <= mark <= len(passages)]
        if wrong:
            return f"sentence {number} cites passage {wrong[0]} of {len(passages)}"
        if not marks:
            return f"sentence {number} cites no passage"
        source = "\n\n".join(passages[mark - 1] for mark in marks)
        if any(True for _ in missing(_MARK.sub("", said), source)):
            return f"sentence {number} has a figure, date, id or quotation without a source"
    return ""


def missing(said: str, source: str) -> Iterator[tuple[int, int]]:
    """Where a text has a figure, date, id, code or quotation that its source does not have.

    A figure or date may be written in another way, as "4.2 million" for "4,200,000"; an id, code or
    a quotation may not.
    """
    taken: list[tuple[int, int]] = []
    # The source is read for what is written otherwise there, and mostly nothing is.
    theirs: list[Quantity] | None = None
    given: list[DateMention] | None = None
    for one in quantities(said):
        taken.append((one.start, one.end))
        if _stands(one.text, source):
            continue
        theirs = quantities(source) if theirs is None else theirs
        if not any(agree(one, other) and one.bound == other.bound for other in theirs):
            yield one.start, one.end
    for date in dates(said):
        taken.append((date.start, date.end))
        if _stands(date.text, source):
            continue
        given = dates(source) if given is None else given
        if not any(gives(other, date) for other in given):
            yield date.start, date.end
    literal = [*identifiers(said), *code(said)]
    for span in literal:
        taken.append((span.start, span.end))
        if not _stands(span.of(said), source):
            yield span.start, span.end
    for match in QUOTATION.finditer(said):
        if match.group()[1:-1] not in source:
            yield match.span()
    # Digits that no reader of the above takes, such as those glued to letters.
    for match in _NUMERAL.finditer(said):
        inside = any(start <= match.start() and match.end() <= end for start, end in taken)
        if not inside and not _stands(match.group(), source):
            yield match.span()


def _stands(text: str, source: str) -> bool:
    """Whether a source has these very characters, not as a part of a longer number or word."""
    pattern = rf"(?<!\w)(?<!\d[.,]){re.escape(text)}(?!\w|[.,]\d)"
    return re.search(pattern, source) is not None

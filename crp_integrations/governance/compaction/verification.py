"""Checks that a compacted context accounts for everything and invents nothing.

The checks compare input and output and do not trust the compactor's statements: an item is shown
unchanged, or consists of its own stretches, or is named in a drop report; and the figures of a
summary occur in what it cites.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from crp_integrations.errors import CompactionRefused, RequestError
from crp_integrations.governance.compaction import history
from crp_integrations.governance.compaction.history import group_turns
from crp_integrations.governance.compaction.pipeline import SAME
from crp_integrations.governance.compaction.records import (
    CompactHistory,
    CompactionAccount,
    CompactPack,
    Summary,
)
from crp_integrations.governance.compaction.text_pieces import (
    QUOTATION,
    find_code,
    has_words_outside,
    read_part,
)
from crp_integrations.governance.context_pack import ContextPack, text_of
from crp_integrations.language.dates import DateMention, dates, gives
from crp_integrations.language.identifiers import identifiers
from crp_integrations.language.quantities import Quantity, agree, quantities
from crp_integrations.messages import Message

_NUMERAL = re.compile(r"(?<![\w.,])\d[\d.,]*(?<![.,])")


def find_missing(text: str, source: str) -> Iterator[tuple[int, int]]:
    """Where a text has a figure, date, id, code or quotation that its source does not have.

    A figure or date may be written in another way, as "4.2 million" for "4,200,000"; an id, code or
    quotation may not.
    """
    taken: list[tuple[int, int]] = []
    # The source is analysed only if something does not occur in it literally, which is rare.
    theirs: tuple[Quantity, ...] | None = None
    source_dates: tuple[DateMention, ...] | None = None
    for quantity in quantities(text):
        taken.append((quantity.start, quantity.end))
        if _is_literal_in(quantity.text, source):
            continue
        theirs = quantities(source) if theirs is None else theirs
        if not any(agree(quantity, other) and quantity.bound == other.bound for other in theirs):
            yield quantity.start, quantity.end
    for date in dates(text):
        taken.append((date.start, date.end))
        if _is_literal_in(date.text, source):
            continue
        source_dates = dates(source) if source_dates is None else source_dates
        if not any(gives(other, date) for other in source_dates):
            yield date.start, date.end
    literal = [*identifiers(text), *find_code(text)]
    for span in literal:
        taken.append((span.start, span.end))
        if not _is_literal_in(span.of(text), source):
            yield span.start, span.end
    for match in QUOTATION.finditer(text):
        if match.group()[1:-1] not in source:
            yield match.span()
    # Digits that none of the readers above finds, such as those joined to letters.
    for match in _NUMERAL.finditer(text):
        inside = any(start <= match.start() and match.end() <= end for start, end in taken)
        if not inside and not _is_literal_in(match.group(), source):
            yield match.span()


def _is_literal_in(text: str, source: str) -> bool:
    """Whether a source has exactly these characters, not as part of a longer number or word."""
    pattern = rf"(?<!\w)(?<!\d[.,]){re.escape(text)}(?!\w|[.,]\d)"
    return re.search(pattern, source) is not None


_HANDLE = re.compile(r"\(kept whole as ([^\s()]+)\)")


def check_history(
    before: Sequence[Message],
    compact: CompactHistory,
    ids: Sequence[str] | None = None,
) -> None:
    """Refuse a compacted history that hides or invents something.

    Spec: Summit §Failure Modes & Mitigations
    """
    names = history.make_ids(before) if ids is None else history.check_ids(ids, before)
    texts = {name: message.content for name, message in zip(names, before, strict=True)}
    after = {
        name: message.content for name, message in zip(compact.ids, compact.messages, strict=True)
    }
    faults = list(_find_faults(texts, after, compact.account))
    of = dict(zip(names, before, strict=True))
    speakers = dict(zip(names, history.name_speakers(before), strict=True))
    faults += _find_summary_faults(compact.account.summaries, after, texts, speakers)
    for name, message in zip(compact.ids, compact.messages, strict=True):
        source = of.get(name)
        if source is not None and message != history.with_text(source, message.content):
            faults.append(f"message {name} was changed")
    order = [name for name in compact.ids if name in texts]
    remaining = set(order)
    if order != [name for name in names if name in remaining]:
        faults.append("the messages are in another order, or one occurs twice")
    try:
        group_turns(compact.messages)
    except RequestError as error:
        faults.append(str(error))
    if faults:
        raise CompactionRefused(tuple(faults))


def check_pack(before: ContextPack, compact: CompactPack, texts: Mapping[str, str]) -> None:
    """Refuse a compacted pack that hides or invents something.

    Spec: Summit §Failure Modes & Mitigations
    """
    own = {**texts, **compact.texts}
    was = {item.id: text_of(item, item.shown_ref, texts) for item in before.items}
    now = {item.id: text_of(item, item.shown_ref, own) for item in compact.compacted.items}
    faults = list(_find_faults(was, now, compact.account))
    faults += _find_summary_faults(compact.account.summaries, now, was, dict.fromkeys(was, ""))
    labels = {item.id: item.security_label for item in before.items}
    sums = {summary.id: summary for summary in compact.account.summaries}
    for item in compact.compacted.items:
        summary = sums.get(item.id)
        cited = {labels.get(c.item_id) for c in summary.citations} if summary else set()
        if cited | {labels.get(item.id, item.security_label)} != {item.security_label}:
            faults.append(f"item {item.id} has a different label than the items that it shows")
    if faults:
        raise CompactionRefused(tuple(faults))


def _find_faults(
    before: Mapping[str, str], after: Mapping[str, str], account: CompactionAccount
) -> Iterator[str]:
    """Items that are missing without a report, altered, or reported and still shown."""
    ids = frozenset(before)
    gone: dict[str, list[tuple[int, int]]] = {}
    for report in account.reports:
        for name in report.dropped_item_ids:
            item, span = read_part(name, ids)
            if item not in ids:
                yield f"report {report.id} names {name!r:.80}, which is not an item"
                continue
            if span is None and item in after:
                yield f"report {report.id} names item {item}, which is still there"
            gone.setdefault(item, []).append(span or (0, len(before[item])))
    spans = {
        citation.item_id: citation.spans
        for summary in account.summaries
        if summary.level == "targeted"
        for citation in summary.citations
    }
    summaries = {summary.id for summary in account.summaries}
    for name, text in before.items():
        shown = after.get(name)
        if shown == text:
            if name in gone:
                yield f"item {name} is shown whole and reported as left out"
            continue
        lost = sorted(gone.get(name, ()))
        if shown is None:
            if name not in gone or has_words_outside(text, lost):
                yield f"item {name} is gone, and no report names all of it"
            continue
        cited = spans.get(name, ())
        if not _is_made_of(shown, text, cited):
            yield f"item {name} is shown in words that are not its own"
        if has_words_outside(text, sorted((*lost, *cited))):
            yield f"item {name} is shown in part, and no report names the rest"
    for name in after:
        if name not in ids and name not in summaries:
            yield f"item {name} is new and is not a summary"


def _is_made_of(shown: str, text: str, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether a text consists of the spans in their order, with only punctuation between them."""
    if shown == SAME:
        return not spans
    place, between = 0, []
    handle = _HANDLE.match(shown)
    if handle is not None and not text.startswith(handle.group()):
        place = handle.end()
    for start, end in spans:
        position = shown.find(text[start:end], place)
        if position < 0:
            return False
        between.append(shown[place:position])
        place = position + end - start
    between.append(shown[place:])
    return not any(character.isalnum() for part in between for character in part)


def _find_summary_faults(
    summaries: Sequence[Summary],
    after: Mapping[str, str],
    texts: Mapping[str, str],
    speakers: Mapping[str, str],
) -> list[str]:
    """Summaries that cite nothing or unknown items, or have a figure without a source."""
    faults = []
    known = {summary.id for summary in summaries}
    for summary in summaries:
        if summary.level == "targeted":
            continue
        if not summary.citations:
            if summary.text.strip():
                faults.append(f"summary {summary.id} cites nothing")
            continue
        unknown = [c.item_id for c in summary.citations if c.item_id not in texts]
        unknown += [child for child in summary.children if child not in known]
        if unknown:
            faults.append(f"summary {summary.id} cites {unknown[0]!r:.80}, which is not there")
            continue
        if any(end > len(texts[c.item_id]) for c in summary.citations for _, end in c.spans):
            faults.append(f"summary {summary.id} cites characters that its source does not have")
        # Lower levels are not shown; their quotations are checked in the level that is shown.
        if summary.id in after:
            if after[summary.id] != summary.text:
                faults.append(f"summary {summary.id} is shown in other words")
            source = "\n\n".join(
                f"{speakers[c.item_id]}\n{texts[c.item_id]}" for c in summary.citations
            )
            own = _HANDLE.sub("", re.sub(r"(?m)^(?:\[\d{1,5}\]|-)\s", "", summary.text))
            if any(True for _ in find_missing(own, source)):
                faults.append(f"summary {summary.id} has a figure, date or id without a source")
    return faults

"""Repairs an answer: puts a judge's corrections in the place of the claims that it flags.

Every character outside of the edits stays as it was. A correction that does not count
(`judge.correction`), that would break a table or JSON, or that is in code is left out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from pydantic import Field

from crp_integrations.dpe.judge.belief import pieces_of
from crp_integrations.dpe.judge.correction import TAIL, in_line, in_row
from crp_integrations.dpe.judge.reply import readable
from crp_integrations.dpe.report_parts import Quotation
from crp_integrations.errors import RequestError
from crp_integrations.language.blocks import TextBlock, blocks, is_needed
from crp_integrations.language.coverage import json_leaves
from crp_integrations.language.text import Span, has_text, split_sentences
from crp_integrations.records import Part
from crp_integrations.seals import sha256

if TYPE_CHECKING:
    from crp_integrations.dpe.records import Claim, Report

# Why a flagged claim stays as it is.
NO_CORRECTION: Final = "no correction"
UNFOUNDED: Final = "unfounded correction"
UNCHANGED: Final = "correction without a change"
CODE: Final = "code"
FORM: Final = "correction of another form"
NEEDED: Final = "rest of the sentence needs it"
OVERLAP: Final = "overlaps another edit"
EMPTY: Final = "nothing would stay"

_BLANK: Final = re.compile(r"(\s+)")
_CLOSERS: Final = re.compile(r"[*_)\]}”»`]*")
# An apostrophe after an s or between letters is no quotation mark.
_MARKS: Final = re.compile(r"\*\*|(?<=\S)\*|\*(?=\S)|[`\"()\[\]{}|“”„«»‚‘]|(?<!s)’(?!\w)")
_COMMA_AFTER: Final = re.compile(r"\s*,\s*")
_COMMA_BEFORE: Final = re.compile(r",\s*\Z")


class Edit(Part):
    """A change of an answer for one flagged claim.

    Attributes:
        start, end: character offsets in the original answer.
        old, new: the replaced words, and the words in their place; empty for none.
        claim: id of the claim.
        quotations: words of the evidence for the change.
    """

    start: int = Field(ge=0)
    end: int = Field(ge=0)
    old: str
    new: str
    claim: str
    quotations: tuple[Quotation, ...] = ()


class Unrepaired(Part):
    """A flagged claim that stays as it is.

    Attributes:
        claim: id of the claim.
        reason: one of the eight above, such as `no correction`.
    """

    claim: str
    reason: str


class Repair(Part):
    """A repaired answer.

    Attributes:
        text: the answer with all edits; the original if there are none.
        edits: the edits in order of the answer; they do not overlap.
        unrepaired: the flagged claims that stay wrong.
    """

    text: str
    edits: tuple[Edit, ...] = ()
    unrepaired: tuple[Unrepaired, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the text differs from the original."""
        return bool(self.edits)


def repair(report: Report, answer: str | None = None) -> Repair:
    """The answer with its wrong claims corrected or removed, as far as the judge knows how.

    Args:
        answer: the answer, for a report that was read from JSON; None for any other.

    Raises:
        RequestError: the answer is missing, or is not the one that the report is on.
    """
    text = report.answer if answer is None else answer
    if text is None:
        raise RequestError("a report read from JSON has no answer; give repair(answer)")
    if sha256(readable(text)) != report.response_content_hash:
        raise RequestError(f"the answer of {len(text)} characters is not the report's; give that")
    flagged = [claim for claim in report.claims if claim.flagged]
    if not flagged:
        return Repair(text=text)
    # Numbered claims first, since further assertions may overlap them.
    flagged.sort(key=lambda claim: (claim.sentence_index < 0, claim.start))
    layout = _Layout.of(text)
    reasons: dict[str, str] = {}
    edits: list[Edit] = []
    removals = _removals(layout, report.claims, [c for c in flagged if c.fix == ""])
    for claim in flagged:
        edit = removals.get(claim.claim_id) or _replacement(layout, claim, report.claims)
        if isinstance(edit, Edit) and not any(
            edit.start < other.end and other.start < edit.end for other in edits
        ):
            edits.append(edit)
        elif not _covers(edits, *(claim.wrong or (claim.start, claim.end))):
            reasons[claim.claim_id] = edit if isinstance(edit, str) else OVERLAP
    edits.sort(key=lambda edit: (edit.start, edit.end))
    if not has_text(edited(text, edits)):
        reasons |= {edit.claim: EMPTY for edit in edits}
        edits = []
    stays = [claim.claim_id for claim in report.claims if claim.claim_id in reasons]
    return Repair(
        text=edited(text, edits),
        edits=tuple(edits),
        unrepaired=tuple(Unrepaired(claim=id_, reason=reasons[id_]) for id_ in stays),
    )


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text after some edits, from which anyone computes a repaired answer again.

    Raises:
        RequestError: an edit's old words do not stand at its place, or two edits overlap.
    """
    parts, at = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < at or text[edit.start : edit.end] != edit.old:
            raise RequestError(
                f"the edit of claim {edit.claim!r:.20} at {edit.start} does not fit the answer; "
                "give the answer and the edits of one repair"
            )
        parts += [text[at : edit.start], edit.new]
        at = edit.end
    return "".join([*parts, text[at:]])


def _covers(edits: Sequence[Edit], start: int, end: int) -> bool:
    return any(edit.start <= start and end <= edit.end for edit in edits)


def _edit(layout: _Layout, claim: Claim, start: int, end: int, new: str = "") -> Edit:
    return Edit(
        start=start,
        end=end,
        old=layout.text[start:end],
        new=new,
        claim=claim.claim_id,
        quotations=claim.quotations,
    )


@dataclass(frozen=True, slots=True)
class _Layout:
    """An answer with its blocks, its sentences, and its stretches of JSON.

    Attributes:
        json: the whole answer, or the contents of the code blocks that are JSON.
    """

    text: str
    blocks: tuple[TextBlock, ...]
    sentences: tuple[Span, ...]
    json: tuple[Span, ...]

    @classmethod
    def of(cls, text: str) -> _Layout:
        parts = tuple(blocks(text))
        whole = Span(0, len(text))
        spans = [whole] if json_leaves(text) is not None else list(_code_of(parts))
        json = tuple(span for span in spans if json_leaves(span.of(text)) is not None)
        return cls(text, parts, split_sentences(text), json)

    def block_at(self, place: int) -> TextBlock | None:
        """The block around a place."""
        number = bisect_right(self.blocks, place, key=lambda block: block.start) - 1
        return self.blocks[number] if number >= 0 and place < self.blocks[number].end else None

    def sentence_at(self, place: int) -> int:
        """The number of the sentence around a place, or of the last one before it."""
        return max(0, bisect_right(self.sentences, place, key=lambda span: span.start) - 1)

    def json_around(self, claim: Claim) -> Span | None:
        """The JSON that contains a claim."""
        own = Span(claim.start, claim.end)
        return next((span for span in self.json if span.holds(own)), None)

    def fits(self, span: Span, edit: Edit) -> bool:
        """Whether JSON has the same fields after an edit, or one less after a removal."""
        before = json_leaves(span.of(self.text)) or ()
        shifted = edit.model_copy(
            update={"start": edit.start - span.start, "end": edit.end - span.start}
        )
        after = json_leaves(edited(span.of(self.text), [shifted]))
        if after is None:
            return False
        if not edit.new and len(after) == len(before) - 1:
            return True
        return [(leaf.path, _type(leaf.value)) for leaf in before] == [
            (leaf.path, _type(leaf.value)) for leaf in after
        ]


def _type(value: object) -> type:
    return float if type(value) is int else type(value)


def _code_of(parts: Sequence[TextBlock]) -> Iterator[Span]:
    """Each run of lines of code."""
    start = -1
    for block, following in zip(parts, [*parts[1:], None], strict=True):
        if block.kind == "code":
            start = block.start if start < 0 else start
            if following is None or following.kind != "code":
                yield Span(start, block.end)
                start = -1


def _place(layout: _Layout, claim: Claim) -> str:
    """`code`, `json`, `row` or `prose`."""
    if layout.json_around(claim) is not None:
        return "json"
    block = layout.block_at(claim.start)
    if block is not None and block.kind in ("code", "fence"):
        return "code"
    return "row" if block is not None and block.kind == "row" else "prose"


# --- replacements ---------------------------------------------------------------------------------


def _replacement(layout: _Layout, claim: Claim, claims: Sequence[Claim]) -> Edit | str:
    """The edit with which a claim's correction takes its place, or why there is none."""
    if claim.fix is None:
        return NO_CORRECTION
    if claim.unfounded:
        return UNFOUNDED
    place = _place(layout, claim)
    if place == "code":
        return CODE
    old = layout.text[claim.start : claim.end]
    wrong = (claim.wrong[0] - claim.start, claim.wrong[1] - claim.start) if claim.wrong else None
    new = in_row(old, claim.fix, wrong) if place == "row" else in_line(old, claim.fix, wrong)
    if new is None or (place == "prose" and _beyond(layout, claim, new, claims)):
        return FORM
    start, end, words = _difference(old, new)
    if start == end and not words:
        return UNCHANGED
    edit = _edit(layout, claim, claim.start + start, claim.start + end, words)
    json = layout.json_around(claim)
    if json is not None:
        return edit if layout.fits(json, edit) else FORM
    return edit if _balance(old) == _balance(new) else FORM


def _beyond(layout: _Layout, claim: Claim, new: str, claims: Sequence[Claim]) -> bool:
    """Whether a part of a sentence gets a whole one, several, or what another part says."""
    number, text = layout.sentence_at(claim.start), layout.text
    span = layout.sentences[number]
    before = has_text(text[span.start : claim.start])
    if not before and not has_text(text[claim.end : span.end]):
        return False
    begins = new[:1].isupper() and not text[claim.start].isupper()
    if (before and begins) or len(split_sentences(new)) > 1:
        return True
    words, old = _folded(new), _folded(claim.text)
    others = [
        _folded(stated)
        for other in claims
        if layout.sentence_at(other.start) == number
        and (other.end <= claim.start or claim.end <= other.start)
        for stated in (other.text, other.fix or "")
    ]
    return any(" " in other and other in words and other not in old for other in others)


def _folded(text: str) -> str:
    return " ".join(text.split()).strip(" .,;:!").casefold()


def _balance(text: str) -> Counter[str]:
    """The signs of a text that come in pairs, without complete pairs; and its bars."""
    count = Counter(_MARKS.findall(text))
    for opening, closing in ("()", "[]", "{}"):
        count[opening] -= count.pop(closing, 0)
    for marks in ("“”„", "«»", "‚‘’"):
        count[marks[0]] = sum(count.pop(mark, 0) for mark in marks) % 2
    for sign in ("**", "*", "`", '"'):
        count[sign] %= 2
    return Counter({sign: number for sign, number in count.items() if number})


def _difference(old: str, new: str) -> tuple[int, int, str]:
    """The stretch of `old` in which two texts differ, by whole words, and the new words for it."""
    before, after = _pieces(old), _pieces(new)
    first = _common(before, after)
    last = _common(before[first:][::-1], after[first:][::-1])
    start = sum(map(len, before[:first]))
    end = len(old) - sum(map(len, before[len(before) - last :]))
    return start, end, "".join(after[first : len(after) - last])


def _pieces(text: str) -> list[str]:
    """Words, figures, signs and blanks; all blanks in a row are one piece."""
    made: list[str] = []
    for part in _BLANK.split(text):
        made += [part] if part.isspace() else pieces_of(part)
    return made


def _common(before: Sequence[str], after: Sequence[str]) -> int:
    """How many first pieces are equal; blanks are equal to each other."""
    pairs = zip(before, after, strict=False)
    return sum(1 for _ in takewhile(lambda p: p[0] == p[1] or (p[0] + p[1]).isspace(), pairs))


# --- removals -------------------------------------------------------------------------------------


def _removals(
    layout: _Layout, claims: Sequence[Claim], removed: Sequence[Claim]
) -> dict[str, Edit | str]:
    """For each claim that can only go the edit that removes it, or why there is none."""
    made: dict[str, Edit | str] = {}
    prose: list[Claim] = []
    for claim in removed:
        place = _place(layout, claim)
        if place == "code":
            made[claim.claim_id] = CODE
        elif place == "json":
            made[claim.claim_id] = _without_leaf(layout, claim)
        elif claim.sentence_index < 0:
            made[claim.claim_id] = _whole(layout, claim, *_with_blank(layout.text, claim))
        else:
            prose.append(claim)
    ids = {claim.claim_id for claim in prose}
    inside: dict[int, list[Claim]] = defaultdict(list)
    for claim in claims if prose else ():
        if claim.sentence_index >= 0:
            inside[layout.sentence_at(claim.start)].append(claim)
    gone: set[int] = set()
    for number in {layout.sentence_at(claim.start) for claim in prose}:
        if all(claim.claim_id in ids for claim in inside[number]):
            gone.add(number)
        else:
            made |= _from_sentence(layout, layout.sentences[number], inside[number], ids)
    places = {layout.block_at(layout.sentences[number].start): None for number in sorted(gone)}
    numbers = {
        block: range(layout.sentence_at(block.start), layout.sentence_at(block.end - 1) + 1)
        for block in places
        if block is not None
    }
    cut = {block for block in numbers if gone.issuperset(numbers[block])}
    limit = len(layout.text)
    for block in reversed(numbers):
        if block in cut and is_needed(layout.text, layout.blocks, block, cut):
            cut.discard(block)
            continue
        own = list(_from_block(layout, block, numbers[block], gone, inside, limit))
        made |= {claim.claim_id: _whole(layout, claim, start, end) for claim, start, end in own}
        if block in cut and own[-1][2] == limit:
            limit = own[0][1]
    return {claim.claim_id: made.get(claim.claim_id, NEEDED) for claim in removed}


def _whole(layout: _Layout, claim: Claim, start: int, end: int) -> Edit | str:
    """The edit that cuts a stretch, unless that leaves half of a pair of signs."""
    edit = _edit(layout, claim, start, end)
    block = layout.block_at(claim.start)
    row = block is not None and block.kind == "row"
    return edit if row or not _balance(edit.old) else NEEDED


def _with_blank(text: str, claim: Claim) -> tuple[int, int]:
    """The claim with the blank before it, or else after it."""
    start, end = claim.start, claim.end
    if text[start - 1 : start].isspace():
        return start - 1, end
    return start, end + text[end : end + 1].isspace()


def _without_leaf(layout: _Layout, claim: Claim) -> Edit | str:
    """The edit that removes a leaf with its comma, or a sentence of a longer text."""
    json, text = layout.json_around(claim), layout.text
    after = _COMMA_AFTER.match(text, claim.end)
    before = _COMMA_BEFORE.search(text, 0, claim.start)
    spans = [_with_blank(text, claim)]
    if before:
        spans.insert(0, (before.start(), claim.end))
    if after:
        spans.insert(0, (claim.start, after.end()))
    for start, end in spans:
        edit = _edit(layout, claim, start, end)
        if json is not None and layout.fits(json, edit):
            return edit
    return FORM


def _from_sentence(
    layout: _Layout, span: Span, own: Sequence[Claim], ids: set[str]
) -> dict[str, Edit | str]:
    """The edits that remove some claims of a sentence, with the joint before or after them."""
    made: dict[str, Edit | str] = {}
    text = layout.text
    stop = TAIL.search(text[span.start : span.end])
    tail = span.start + stop.start() if stop and stop["stop"] else span.end
    for number, claim in enumerate(own):
        if claim.claim_id not in ids:
            continue
        before = own[number - 1] if number else None
        follows = own[number + 1] if number + 1 < len(own) else None
        last = all(other.claim_id in ids for other in own[number:])
        start, end = claim.start, tail if follows is None else follows.start
        if last and before is not None and before.claim_id not in ids:
            closers = _CLOSERS.match(text, before.end)
            start = min(closers.end() if closers else before.end, claim.start)
        first = all(other.claim_id in ids for other in own[: number + 1])
        heads = next((other for other in own if other.claim_id not in ids), claim)
        lower = text[heads.start : heads.start + 1].islower()
        if first and lower and not text[claim.start : claim.start + 1].islower():
            # Without its beginning the sentence would begin with a small letter.
            made[claim.claim_id] = NEEDED
        else:
            made[claim.claim_id] = _whole(layout, claim, start, max(start, end))
    return made


def _from_block(
    layout: _Layout,
    block: TextBlock,
    numbers: range,
    gone: set[int],
    inside: Mapping[int, Sequence[Claim]],
    limit: int,
) -> Iterator[tuple[Claim, int, int]]:
    """The stretch to cut for each claim of the sentences of a block that go as a whole."""
    whole = all(number in gone for number in numbers)
    for number in numbers:
        if number not in gone:
            continue
        own, span = inside[number], layout.sentences[number]
        first, last = number == numbers[0], number == numbers[-1]
        # A first sentence leaves the mark of its item.
        start = own[0].start if first else span.start
        end = span.end if last else layout.sentences[number + 1].start
        ends = all(other in gone for other in range(number, numbers.stop))
        if ends and not first and number - 1 not in gone:
            start = layout.sentences[number - 1].end
        if whole:
            start, end = _lines_of(layout.text, block, (start, end), limit, first=first, last=last)
        cuts = [start, *(claim.start for claim in own[1:]), end]
        yield from zip(own, cuts[:-1], cuts[1:], strict=True)


def _lines_of(
    text: str, block: TextBlock, span: tuple[int, int], limit: int, *, first: bool, last: bool
) -> tuple[int, int]:
    """The stretch of a sentence whose block goes, with the block's mark and its line break.

    Args:
        limit: where the text ends, without what is removed at its end.
    """
    start, end = span
    if first:
        start = text.rfind("\n", 0, block.start) + 1
    if last:
        line = text.find("\n", block.end)
        line = len(text) if line < 0 else line
        if not text[block.end : line].strip():
            end = min(line + 1, len(text))
            apart = block.kind not in ("item", "row") or text[:start].endswith("\n\n")
            while apart and text[end : end + 1] in ("\r", "\n"):
                end += 1
    end = min(end, limit)
    if first and end == limit:
        start = len(text[:start].rstrip())
    return start, end

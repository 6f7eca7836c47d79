"""Sentences of a text, found in one pass over its punctuation.

First the blocks (paragraphs, list items, headings, rows, code) are taken apart, then each
mark that may end a sentence is judged by what stands just before and just after it: a
bounded look back and one look ahead, so the work grows with the text and no faster.
"""

from __future__ import annotations

import re
from typing import Final

from crp_integrations.language.blocks import blocks
from crp_integrations.language.memo import LONGEST, remembered_within
from crp_integrations.language.text import Span

# Characters of texts whose sentences are remembered: an envelope's, and no file's that is read in.
_KEPT: Final = 1 << 17
_MARK = re.compile(r"[.!?\u2026\u3002\uff01\uff1f\u0964]+[\"')\]}\u201d\u2019\u00bb*_]*")
_WIDE = frozenset("\u3002\uff01\uff1f\u0964")
_AHEAD = re.compile(r"\s*[\"'(\[{\u201c\u2018\u00ab*_\u00bf\u00a1]*")
_LAST = re.compile(r"[^\s\"'(\[{\u201c\u2018\u00ab/\u2013\u2014]+\Z")
_NEXT = re.compile(r"[^\W\d_]+")
# Source numbers behind a sentence, "[2]" or "[1, 3]", belong to it.
_CITED = re.compile(r"(?:[ \t]*\[\d{1,4}(?:\s?[,;\u2013-]\s?\d{1,4}){0,9}\])+(?=\s|\Z)")
_LOOK_BACK = 24
# Characters of a passage, about as ingestion cuts them.
PASSAGE: Final = 800

# A point after these never ends a sentence: a name or number follows.
_BEFORE_NAME = frozenset(
    """mr mrs ms messrs mme dr drs prof rev fr sr hon gen col maj capt cmdr lt sgt cpl adm gov
    sen rep pres amb supt insp st mt ft ste""".split()
)
# After these a number or a lower-case word follows.
_BEFORE_NUMBER = frozenset(
    """no nos fig figs eq eqs art arts sec secs para paras ch chap vol vols pp p ed eds ref refs
    tab app al cf ca approx sect nr ver v incl excl""".split()
)
# These may end a sentence; a word that starts sentences must follow.
_EITHER = frozenset(
    """inc ltd co corp bros dept univ assn gmbh plc llc etc vs jr esq phd md ba ma bsc msc mba
    a.m p.m am pm u.s u.k u.n e.u u.s.a d.c jan feb mar apr jun jul aug sep sept oct nov dec
    mon tue tues wed thu thur thurs fri sat sun ave blvd rd hwy min max avg est dist misc tel
    ext incl excl max temp wt oz lb ft yd mi hr hrs bldg calif fla mass mich minn tex va wash
    ph.d m.d b.a m.a b.sc m.sc e.g i.e viz""".split()
)
_NEVER = frozenset({"e.g", "i.e", "eg", "ie", "viz", "cf", "vs"})
_STARTERS = frozenset(
    """the a an this that these those there here it its he his she her they their we our i my you
    your in on at for from with by as if when while after before although though since because
    but and or so yet however moreover furthermore therefore thus then also what who why how
    where which all some many most few each every both no not one two another other such more
    please is are was were do does did has have had can could will would should may might must
    let nor once until unless during under over according despite finally first second third
    next later today now only still even just don't i'm it's that's there's""".split()
)


def split_sentences(text: str) -> list[Span]:
    """The sentences of a text as spans, in order, holding every character that is no space.

    Table rows, list items, headings and lines of code are units of their own.

    Args:
        text: any text.

    Returns:
        Spans without outer white space.

    >>> text = "Dr. Smith paid $3.50. He left."
    >>> [span.of(text) for span in split_sentences(text)]
    ['Dr. Smith paid $3.50.', 'He left.']
    """
    return list(_sentences(text))


@remembered_within(_KEPT, longest=LONGEST)
def _sentences(text: str) -> tuple[Span, ...]:
    """As `split_sentences`: claims, names and the context each ask for the same texts."""
    found: list[Span] = []
    for block in blocks(text):
        if block.kind in ("paragraph", "item", "heading"):
            _split(text, block.start, block.end, found)
        else:
            found.append(Span(block.start, block.end))
    return tuple(found)


def sentence_runs(text: str, most: int = PASSAGE) -> list[str]:
    """A text cut into runs of sentences of at most so many characters, where sentences allow.

    >>> sentence_runs("It rained. It snowed. The road was closed.", 24)
    ['It rained. It snowed.', 'The road was closed.']
    """
    found: list[str] = []
    start = end = 0
    for span in split_sentences(text):
        if span.end - start > most and end > start:
            found.append(text[start:end])
            start = span.start
        end = span.end
    if end > start:
        found.append(text[start:end])
    return found


def _split(text: str, start: int, end: int, found: list[Span]) -> None:
    first = start
    for match in _MARK.finditer(text, start, end):
        place = match.end()
        if place >= end or place <= first:
            continue
        if _ends(text, first, match, end):
            cited = _CITED.match(text, place, end)
            first = _cut(text, first, cited.end() if cited else place, found)
    _cut(text, first, end, found)


def _cut(text: str, start: int, end: int, found: list[Span]) -> int:
    while start < end and text[start].isspace():
        start += 1
    stop = end
    while stop > start and text[stop - 1].isspace():
        stop -= 1
    if stop > start:
        found.append(Span(start, stop))
    return end


def _ends(text: str, first: int, match: re.Match[str], end: int) -> bool:
    """Whether the mark ends the sentence that began at `first`."""
    place = match.end()
    marks = match.group()
    if marks[0] in _WIDE:
        return True
    following = text[place]
    if not following.isspace():
        # Glued sentences: "it.The" but not "Node.Js" or "3.5".
        word = _NEXT.match(text, place, min(end, place + 12))
        return (
            marks == "."
            and word is not None
            and word.group()[0].isupper()
            and word.group().lower() in _STARTERS
            and text[match.start() - 1].islower()
        )
    ahead = _AHEAD.match(text, place, end)
    at = ahead.end() if ahead is not None else place
    if at >= end:
        return True
    opening = text[at]
    word = _NEXT.match(text, at, min(end, at + 16))
    starter = word is not None and word.group().lower() in _STARTERS
    before = _LAST.search(text, max(first, match.start() - _LOOK_BACK), match.start())
    token = before.group() if before is not None else ""
    if marks[0] == "\u2026" or marks.startswith(".."):
        return not opening.islower()
    if marks[0] != ".":
        # Not in: "Really?" he asked; nor in: Yahoo! is a firm.
        quoted = marks[-1] not in "?!"
        named = marks == "!" and token[:1].isupper()
        return not (opening.islower() and (quoted or named))
    if not token:
        return not opening.islower()
    if opening.islower():
        return marks == "." and _ordinary(token)
    if before is not None and before.start() == first and _is_marker(token):
        return False
    lower = token.lower()
    if lower in _NEVER or lower in _BEFORE_NAME:
        return False
    if lower in _BEFORE_NUMBER:
        return not (opening.isdigit() or opening in "\u00a7(") and starter and lower != "v"
    if lower in _EITHER or ("." in token and _dotted(token)):
        return starter and opening.isupper()
    if len(token) == 1 and token.isalpha() and token.isupper():
        return (starter and opening.isupper() and token != "I") or token == "I"
    return True


def _ordinary(token: str) -> bool:
    """Whether a token before a point is a plain lower-case word and no abbreviation."""
    return (
        len(token) > 3
        and token.isalpha()
        and token.islower()
        and token not in _EITHER
        and token not in _BEFORE_NAME
        and token not in _BEFORE_NUMBER
    )


def _is_marker(token: str) -> bool:
    return (token.isdigit() and len(token) <= 3) or len(token) == 1


def _dotted(token: str) -> bool:
    """Whether a token is letters with points between, such as "U.S" or "a.m"."""
    return all(len(part) <= 2 and part.isalpha() for part in token.split("."))

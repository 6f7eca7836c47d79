"""Quotations, names of code and citations of an answer that stand nowhere in its passages."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from typing import Final

from crp_integrations.dpe.verifier.context import Context
from crp_integrations.language.text import plain
from crp_integrations.language.words import content_stems

FEWEST_WORDS: Final = 4
_QUOTED: Final = re.compile(
    r"[\"\u201c\u201e\u00ab](?P<text>[^\"\u201c\u201d\u201e\u00ab\u00bb\n]{8,400})[\"\u201d\u201c\u00bb]"
)
_CODE: Final = re.compile(r"```[^\n]*\n(?P<block>.*?)```|`(?P<inline>[^`\n]{2,200})`", re.S)
_NAME: Final = re.compile(
    r"(?P<call>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w{2,})(?=\()|(?P<flag>(?<![\w-])--[a-z][\w-]+)"
    r"|(?<=[(,\s])(?P<argument>[a-z_]\w{2,})(?==[^=])|(?P<constant>\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b)"
)
_WORD: Final = re.compile(r"\w+")
# The forms in which models point at a passage: [1], [1, 3], [1, p. 3], (source 2), [context-2],
# a raised 1, <sup>1</sup>, [^2].
_CITATION: Final = re.compile(
    r"\[\^?(?:(?:source|passage|context|document|fact|ref)[\s-]?)?"
    r"(?P<square>\d{1,3}(?:\s?[,;]\s?\d{1,3})*)(?:,\s?pp?\.\s?\d+)?\]"
    r"|\((?:source|passage|context|document|fact)s?\s(?P<round>\d{1,3}(?:\s?(?:,|and)\s?\d{1,3})*)\)"
    r"|<sup>(?P<sup>\d{1,3})</sup>|(?<=[\w.,;:!?])(?P<raised>[\u00b9\u00b2\u00b3\u2074-\u2079]+)(?=[\s.,;]|\Z)",
    re.I,
)
_RAISED: Final = str.maketrans(
    "\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079", "123456789"
)
# Share of a claim's words that the cited passages lack at least, and that another one has.
CITED_LACKS: Final = 0.75
OTHER_HAS: Final = 0.8
FEWEST_CITED: Final = 4


def wrong_citations(text: str, context: Context) -> Iterator[tuple[int, int]]:
    """Citations of a claim that name no passage, or one about something else, as offsets.

    A number that is cited as a passage's own text has it, as in a paper's reference, is none.
    """
    count = len(context.passages)
    found = [match for match in _CITATION.finditer(text) if match.start() and _points(text, match)]
    if not found or not count:
        return
    stems = frozenset(content_stems(_CITATION.sub(" ", text)))
    shares = [len(stems & have) / max(1, len(stems)) for have in context.stems_by_passage]
    cited = {number for match in found for number in _numbers(match)}
    there = [shares[number - 1] for number in cited if 1 <= number <= count]
    for match in found:
        if all(1 <= number <= count for number in _numbers(match)):
            continue
        labelled = "|".join(map(str, sorted(_numbers(match))))
        named = re.compile(rf"(?i)\b(?:passage|source|document|fact)\s(?:{labelled})\b")
        if not any(match.group() in one or named.search(one) for one in context.passages):
            yield match.span()
    elsewhere = max(shares, default=0.0) >= OTHER_HAS and len(stems) >= FEWEST_CITED
    if there and elsewhere and max(there) <= 1.0 - CITED_LACKS:
        yield found[0].span()


def _points(text: str, match: re.Match[str]) -> bool:
    """Whether it stands behind words, as a citation does, and in no list of data."""
    if match["raised"]:
        return not text[: match.start()].rstrip()[-1:].isdigit() and not _UNIT.search(
            text[: match.start()]
        )
    return not text[: match.start()].rstrip().endswith((":", "=", ",", "["))


def _numbers(match: re.Match[str]) -> list[int]:
    written = match["square"] or match["round"] or match["sup"] or match["raised"]
    return [int(number) for number in re.findall(r"\d+", written.translate(_RAISED))]


_UNIT: Final = re.compile(r"(?:^|[\s/\d])(?:[kcm]?m|ft|in|yd|km|[Mm]i)\Z")


def unquoted(answer: str, context: Context, question: str) -> Iterator[tuple[int, int]]:
    """Quotations of some words that neither a passage nor the question has, as offsets."""
    if not context.passages:
        return
    whole = " ".join(map(_row, (*context.told, question)))
    code = [found.span() for found in _CODE.finditer(answer)]
    for match in _QUOTED.finditer(answer):
        if any(low < match.end() and match.start() < high for low, high in code):
            continue
        pieces = re.split(r"\s?(?:\[?\u2026\]?|\[?\.\.\.\]?|\[[^\]]*\])\s?", match["text"])
        rows = [_row(piece) for piece in pieces if len(piece.split()) >= FEWEST_WORDS]
        if rows and any(f" {row} " not in f" {whole} " for row in rows):
            yield match.span("text")


def _row(text: str) -> str:
    return " ".join(_WORD.findall(plain(text)))


def unknown_code(answer: str, context: Context, question: str) -> Iterator[tuple[int, int]]:
    """Functions, flags, arguments and constants that no passage has, where passages hold code."""
    whole = "\n".join((*context.told, question))
    if not any(sign in whole for sign in ("()", "(", "--", "_")):
        return
    defined = set(
        re.findall(
            r"(?:def|class|import|as|for|let|const|var|fn|func)\s+(\w+)|(\w+)\s*=[^=]", answer
        )
    )
    own = {name for pair in defined for name in pair if name}
    for code in _CODE.finditer(answer):
        part = "block" if code["block"] is not None else "inline"
        start, end = code.span(part)
        for match in _NAME.finditer(answer, start, end):
            kind = str(match.lastgroup)
            name = match[kind]
            last = name.rpartition(".")[2]
            if (
                kind in ("call", "constant")
                and last in own
                and f"{last}(" not in whole
                and kind != "call"
            ):
                continue
            if last in _COMMON or re.search(rf"(?<!\w){re.escape(last)}(?!\w)", whole):
                continue
            if kind == "call" and re.search(
                rf"(?:def|class|fn|func|function)\s+{re.escape(last)}\b", answer
            ):
                continue
            yield match.span(kind)


# What comes with a language or a shell, in the languages that are asked about most.
_COMMON: Final = frozenset(dir(builtins)) | frozenset(
    """format join split append extend items keys values get
    read write close strip lower upper replace log info debug warn warning error exception
    require import include echo printf console main init assert assertEqual raise catch then
    await async new return if for while switch function with default from_secs unwrap expect
    into push pop insert delete select where count avg file path name key value key end sep
    self cls this help version verbose""".split()
)

"""Quotations, names of code and citations of an answer that stand nowhere in its passages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from crp_integrations.dpe.verifier.context import Context
from crp_integrations.language.text import plain
from crp_integrations.language.words import content_stems

FEWEST_WORDS: Final = 4
# Short ones too, so that the end of one is not taken for the beginning of the next.
_QUOTED: Final = re.compile(
    r"\"(?P<plain>[^\"\n]{0,400})\"|[\u201c\u201e](?P<high>[^\u201c\u201d\u201e\n]{0,400})[\u201d\u201c]"
    r"|\u00ab(?P<angle>[^\u00ab\u00bb\n]{0,400})\u00bb"
)
SHORTEST_QUOTE: Final = 8
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
    if answer.lstrip()[:1] in ("{", "["):
        # The strings of structured output are nobody's words.
        return
    code = [found.span() for found in _CODE.finditer(answer)]
    for match in _QUOTED.finditer(answer):
        kind = str(match.lastgroup)
        if len(match[kind]) < SHORTEST_QUOTE:
            continue
        if any(low < match.end() and match.start() < high for low, high in code):
            continue
        pieces = re.split(r"\s?(?:\[?\u2026\]?|\[?\.\.\.\]?|\[[^\]]*\])\s?", match[kind])
        rows = [_row(piece) for piece in pieces if len(piece.split()) >= FEWEST_WORDS]
        if rows and any(f" {row} " not in f" {whole} " for row in rows):
            yield match.span(kind)


def _row(text: str) -> str:
    return " ".join(_WORD.findall(plain(text)))


def unknown_code(answer: str, context: Context, question: str) -> Iterator[tuple[int, int]]:
    """Names of code that the passages' own code should have, and has not, as offsets.

    A flag beside other flags, a constant beside others of its family, an argument of a function
    and a member of an object that the passages name. What belongs to a language or to another
    library stands in no passage either, and is not looked at.
    """
    whole = "\n".join((*context.told, question))
    names = frozenset(_WORD.findall(whole))
    flags = frozenset(_FLAG.findall(whole))
    families = {name.partition("_")[0] for name in names if "_" in name}
    for code in _CODE.finditer(answer):
        part = "block" if code["block"] is not None else "inline"
        for match in _NAME.finditer(answer, *code.span(part)):
            kind = str(match.lastgroup)
            name = match[kind]
            owner, last = name.split(".")[0], name.rpartition(".")[2]
            if kind == "flag":
                invented = bool(flags) and name not in flags
            elif last in names or last in _MEMBERS:
                invented = False
            elif kind == "argument":
                invented = _called(answer, match.start(kind)) in names
            elif kind == "constant" or owner == last:
                invented = "_" in name and name.partition("_")[0] in families
            else:
                invented = owner in names and not _assigned(owner, answer)
            if invented:
                yield match.span(kind)


def is_variable(answer: str, start: int, end: int) -> bool:
    """Whether a stretch is a variable or a call in code, which the answer may name as it likes."""
    return _VARIABLE.fullmatch(answer, start, end) is not None and any(
        code.start() < start < code.end() for code in _CODE.finditer(answer)
    )


def _assigned(name: str, answer: str) -> bool:
    """Whether the answer's own code gives a name its value, or takes it as an argument."""
    word = re.escape(name)
    written = rf"\b{word}(?:\s*:\s*\w+)?\s*[=,)](?!=)|\b{word} in\b"
    return re.search(written, answer) is not None


def _called(text: str, place: int) -> str:
    """The function in whose arguments a place stands, or nothing."""
    depth = 0
    for offset in range(place - 1, max(-1, place - 400), -1):
        depth += {")": 1, "(": -1}.get(text[offset], 0)
        if depth < 0:
            found = re.search(r"(\w+)\Z", text[:offset])
            return found[1] if found else ""
    return ""


_VARIABLE: Final = re.compile(r"[a-z_][a-z0-9]*(?:[._][a-z0-9_]+)+(?:\(\))?")
_FLAG: Final = re.compile(r"(?<![\w-])--[a-z][\w-]+")
# Members of the types that a language brings.
_MEMBERS: Final = frozenset(
    name for kind in (str, bytes, list, dict, set, int, float) for name in dir(kind)
)

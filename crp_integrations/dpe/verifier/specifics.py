"""Quotations, names of code and citations of an answer that stand nowhere in its passages."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from typing import Final

from crp_integrations.dpe.verifier.context import Context
from crp_integrations.language.text import plain

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

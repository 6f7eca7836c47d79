"""HTML of records: one style for light and dark mode; untrusted texts are always escaped.

A page contains no script and loads nothing from elsewhere. Every text goes through `escaped`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files

Pieces = Sequence[tuple[str, bool]]

# Joiners and direction marks belong to the spelling of some languages.
_KEPT_CONTROLS = frozenset("\n\t\u200c\u200d\u200e\u200f")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def escaped(text: str) -> str:
    """HTML-escaped text; invisible and direction-changing characters are shown by code point.

    >>> escaped("<b>" + chr(0x202E) + "&")
    '&lt;b&gt;<span class="crp-sign">U+202E</span>&amp;'
    """
    return "".join(
        c
        if c in _KEPT_CONTROLS or unicodedata.category(c) not in _HIDDEN_CATEGORIES
        else f'<span class="crp-sign">U+{ord(c):04X}</span>'
        for c in escape(text.replace("\r\n", "\n"))
    )


def pieces(text: str, spans: Iterable[tuple[int, int]]) -> list[tuple[str, bool]]:
    """Split a text into parts, each with whether it lies in one of the spans.

    >>> pieces("It has 12 legs.", [(7, 9)])
    [('It has ', False), ('12', True), (' legs.', False)]
    """
    made, at = [], 0
    for start, end in sorted(spans):
        if at <= start < end <= len(text):
            made += [(text[at:start], False), (text[start:end], True)]
            at = end
    return [piece for piece in (*made, (text[at:], False)) if piece[0]]


def marked(parts: Pieces, kind: str = "") -> str:
    """Parts of a text as HTML, the marked ones in `<mark>`."""
    tag = f'<mark class="{kind}">' if kind else "<mark>"
    return "".join(f"{tag}{escaped(part)}</mark>" if on else escaped(part) for part, on in parts)


def tracked(
    text: str, edits: Iterable[tuple[int, int, str]], wrong: Iterable[tuple[int, int]] = ()
) -> str:
    """A text as HTML with its edits as tracked changes, and with marks on wrong words elsewhere.

    >>> tracked("It has 12 legs.", [(7, 9, "4")])
    'It has <del>12</del><ins>4</ins> legs.'
    """
    made, at, wrong = "", 0, list(wrong)
    for start, end, new in [*sorted(edits), (len(text), len(text), "")]:
        made += marked(pieces(text[at:start], [(a - at, b - at) for a, b in wrong]), "crp-no")
        made += f"<del>{escaped(text[start:end])}</del>" if start < end else ""
        made += f"<ins>{escaped(new)}</ins>" if new else ""
        at = end
    return made


def listed(lines: Iterable[str]) -> str:
    """Lines of HTML as a `<ul>`; an empty text without lines."""
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def folded(summary: str, body: str, *, opened: bool = False) -> str:
    """A collapsible `<details>` block; summary and body are HTML that is already escaped."""
    return f"<details{' open' if opened else ''}><summary>{summary}</summary>{body}</details>"


def fragment(body: str) -> str:
    """HTML for a cell of a notebook, with its style."""
    return f'<style>{_style()}</style><div class="crp-view">{body}</div>'


@cache
def _style() -> str:
    return files(__package__).joinpath("markup.css").read_text(encoding="utf-8")


def page(title: str, body: str) -> str:
    """A whole HTML file whose content policy blocks scripts and everything loaded from outside."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv='
        "\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>body{{margin:0;background:light-dark(#fff,#14181d);"
        "color-scheme:light dark}.crp-view{margin:0 auto}</style></head>"
        f"<body>{fragment(body)}</body></html>\n"
    )


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "source"), counted(2, "fact")
    ('1 source', '2 facts')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

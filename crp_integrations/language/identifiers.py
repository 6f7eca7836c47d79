"""Identifiers: codes, versions, references and addresses, whose digits are not quantities."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from crp_integrations.language.measures import unit_of
from crp_integrations.language.memo import remembered, remembered_of_sentences
from crp_integrations.language.text import Span, fold
from crp_integrations.language.word_lists import LISTS

_FIGURE = re.compile(r"[\d\u00bc-\u00be\u2150-\u215e]")
_LETTERS = re.compile(r"[a-z]+")
# Case-insensitive patterns match these as ASCII letters, but `lower` does not convert them.
_ODD = re.compile("[\u0130\u0131\u017f\u212a]")


class Gist(NamedTuple):
    """A quick summary of a text, used to skip rules that cannot match.

    Attributes:
        figures: whether the text has a digit of any script or a one-character fraction.
        words: runs of ASCII letters in lower case; other letters split a word. None when
            case folding is ambiguous.
    """

    figures: bool
    words: frozenset[str] | None

    def lacks(self, words: frozenset[str]) -> bool:
        """Whether none of the given lower-case ASCII words occurs in the text, in any case."""
        return self.words is not None and self.words.isdisjoint(words)


@remembered_of_sentences
def gist(text: str) -> Gist:
    """The summary of a text."""
    known = None if _ODD.search(text) else frozenset(_LETTERS.findall(text.lower()))
    return Gist(_FIGURE.search(text) is not None, known)


_ADDRESS = re.compile(
    r"(?<![\w@])(?:https?://|www\.)[^\s<>\"]+"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"
    r"|(?<![\w.])10\.\d{4,9}/[^\s<>\"]+",
    re.IGNORECASE,
)
_PRONOUN = (
    r"(?!I\s(?:have|had|am|was|will|would|can|could|did|do|[a-z]+ed|wrote|read|saw|need|want)\b)"
)
_PART = _PRONOUN + r"(?:\d+(?:\.\d+)*[a-z]?|[IVXLC]{1,6}|[A-Z](?:\.\d+)*)(?:\(\w{1,4}\))*(?![\w%])"
_REFERENCE = re.compile(
    r"(?<!\w)(?:(?i:sections?|sec\.|sect\.|articles?|arts?\.|chapters?|chap\.|clauses?|paragraphs?"
    r"|para\.|annex(?:es)?|appendix|appendices|figures?|figs?\.|tables?|equations?|eqs?\.|steps?"
    r"|stages?|rules?|parts?|titles?|schedules?|recitals?|items?|requirements?|versions?|ver\."
    r"|releases?|phases?|tiers?|levels?|class|grades?|types?|models?|pages?|lines?|rooms?|gates?"
    r"|building|flights?|routes?|highway|interstate|nos?\.|number)\s{1,3}|\u00a7{1,2}\s?)"
    + _PART
    + r"(?:\s?(?:-|\u2013|,|and|or|to)\s?\d+(?:\.\d+)*(?:\(\w{1,4}\))*(?![\w.%-]|\s?(?:%"
    r"|percent)))*"
)
_STANDARD = re.compile(
    r"(?<!\w)(?:ISO|IEC|IEEE|RFC|CVE|CWE|NIST|SP|EN|BS|DIN|ANSI|FIPS|ASTM|UL|PEP|HTTP|SOC|PCI|CRP"
    r"|Regulation|Directive|Resolution|Act|Bill|Form|Boeing|Airbus|Windows|Python|Java|Article)"
    r"(?:[/ -](?:IEC|IEEE|SP|TS|TR|DSS|SPEC|No\.|\([A-Z]{2,4}\)))*[ -]\d[\w./:-]*"
)
_TOKEN = re.compile(r"(?<![\w$\u20ac\u00a3\u00a5])[^\W_]+(?:[-._/:][^\W_]+)*")
_CODE = re.compile(
    r"[vV]?\d+(?:\.\d+){2,}(?:[.-]\w+)*"  # versions, addresses
    r"|[vV]\d+(?:\.\d+)*"
    r"|\d+[A-Za-z]+\d[\w.-]*"  # 4a7f
    r"|\d{20,}"  # too long for a quantity
    r"|\d+(?:D|G|FA|P|H)(?!\w)"  # 5G
    r"|\d+-[A-Z](?!\w)"  # 10-K
    r"|\d{2,4}/\d{3,4}(?:/[A-Z]{2,5})?|\d{2,4}/\d{2,4}/[A-Z]{2,5}"  # 2016/679, 95/46/EC
)
# 1.234.567 is a number and 12.03.2024 a date.
_POINTED = re.compile(r"\d{1,3}(?:\.\d{3}){2,}|[0-3]?\d\.[01]?\d\.(?:19|20)\d\d")
_OTHER = re.compile(
    r"(?<![\w&])#\d+(?!\w)"
    r"|(?<![\w.])\+\d{1,3}(?:[ -]?\(?\d{1,5}\)?){2,5}(?!\w)"
    r"|(?<![\w.-])\(?\d{3}\)?[ -]\d{3}-\d{4}(?![\w-])"
    r"|(?<![\w.$])[A-Za-z][A-Za-z0-9]*_\w+|(?<![\w-])--[a-z][\w-]+"  # names of code
)
# "mid-2024" and "sub-10" contain a date or a number; codes such as "COVID-19" have capitals.
_LOOSE = re.compile(r"(?:[a-z]+|Mid|Pre|Post|Sub|Non|Early|Late|Top)-\d+(?:[.,]\d+)*[a-z]*")
_DATE = re.compile(
    r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[-.]?\d+"
    r"|(?i:fy)(?:\d{2}|\d{4})\Z"  # a fiscal year
)
_TRAIL = ".,;:!?'\")]}*_"
# Signs of which every address and code name without a digit contains one.
_SIGNS = re.compile(r"://|@|_|--")
_WEB = frozenset({"www"})
_REFERS = frozenset(LISTS["references"])


@remembered
def identifiers(text: str) -> tuple[Span, ...]:
    """The identifiers of a text in order; they do not overlap.

    They are web and mail addresses, references such as "Article 22(1)" and "\u00a77.4",
    standards such as "ISO 27001", versions such as "v1.2.3", and codes such as "GPT-4o".

    >>> text = "GPT-4o meets ISO 27001 since v1.2.3, see Section 7.4."
    >>> [span.of(text) for span in identifiers(text)]
    ['GPT-4o', 'ISO 27001', 'v1.2.3', 'Section 7.4']
    """
    folded = fold(text)
    taken: list[Span] = []
    for start, end in _stretches(folded.text):
        brackets = "(" in folded.text[start:end]
        while end > start and folded.text[end - 1] in _TRAIL:
            if brackets and folded.text[end - 1] == ")":
                break
            end -= 1
        if end > start:
            taken.append(folded.span(start, end))
    taken.sort(key=lambda span: (span.start, -span.end))
    spans: list[Span] = []
    for span in taken:
        if not spans or span.start >= spans[-1].end:
            spans.append(span)
    return tuple(spans)


def _stretches(text: str) -> Iterator[tuple[int, int]]:
    look = gist(text)
    signs = _SIGNS.search(text) is not None
    if signs or look.figures or not look.lacks(_WEB):
        for match in _ADDRESS.finditer(text):
            yield match.span()
    if not look.lacks(_REFERS) or "\u00a7" in text:
        for match in _REFERENCE.finditer(text):
            yield match.span()
    if look.figures:
        for match in _STANDARD.finditer(text):
            yield match.span()
    if signs or look.figures:
        for match in _OTHER.finditer(text):
            yield match.span()
    # Superscript digits are not in `figures`, but `isdigit` is true for them.
    if not look.figures and (text.isascii() or not any(map(str.isdigit, text))):
        return
    for match in _TOKEN.finditer(text):
        token = match.group()
        if not any(character.isdigit() for character in token) or unit_of(token) is not None:
            continue
        if token[0].isdigit():
            code = _CODE.match(token)
            if code is not None and _POINTED.fullmatch(token) is None:
                yield match.start(), match.start() + code.end()
        elif token[0].isalpha() and not (_LOOSE.fullmatch(token) or _DATE.match(token)):
            yield match.span()

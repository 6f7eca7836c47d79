"""A question with every name and quotation as one sign, so that rules see its frame."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crp_integrations.language.lexicon import AUXILIARIES, ORDINARY, PREPOSITIONS, VERBS
from crp_integrations.language.words import STOP_WORDS

# A private sign: no text of a user's means anything by it.
SIGN = "\ue000"
# Taken whole and from its beginning only, or long runs would be tried at every sign.
NAME = rf"(?<!{SIGN}){SIGN}++"

WH = frozenset("who whom whose what which when where why how".split())
# Verbs that tell what to do with the answer.
TELLING = frozenset(
    """analyse analyze check clarify compare contrast define describe determine detail discuss
    elaborate enumerate evaluate explain explore find give identify illustrate list mention name
    outline please present provide quote recommend report show specify state suggest summarise
    summarize tell write""".split()
)

_STRAIGHT = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', SIGN: " "})
_QUOTED = re.compile(
    r'"[^"]{1,200}"|(?<!\w)`[^`]{1,200}`|(?<!\w)\'(?=\w)[^"]{1,80}?(?<=[\w!?])\'(?!\w)'
)
_TOKEN = re.compile(r"[^\W_](?:[\w.&/+#]|-(?=\w)|'(?!s\b)(?=\w)){0,80}")
_OPENERS = (
    WH | TELLING | AUXILIARIES | STOP_WORDS | ORDINARY | PREPOSITIONS | VERBS | {"the", "besides"}
)
_WITHIN = re.compile(r" (?:of(?: the)?|de|del|di|la|van|von|den|der|du|&|'n') ")
_SHORTENED = re.compile(r"(?:[A-Z]|St|Mt|Dr|Mr|Mrs|Ms|Jr|Sr|No|Inc|vs|\w*\.\w+)\.")
_ENDS = re.compile(r"[.?!;:]\s")
_EDGE = " \t,;:.?!-\u2013\u2014"


@dataclass(frozen=True, slots=True)
class Asked:
    """A stretch of a question.

    Attributes:
        text: as asked, on one line, with straight quotes.
        mask: as long as the text; names and quotations are runs of `SIGN`.
    """

    text: str
    mask: str

    def cut(self, start: int, end: int | None = None) -> Asked:
        """A part, without blanks and marks at its edges."""
        end = len(self.text) if end is None else end
        while start < end and self.mask[start] in _EDGE:
            start += 1
        while end > start and self.mask[end - 1] in _EDGE:
            end -= 1
        return Asked(self.text[start:end], self.mask[start:end])

    def join(self, *others: Asked) -> Asked:
        """This part and others with a blank between, empty ones left out."""
        parts = [part for part in (self, *others) if part.text]
        return Asked(" ".join(part.text for part in parts), " ".join(part.mask for part in parts))

    @property
    def first(self) -> str:
        """The first word in lower case, a name as signs; empty for none."""
        return self.mask.split(" ", 1)[0].strip(_EDGE).casefold()


def asked(text: str) -> Asked:
    """Read a question.

    >>> asked('Who wrote "Dune" of Frank Herbert?').mask.count(SIGN)
    19
    """
    line = " ".join(text.translate(_STRAIGHT).split())
    mask = list(line)
    for match in _QUOTED.finditer(line):
        mask[match.start() : match.end()] = SIGN * (match.end() - match.start())
    signs = "".join(mask)
    for start, end in _names(signs):
        mask[start:end] = SIGN * (end - start)
    return Asked(line, "".join(mask))


def _names(line: str) -> list[tuple[int, int]]:
    """Runs of words with a capital, numbers among them, joined over `of` and the like."""
    found: list[tuple[int, int, bool]] = []
    opening = True
    for match in _TOKEN.finditer(line):
        token, start = match.group(), match.start()
        end = match.end()
        if token.endswith(".") and not _SHORTENED.fullmatch(token):
            end -= 1
        capital = any(character.isupper() for character in token)
        if opening and token.casefold() in _OPENERS:
            capital = False
        number = token[0].isdigit()
        if capital or number:
            gap = line[found[-1][1] : start] if found else "?"
            if gap == " " or (capital and not number and _WITHIN.fullmatch(gap)):
                found[-1] = (found[-1][0], end, found[-1][2] or not number)
            else:
                found.append((start, end, not number))
        opening = _ENDS.match(line, end) is not None
    return [(start, end) for start, end, named in found if named]


def without_article(part: Asked) -> Asked:
    """A phrase without its leading article."""
    match = re.match(r"(?:the|a|an)\s", part.mask, re.IGNORECASE)
    return part.cut(match.end()) if match else part


_ASKS = re.compile(
    rf"(?:(?:{'|'.join(sorted(PREPOSITIONS))}) )?(?:{'|'.join(sorted(WH))})\b"
    rf"|(?:{'|'.join(sorted(TELLING | AUXILIARIES))}) ",
    re.IGNORECASE,
)


def opens_with_question(part: Asked) -> bool:
    """Whether the first words ask: a question word, with its preposition, a verb that tells to."""
    return _ASKS.match(part.mask) is not None

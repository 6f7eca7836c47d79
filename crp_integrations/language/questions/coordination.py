"""Members of a coordination with the words before and behind that they share."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crp_integrations.language.lexicon import AUXILIARIES, PREPOSITIONS
from crp_integrations.language.questions.asked import NAME, WH, Asked, without_article

_MEMBER = rf"(?:[Tt]he )?{NAME}(?:'s(?= (?:and|or|,)))?"
_NAMES = re.compile(
    rf"(?P<members>{_MEMBER}(?:, {_MEMBER}){{0,8}}),? (?P<joint>and|or|vs\.?|versus|with|to|against"
    rf"|than|from) (?P<last>{_MEMBER})",
)
# Nouns that say no more than that a view on something is meant.
VIEWS = "approach|attitude|perspective|position|stance|treatment|view"
_COMMA = re.compile(r",\s*")
_PHRASE_END = re.compile(
    rf"\s(?=(?:{'|'.join(sorted(PREPOSITIONS | AUXILIARIES))}|(?:{VIEWS})(?:s|es)?)\s)|[,;:]",
    re.IGNORECASE,
)
# `temporary and permanent loans`: an adjective alone stands for a noun that comes later.
ADJECTIVE = re.compile(r"(?:the )?[a-z-]{2,20}(?:ary|al|ar|ent|ant|ive|ic|ous|able|ible|ful|less)")
MOST = 10


@dataclass(frozen=True, slots=True)
class Shared:
    """Members of a coordination.

    Attributes:
        before: words before the members.
        members: two or more, without articles.
        after: words behind them.
        joint: the word before the last member, in lower case.
    """

    before: Asked
    members: tuple[Asked, ...]
    after: Asked
    joint: str


def of_names(part: Asked, joints: frozenset[str]) -> Shared | None:
    """The first coordination of names by one of the joints."""
    for match in _NAMES.finditer(part.mask):
        joint = match["joint"].rstrip(".")
        if joint in joints:
            first, last = match.span("members"), match.span("last")
            members = [*pieces(part.cut(*first)), part.cut(*last)]
            return Shared(
                part.cut(0, match.start()),
                tuple(without_article(member) for member in members[:MOST]),
                part.cut(match.end()),
                joint,
            )
    return None


def of_phrases(part: Asked, joints: frozenset[str]) -> Shared | None:
    """Two phrases about a joint; the second ends at a preposition or an auxiliary."""
    pattern = rf" (?P<joint>{'|'.join(sorted(joints))})\.? "
    match = re.search(pattern, part.mask, re.IGNORECASE)
    if match is None:
        return None
    left, right = part.cut(0, match.start()), part.cut(match.end())
    end = _PHRASE_END.search(right.mask)
    last = right.cut(0, end.start()) if end else right
    members = [*pieces(left), last]
    head = last.mask.rfind(" ")
    if len(members) == 2 and head > 0 and ADJECTIVE.fullmatch(left.mask):
        members[0] = left.join(last.cut(head))
    if len(members) > MOST or not all(member.text for member in members):
        return None
    return Shared(
        part.cut(0, 0),
        tuple(without_article(member) for member in members),
        right.cut(end.start()) if end else part.cut(0, 0),
        match["joint"].casefold(),
    )


def pieces(part: Asked) -> list[Asked]:
    """A stretch at its commas; a comma within a name does not count."""
    found: list[Asked] = []
    start = 0
    for match in _COMMA.finditer(part.mask):
        found.append(part.cut(start, match.start()))
        start = match.end()
    found.append(part.cut(start))
    return [piece for piece in found if piece.text]


def frame(part: Asked) -> Asked:
    """A question's words without those that only ask: question words, auxiliaries, articles."""
    while part.first in _ASKING:
        end = part.mask.find(" ")
        if end < 0:
            return part.cut(0, 0)
        part = part.cut(end)
    return part


_ASKING = WH | AUXILIARIES | {"the", "a", "an", "there", "please", "us", "me", "both", "between"}

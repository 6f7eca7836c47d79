"""Lists: several properties of one thing, and several conditions on one thing."""

from __future__ import annotations

import re
from bisect import bisect_left

from crp_integrations.language.lexicon import AUXILIARIES
from crp_integrations.language.questions.asked import NAME, TELLING, WH, Asked, without_article
from crp_integrations.language.questions.coordination import ADJECTIVE, frame, pieces
from crp_integrations.language.verbs import is_finite
from crp_integrations.language.words import Word, content_stems, words

_WORDS = r"[a-z][\w-]{1,30}(?: [a-z][\w-]{1,30}){0,2}"
_PROPERTIES = re.compile(
    rf"\b(?:the|its|their) (?P<first>{_WORDS}(?:, (?:the )?{_WORDS}){{0,8}}),? and (?:the )?"
    rf"(?P<last>{_WORDS}) (?P<link>of|for|in) (?=\S)"
)
_FURTHER = re.compile(
    r",? (?:and|but)(?: (?:also|then|later|once|who|which|that))* ", re.IGNORECASE
)
_HOLDS = re.compile(rf"[a-z]{{3,20}}s (?:the|an?|its|their|{NAME})\b")
_NAMED = re.compile(rf"{NAME}|\d")
_ENOUGH = 3
# Nouns and adjectives alone; a participle behind its noun makes it a clause.
_PROPERTY = re.compile(
    r"(?!.*\b(?:of|for|in|by|on|to|from|with|at|or|as)\b)(?!.* \w+ed\Z)"
    r"[a-z][\w-]*(?: [a-z][\w-]*){0,2}"
)
_ONE_THING = frozenset(("research and development", "terms and conditions", "supply and demand"))


def properties(task: Asked) -> tuple[str, ...] | None:
    """`the A, B and C of X` as `A of X`, `B of X`, `C of X`."""
    match = _PROPERTIES.search(task.mask)
    if match is None or task.first not in WH | TELLING | AUXILIARIES:
        return None
    if content_stems(frame(task.cut(0, match.start())).text) and task.first not in TELLING:
        return None
    members = [*pieces(task.cut(*match.span("first"))), task.cut(*match.span("last"))]
    members = [without_article(member) for member in members]
    if any(not _PROPERTY.fullmatch(member.mask) for member in members):
        return None
    if f"{members[-2].mask.split()[-1]} and {members[-1].mask.split()[0]}" in _ONE_THING:
        return None
    if len(members) == 2 and ADJECTIVE.fullmatch(members[0].mask) and " " in members[1].mask:
        members[0] = members[0].join(members[1].cut(members[1].mask.rfind(" ")))
    rest = task.cut(match.start("link"))
    return tuple(member.join(rest).text for member in members)


def conditions(task: Asked) -> tuple[str, ...] | None:
    """`Which N did A and was B` as `Which N did A`, `N was B`."""
    if task.first not in WH - {"why", "how", "when", "where"}:
        return None
    found = words(task.mask)
    subject = _subject(task, found)
    if subject is None:
        return None
    starts = [word.start for word in found]
    cuts: list[tuple[int, int]] = []
    for match in _FURTHER.finditer(task.mask):
        place = bisect_left(starts, match.end())
        if place == len(found) or match.start() <= len(subject.text):
            continue
        said = task.cut(cuts[-1][1] if cuts else 0, match.start())
        holds = is_finite(found, place) or _HOLDS.match(task.mask, found[place].start)
        if holds and _tells(said, subject):
            cuts.append((match.start(), found[place].start))
    if not cuts or not _tells(task.cut(cuts[-1][1]), subject):
        return None
    needs = [task.cut(0, cuts[0][0]).text]
    ends = [start for start, _ in cuts[1:]]
    for (_, start), end in zip(cuts, [*ends, len(task.text)], strict=True):
        needs.append(subject.join(task.cut(start, end)).text)
    return tuple(needs)


def _tells(said: Asked, subject: Asked) -> bool:
    """Whether a condition says enough to be looked up: a name, a number or three words."""
    if _NAMED.search(said.mask):
        return True
    return len(set(content_stems(said.text)) - set(content_stems(subject.text))) >= _ENOUGH


def _subject(task: Asked, found: list[Word]) -> Asked | None:
    """What the question asks for: the words between the question word and the first verb."""
    for place in range(1, min(len(found), 9)):
        if is_finite(found, place) or found[place].lower in ("who", "that", "which", "whose"):
            return frame(task.cut(0, found[place].start))
    return None

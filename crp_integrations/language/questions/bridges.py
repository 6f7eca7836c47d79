"""Bridges: things that a question only describes, so that they must be found first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crp_integrations.language.questions.frame import (
    NAME,
    SIGN,
    WH,
    MaskedQuestion,
    opens_with_question,
)
from crp_integrations.language.word_lists import LISTS
from crp_integrations.language.words import (
    AUXILIARIES,
    IRREGULAR,
    PAST_OF,
    PREPOSITIONS,
    TextWord,
    content_stems,
    is_finite,
    words,
)

_I = re.IGNORECASE
_NO_NOUN = PREPOSITIONS | AUXILIARIES | WH | {"and", "or", "but", "the", "a", "an", "that"}
_PLAIN = rf"(?!(?:{'|'.join(sorted(_NO_NOUN))})\b)[a-z][\w'-]{{0,30}}"
_BEFORE = rf"(?:(?:{NAME}(?:'s)?|{_PLAIN}|\d+\w{{0,2}}),? ){{0,5}}?"
_PAST = rf"(?:\w{{2,20}}ed|{'|'.join(sorted(set(PAST_OF) | IRREGULAR))})"
_LEADING = (
    r"\b(?:of|from|by|in|with|for|to|at|on|does|did|do|is|are|was|were|has|have|had|has|that|and)"
)
# Nouns for things that questions often describe instead of name.
_KNOWN = (
    r"father|mother|parents?|wife|husband|spouse|partner|sons?|daughters?|child|children|brothers?"
    r"|sisters?|siblings?|uncle|aunt|grandfather|grandmother|king|queen|president|ceo|chief|head"
    r"|captain|coach|capital|birthplace|hometown|city|town|county|country|state|province|region"
    r"|continent|nation|district|municipality|company|club|team|band|group|label|network|studio"
    r"|school|university|college|alma mater|airline|airport|stadium|league|church|religion|party"
    r"|film|movie|series|show|sitcom|album|song|single|novel|book|play|game|episode|magazine"
    r"|newspaper|actress|hero|heroine|star|cast|host|champion|mascot|anthem|river|lake|mountain"
    r"|body|island|headquarters|owner|employer|location|place of \w{3,12}|artist|musician"
)
_AGENT = r"\w{2,20}(?:er|or|ist|ician|man|woman)s?|comedians?|historians?|librarians?"
_THING = rf"(?P<noun>(?:(?:{NAME}|{_PLAIN}) ){{0,3}}?(?:{_KNOWN}|{_AGENT}))"
_OF = re.compile(
    rf"{_LEADING} (?:the|an?) {_THING} (?:of|in|for|from|behind|on|at|to) (?:the |an? )?"
    rf"(?:{_PLAIN} ){{0,3}}(?:{NAME}|the {_PLAIN} (?:of|who|that|where))",
    _I,
)
_FIRST_OF = re.compile(rf"\A(?:The|An?) {_THING} (?:of|for|from) (?:the |an? )?{_BEFORE}{NAME}")
_OWNED = re.compile(
    rf"(?:{_LEADING}|\A)(?: the)? {NAME}(?:'s|') (?P<noun>(?:{_PLAIN} ){{0,2}}?"
    rf"(?:{_KNOWN}|{_AGENT}))\b(?: of (?:birth|origin|citizenship|residence|death|burial))?"
    rf"(?!'|-| {SIGN})",
    _I,
)
_RELATIVE = re.compile(
    rf"\b(?:the|an?|this) (?P<noun>{_BEFORE}(?:{_PLAIN}|{NAME}))"
    r"(?: (?:of|in|on|at|from|for) [^,;?]{1,40}?)?,? (?P<by>(?:in|at|on|for|of|to|from|with)"
    r" (?:which|whom|whose)|who(?:'s)?|whose|which|that|where)\s",
    _I,
)
_REDUCED = re.compile(
    rf"\b(?:the|an?) (?P<noun>{_BEFORE}(?:{_PLAIN}|{NAME})),? (?P<by>{_PAST}"
    r" (?:by|in|at|on|for|from|to|with|as|out of|off|near|after|before|under|close to)"
    rf"|(?:starring|featuring|playing|containing|including|bordering|holding|owning|hosting) )",
    _I,
)
_BARE = re.compile(
    rf"\b(?:the|an?) (?P<noun>(?:{_PLAIN} ){{0,2}}{_PLAIN}) (?:the )?{NAME}"
    rf" (?:(?:is|was|are|were|did|had|has) (?:{_PLAIN} ){{0,3}}(?:of|from|in|for|by|to|on)"
    rf"|{_PAST}(?: (?:in|for|with|to|at|from|on|of))?)\b",
    _I,
)
# Nouns for a part, kind or aspect of the next noun, such as "type of": not a bridge.
_VAGUE = frozenset(LISTS["vague_nouns"])
_HEADS = frozenset("name names title titles year date".split())
# Words with an agent ending ("-er", "-or") that are not persons.
_NO_AGENT = frozenset(LISTS["no_agents"])
_LINKED = frozenset("and or that who which where whose when not also".split())
_MAX_MATCHES = 12  # for each pattern, to bound the work
_CLAUSE = re.compile(rf",\s(?=(?:{'|'.join(sorted(WH | AUXILIARIES))})\s)", _I)
_INVERTED = re.compile(r"\b(?:did|does|do)\s(?:the|an?)\s\Z", _I)
_ASKED_FOR = re.compile(
    rf"(?:\A|,\s)(?:(?:in|on|of|at|to|for|from) )?(?:{'|'.join(sorted(WH))}) (?:{_PLAIN} ){{0,3}}"
    rf"(?:{'|'.join(sorted(AUXILIARIES))}) (?:the|an?)\s\Z",
    _I,
)
_WANTED = re.compile(
    r"\b(?:what|how|whom|(?:by|of|to|for|with|from) who"
    r"|which(?! (?:is|are|was|were|has|have|had|the|a|an|in|also)\b))\b",
    _I,
)


def find_bridges(task: MaskedQuestion, depth: int) -> tuple[str, ...]:
    """The needs to answer before a task, innermost first; empty if there are none."""
    chain: list[str] = []
    outer = task
    for _ in range(depth):
        inner = _inner(outer)
        if inner is None:
            break
        chain.insert(0, inner.text)
        outer = inner
    return tuple(chain)


def _inner(task: MaskedQuestion) -> MaskedQuestion | None:
    """The first thing described: the longest match, or the shortest if the question comes last."""
    whole = content_stems(task.text)
    tokens = words(task.mask)
    # `X is the home of which team`: the known part comes first, the question word last.
    wanted = len(task.text)
    if not opens_with_question(task):
        wanted = max((m.start() for m in _WANTED.finditer(task.mask)), default=wanted)
    candidates: list[tuple[int, int, MaskedQuestion]] = []
    for pattern in (_RELATIVE, _REDUCED, _OF, _FIRST_OF, _OWNED, _BARE):
        place = 0
        for _ in range(_MAX_MATCHES):
            match = pattern.search(task.mask, place)
            if match is None:
                break
            start = match.start("noun")
            place = start + 1
            if pattern is _OWNED:
                start = task.mask.index(SIGN, match.start())
            end = match.end() if pattern in (_OWNED, _BARE) else _end(task, match, tokens)
            if _itself(task, match, end):
                continue
            length = -end
            if start < wanted < end:
                start, end = 0, match.end("noun")
                length = end
            inner = task.cut(start, end)
            if _usable(inner, match["noun"], whole):
                candidates.append((start, length, inner))
    return min(candidates, key=lambda candidate: candidate[:2])[2] if candidates else None


def _itself(task: MaskedQuestion, match: re.Match[str], end: int) -> bool:
    """Whether a noun is what the question asks for, not a step towards it."""
    pattern = match.re
    head = match["noun"].split()[-1].casefold()
    if pattern in (_OF, _FIRST_OF, _OWNED) and head.removesuffix("s") in _NO_AGENT:
        return True
    if not _ASKED_FOR.search(task.mask[: match.start("noun")]):
        return False
    return pattern in (_REDUCED, _BARE) or end >= len(task.text) - 1


def _usable(inner: MaskedQuestion, noun: str, whole: list[str]) -> bool:
    """Whether an inner need is specific enough and the question asks for more than it."""
    head = noun.split()[-1].casefold()
    if head in _VAGUE or head.removesuffix("s") in _VAGUE:
        return False
    own = content_stems(inner.text)
    least = 2 if SIGN in inner.mask or any(c.isdigit() for c in inner.text) else 4
    if len(set(own)) < least:
        return False
    return bool(set(whole) - set(own) - _HEADS)


def _end(task: MaskedQuestion, match: re.Match[str], tokens: Sequence[TextWord]) -> int:
    """End of the clause about a noun: before the question's main verb, or at the end."""
    clause = match.re is _RELATIVE
    begun = match.end("by") if "by" in match.re.groupindex else match.end()
    verbs = 0
    for place, word in enumerate(tokens):
        if word.start < begun or not is_finite(tokens, place):
            continue
        if tokens[place - 1].lower in _LINKED or is_finite(tokens, place - 1):
            verbs = max(verbs, 1)
            continue
        verbs += 1
        if verbs > clause:
            return word.start
    comma = _CLAUSE.search(task.mask, begun)
    if comma:
        return comma.start()
    # `did the N who … go to`: the main verb comes last, after the last name.
    if _INVERTED.search(task.mask[: match.start("noun")]):
        names = [name.end() for name in re.finditer(NAME, task.mask) if name.end() > begun]
        if names:
            return names[-1]
    return len(task.text)

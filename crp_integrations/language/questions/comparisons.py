"""Comparisons and lists: the things that a question compares, and the properties it lists."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from crp_integrations.language.questions.frame import (
    ADJECTIVE,
    NAME,
    TELLING,
    VIEWS,
    WH,
    MaskedQuestion,
    SharedFrame,
    coordinated_names,
    coordinated_phrases,
    coordinated_pieces,
    trim_frame,
    without_article,
)
from crp_integrations.language.words import AUXILIARIES, TextWord, content_stems, is_finite, words

_I = re.IGNORECASE
_COMPARE = re.compile(
    r"(?:(?:can|could|would|will) you |please )*(?:compare and contrast|compare|contrast)\s", _I
)
_DIFFERENCE = re.compile(
    r"\b(?:differences?|similarit(?:y|ies)|distinctions?|contrasts?|comparisons?|trade-?offs?)"
    r"(?P<of>(?: (?:in|of|on|regarding) (?!\w+ between)[^,;?]{1,120}?)?) between\s"
    r"|\bcomparisons? of\s",
    _I,
)
_HOW = re.compile(r"how (?:do|does|did|is|are|was|were)\s", _I)
_DIFFER = re.compile(
    r"\s(?:differ from|differs? |different from|different to|compare (?:to|with|against)|compare\b"
    r"|differ\b|different\b)",
    _I,
)
_VERSUS = re.compile(r"\s(?:vs\.?|versus)\s", _I)
_RESPECT = re.compile(
    r"(?:in terms of|in regard to|with (?:respect|regard) to|in relation to|when it comes to|as to"
    r"|regarding|concerning|based on|on|by|in their|in how they|in)\s",
    _I,
)
# "Approach to", "view on" and the like: the topic comes after the noun.
_VIEW = re.compile(
    rf"(?P<noun>{VIEWS})(?:s|es)?"
    r" (?P<link>to|towards?|on|of|about)\s",
    _I,
)
_JOINTS = frozenset("and with to against vs versus from".split())
MAX_ITEMS = 5  # longer lists are not split into needs
_COUNTS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_THAN = re.compile(r"\s(?:than|compared (?:to|with)|relative to)\s", _I)
_MORE = re.compile(
    r"\b(?:more|most|fewer|less|least|(?:larg|bigg|small|high|low|long|short|old|young|earli|lat"
    r"|great)e(?:r|st))\b",
    _I,
)
# A name, a number or a noun with its article; a text that ends in the last.
_THING = re.compile(rf"(?:the|an?) |{NAME}|\d", _I)
_ENDS_IN_THING = re.compile(r" (?:the|an?) [a-z]+\Z", _I)
_BOTH = re.compile(r"(?:,\s*)?\b(?:both|each|respectively|combined|in common)\b\s*", _I)
_JOINED = re.compile(r"\b(?:together|between|married|same|jointly|share[sd]?|common)\b", _I)


@dataclass(frozen=True, slots=True)
class QuestionComparison:
    """A comparison question, split into one sub-question (need) per compared item.

    Attributes:
        whole: need for the comparison itself; empty when the items' needs answer it.
    """

    items: tuple[str, ...]
    needs: tuple[str, ...]
    whole: str = ""


def find_comparison(task: MaskedQuestion, *, alone: bool) -> QuestionComparison | None:
    """The needs of a task that asks for a comparison; None if it does not."""
    shared = _asked_outright(task)
    if shared is None:
        return None
    after = shared.after
    if after.first in ("and", "but", "or"):
        return None
    respect = _RESPECT.match(after.mask)
    if respect:
        after = without_article(after.cut(respect.end()))
    view = _VIEW.match(after.mask)
    noun = ""
    if view:
        noun = after.text[: view.end("noun")]
        topic = after.cut(view.end())
        linked = after.cut(view.start("link"))
        after = topic if alone else MaskedQuestion(noun, noun).join(linked)
    before = trim_frame(shared.before)
    needs = tuple(before.join(item, after).text for item in shared.members)
    names = tuple(item.text for item in shared.members)
    if noun and not alone and len(names) < len(_COUNTS):
        whole = f"Comparison between the {_COUNTS[len(names)]} {_plural(noun)}"
    else:
        whole = f"{' vs '.join(names)} comparison"
    return QuestionComparison(names, needs, whole)


def _asked_outright(task: MaskedQuestion) -> SharedFrame | None:
    opening = _COMPARE.match(task.mask)
    if opening:
        return _members(task.cut(opening.end()))
    named = _DIFFERENCE.search(task.mask)
    if named:
        shared = _members(task.cut(named.end()))
        inner = task.cut(*named.span("of")) if named["of"] else None
        if shared and inner:
            shared = SharedFrame(
                shared.before, shared.members, inner.join(shared.after), shared.joint
            )
        return shared
    opening = _HOW.match(task.mask)
    if opening:
        return _differing(task.cut(opening.end()))
    if _VERSUS.search(task.mask):
        return _members(trim_frame(task))
    return None


def _members(part: MaskedQuestion) -> SharedFrame | None:
    return coordinated_names(part, _JOINTS) or coordinated_phrases(part, _JOINTS - {"to", "from"})


def _differing(part: MaskedQuestion) -> SharedFrame | None:
    """`A differ from B in F`, `A and B differ in F`."""
    match = _DIFFER.search(part.mask)
    if match is None:
        return None
    left, right = part.cut(0, match.start()), part.cut(match.end())
    if match.group().split()[-1] in ("from", "to", "with", "against"):
        joined = left.join(MaskedQuestion("and", "and"), right)
        return _members(joined)
    shared = _members(left)
    if shared is None:
        return None
    return SharedFrame(shared.before, shared.members, shared.after.join(right), shared.joint)


def find_alternatives(task: MaskedQuestion) -> QuestionComparison | None:
    """The needs of a task that asks which of several alternatives holds, one per alternative."""
    place = task.mask.rfind(" or ")
    if place < 0 or task.first not in WH | AUXILIARIES | {"between", "of", "in", "on", "out"}:
        return None
    left, right = task.cut(0, place), task.cut(place + 4)
    mark = re.search(r":\s", left.mask) or re.search(r",\s", left.mask)
    if mark is None or task.first in AUXILIARIES:
        shared = coordinated_names(task, frozenset({"or"}))
        if shared is None or not content_stems(f"{shared.before.text} {shared.after.text}"):
            return None
        return _for_each_member(shared, trim_frame(shared.before))
    head, tail = left.cut(0, mark.start()), coordinated_pieces(right)
    listed = [*coordinated_pieces(left.cut(mark.end())), *tail[:1]]
    if not tail or len(listed) > MAX_ITEMS:
        return None
    # In "if I am late, sick or abroad" and "the hand, the knee or the foot" the head ends the list.
    if mark.group()[0] == "," and not _MORE.search(head.mask):
        if not all(_THING.match(member.mask) for member in listed):
            return None
        if listed[0].first in ("the", "a", "an") and _ENDS_IN_THING.search(head.mask):
            return None
    members = [without_article(member) for member in listed]
    around = trim_frame(head)
    for piece in tail[1:]:
        around = around.join(trim_frame(piece))
    if not around.text or not all(content_stems(member.text) for member in members):
        return None
    needs = tuple(member.join(around).text for member in members)
    return QuestionComparison(tuple(member.text for member in members), needs)


def find_measured(task: MaskedQuestion) -> QuestionComparison | None:
    """The needs of `how many more … A than B`: one question for A and one for B."""
    than = _THAN.search(task.mask)
    more = _MORE.search(task.mask)
    if than is None or more is None or more.start() > than.start():
        return None
    left, right = task.cut(0, than.start()), task.cut(than.end())
    names = list(re.finditer(rf"(?:[Tt]he )?{NAME}", left.mask))
    right_name = re.match(rf"(?:[Tt]he )?{NAME}", right.mask)
    if names and right_name:
        place = names[-1]
        before, after = left.cut(0, place.start()), left.cut(place.end())
        first = left.cut(*place.span())
        second = right.cut(*right_name.span())
        rest = right.cut(right_name.end())
        shape = trim_frame(before).join(after)
        needs = (first.join(shape), second.join(shape, rest))
        items = (first, second)
    elif task.first in WH | AUXILIARIES:
        first = left.cut(more.end())
        second = right
        if not content_stems(first.text) or not content_stems(second.text):
            return None
        items = (first, second)
        needs = items
    else:
        return None
    return QuestionComparison(
        tuple(item.text for item in items), tuple(need.text for need in needs)
    )


def find_of_both(task: MaskedQuestion) -> QuestionComparison | None:
    """The needs of a task about several names at once: the same question for each name."""
    shared = coordinated_names(task, frozenset({"and"}))
    if shared is None:
        return None
    outside = f"{shared.before.mask} | {shared.after.mask}"
    if len(shared.members) > MAX_ITEMS:
        return None
    cue = _BOTH.search(outside)
    if (
        cue is None
        and len(shared.members) < 3
        and not (task.first in AUXILIARIES and not trim_frame(shared.before).text)
    ):
        return None
    if cue is None and _JOINED.search(outside):
        return None
    return _for_each_member(shared, trim_frame(_bare(shared.before)))


def _for_each_member(shared: SharedFrame, before: MaskedQuestion) -> QuestionComparison:
    """The same question for each of several names."""
    after = _bare(shared.after)
    needs = tuple(before.join(item, after).text for item in shared.members)
    return QuestionComparison(tuple(item.text for item in shared.members), needs)


def _bare(part: MaskedQuestion) -> MaskedQuestion:
    match = _BOTH.search(part.mask)
    if match is None:
        return part
    return part.cut(0, match.start()).join(part.cut(match.end()))


def _plural(noun: str) -> str:
    return noun + ("es" if noun.endswith(("ch", "s")) else "s")


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
_ENOUGH = 3  # content words that make a condition searchable
# Only nouns and adjectives; a participle after its noun would make it a clause.
_PROPERTY = re.compile(
    r"(?!.*\b(?:of|for|in|by|on|to|from|with|at|or|as)\b)(?!.* \w+ed\Z)"
    r"[a-z][\w-]*(?: [a-z][\w-]*){0,2}"
)
_ONE_THING = frozenset(("research and development", "terms and conditions", "supply and demand"))


def listed_properties(task: MaskedQuestion) -> tuple[str, ...] | None:
    """`the A, B and C of X` as `A of X`, `B of X`, `C of X`; None for other questions."""
    match = _PROPERTIES.search(task.mask)
    if match is None or task.first not in WH | TELLING | AUXILIARIES:
        return None
    if content_stems(trim_frame(task.cut(0, match.start())).text) and task.first not in TELLING:
        return None
    members = [*coordinated_pieces(task.cut(*match.span("first"))), task.cut(*match.span("last"))]
    members = [without_article(member) for member in members]
    if any(not _PROPERTY.fullmatch(member.mask) for member in members):
        return None
    if f"{members[-2].mask.split()[-1]} and {members[-1].mask.split()[0]}" in _ONE_THING:
        return None
    if len(members) == 2 and ADJECTIVE.fullmatch(members[0].mask) and " " in members[1].mask:
        members[0] = members[0].join(members[1].cut(members[1].mask.rfind(" ")))
    rest = task.cut(match.start("link"))
    return tuple(member.join(rest).text for member in members)


def listed_conditions(task: MaskedQuestion) -> tuple[str, ...] | None:
    """`Which N did A and was B` as `Which N did A`, `N was B`; None for other questions."""
    if task.first not in WH - {"why", "how", "when", "where"}:
        return None
    tokens = words(task.mask)
    subject = _subject(task, tokens)
    if subject is None:
        return None
    starts = [word.start for word in tokens]
    cuts: list[tuple[int, int]] = []
    for match in _FURTHER.finditer(task.mask):
        place = bisect_left(starts, match.end())
        if place == len(tokens) or match.start() <= len(subject.text):
            continue
        clause = task.cut(cuts[-1][1] if cuts else 0, match.start())
        holds = is_finite(tokens, place) or _HOLDS.match(task.mask, tokens[place].start)
        if holds and _tells(clause, subject):
            cuts.append((match.start(), tokens[place].start))
    if not cuts or not _tells(task.cut(cuts[-1][1]), subject):
        return None
    needs = [task.cut(0, cuts[0][0]).text]
    ends = [start for start, _ in cuts[1:]]
    for (_, start), end in zip(cuts, [*ends, len(task.text)], strict=True):
        needs.append(subject.join(task.cut(start, end)).text)
    return tuple(needs)


def _tells(text: MaskedQuestion, subject: MaskedQuestion) -> bool:
    """Whether a condition is specific enough to search: a name, a number or three words."""
    if _NAMED.search(text.mask):
        return True
    return len(set(content_stems(text.text)) - set(content_stems(subject.text))) >= _ENOUGH


def _subject(task: MaskedQuestion, tokens: Sequence[TextWord]) -> MaskedQuestion | None:
    """The thing that is asked for: the words between the question word and the first verb."""
    for place in range(1, min(len(tokens), 9)):
        if is_finite(tokens, place) or tokens[place].lower in ("who", "that", "which", "whose"):
            return trim_frame(task.cut(0, tokens[place].start))
    return None

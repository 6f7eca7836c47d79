"""The tasks of a question: its sentences, and what is asked for behind `and`."""

from __future__ import annotations

import re
from itertools import islice, pairwise

from crp_integrations.language.lexicon import AUXILIARIES
from crp_integrations.language.questions.asked import NAME, SIGN, TELLING, WH, Asked
from crp_integrations.language.questions.coordination import frame
from crp_integrations.language.words import content_stems

_END = re.compile(rf"[?!]+[\"')]*\s+|;\s+|(?<=[\w{SIGN}]{{2}})\.\s+(?=[A-Z{SIGN}\"])")
_JOINT = re.compile(
    r",? (?:and|but|or|as well as|plus)(?: also| then| please)*"
    rf" (?P<word>{'|'.join(sorted(WH | TELLING))})(?= )"
    rf"|, (?:then |also )*(?P<bare>what|how|why|{'|'.join(sorted(TELLING))})(?= )",
    re.IGNORECASE,
)
_ALWAYS = frozenset("what how why".split())
_SUBJECT = re.compile(r"\b(?:it|they|them|he|she|him)\b", re.IGNORECASE)
_OWNER = re.compile(r"\b(?:its|their|his|her)\b", re.IGNORECASE)
_NAME = re.compile(NAME)
_FEWEST = 2
_LONGEST = 20
# Joints looked at in one sentence; what lies behind them stays with the last task.
_MOST_JOINTS = 16


def tasks(question: Asked) -> list[Asked]:
    """What a question asks for, one after the other; a statement stays with what follows it.

    A pronoun of a later task is replaced by the one name of the task before it.
    """
    found: list[Asked] = []
    waiting = question.cut(0, 0)
    start = 0
    ends = [*_END.finditer(question.mask), None]
    for match in ends:
        end = len(question.mask) if match is None else match.end()
        sentence = question.cut(start, end)
        start = end
        if not sentence.text:
            continue
        if _asks(sentence) or (match is not None and "?" in match.group()):
            pieces = _coordinated(sentence)
            found += [waiting.join(pieces[0]), *pieces[1:]]
            waiting = question.cut(0, 0)
        else:
            waiting = waiting.join(sentence)
    if waiting.text:
        found = [*found[:-1], found[-1].join(waiting)] if found else [waiting]
    told = found[:1]
    for before, task in pairwise(found):
        told.append(_resolved(task, before))
    return told


def _asks(sentence: Asked) -> bool:
    return sentence.first in WH | AUXILIARIES | TELLING or sentence.text.endswith("?")


def _coordinated(sentence: Asked) -> list[Asked]:
    pieces: list[Asked] = []
    start = 0
    for match in islice(_JOINT.finditer(sentence.mask), _MOST_JOINTS):
        word = (match["word"] or match["bare"]).casefold()
        place = match.start("word") if match["word"] else match.start("bare")
        before, after = sentence.cut(start, match.start()), sentence.cut(place)
        if _opens(word, before, after):
            pieces.append(before)
            start = place
    return [*pieces, sentence.cut(start)]


def _opens(word: str, before: Asked, after: Asked) -> bool:
    """Whether a word behind a joint begins a task of its own."""
    if len(content_stems(before.text)) < _FEWEST - (before.first in WH):
        return False
    following = after.mask.split(" ", 2)[1].casefold() if " " in after.mask else ""
    if word in TELLING:
        return before.first in TELLING | WH and following not in AUXILIARIES | {"of", "by", "and"}
    if word in _ALWAYS:
        return before.first in WH | TELLING | AUXILIARIES
    relative = re.search(rf"\s{word}\b", before.mask, re.IGNORECASE)
    return relative is None and following in AUXILIARIES and before.first in WH | TELLING


def _resolved(task: Asked, before: Asked) -> Asked:
    """A task whose pronoun points back: with the name it means, or behind the words before it."""
    pronoun = _SUBJECT.search(task.mask) or _OWNER.search(task.mask)
    if pronoun is None or _NAME.search(task.mask):
        return task
    meant = frame(before)
    if not _NAME.fullmatch(meant.mask):
        return meant.join(task) if meant.mask.count(" ") < _LONGEST else task
    owner = "'s" if _OWNER.fullmatch(pronoun.group()) else ""
    named = Asked(meant.text + owner, meant.mask + owner)
    return task.cut(0, pronoun.start()).join(named, task.cut(pronoun.end()))

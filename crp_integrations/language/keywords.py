"""What some texts are about, against what the other texts are about: keywords and their labels.

A candidate is a word, or two or three words that stand side by side, that reads as a noun: no
stop word, no verb of the closed lists, no adverb, no number alone. It weighs by how often and in
how many of the texts it stands, and by how few of the other groups hold it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from crp_integrations.language.lexicon import (
    AUXILIARIES,
    DETERMINERS,
    HONORIFICS,
    IRREGULAR,
    PAST_OF,
    PREPOSITIONS,
    PRONOUNS,
    VERBS,
)
from crp_integrations.language.words import STOP_WORDS, TextWord, stem, words

Key = tuple[str, ...]

LONGEST = 3
# Longer words are names of things in programs, or several words that lost their blanks.
LONGEST_WORD = 32
# What words side by side weigh more than one word alone; three are a phrase as a name at least.
_PHRASE_BONUS, _NAME_BONUS = 1.6, 1.9
_DIGITS = 9
_NO_NOUNS = (
    STOP_WORDS | AUXILIARIES | DETERMINERS | PREPOSITIONS | PRONOUNS | HONORIFICS | IRREGULAR
) | frozenset(PAST_OF)
# Verbs of the list that are nouns as often; the words of a label may well be among them.
_ALSO_NOUNS = frozenset(
    """act address benefit cause change charge claim contract control cost cover deal decline
    decrease delay demand design drive export fall feature fight file fire focus force form
    fund grant gain hire host impact import increase issue launch limit link list market
    measure move name need note offer order pass pay permit place plan play process produce promise
    purchase range rank record release rent report result review rise risk run sale score
    seal search share shift show sign split stage stand start state stop store study supply
    support surge survey target tax test trade train transfer travel treat trigger turn use
    value view visit vote win work yield""".split()
)
_NOT_PAST = frozenset("need indeed speed seed feed breed hundred reed weed steed shred".split())
_VAGUE = frozenset(
    """able available certain common different early entire especially example first former
    general good great high important large last late later little long low main major many
    much new next note number old one only other part particular people possible recent second
    several similar single small third thing time two three four five six seven eight nine ten
    use used using various way well year years day days month months often usually always never
    even still yet however therefore thus also like kind sort type lot bit set shown see e.g i.e
    etc""".split()
)


class Phrases:
    """The candidates of one group of texts.

    Attributes:
        weights: weight of each candidate by its stems, before the other groups are looked at.
        early: how many words stand before each candidate in the mean.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        count: Counter[Key] = Counter()
        spread: Counter[Key] = Counter()
        places: Counter[Key] = Counter()
        forms: defaultdict[Key, Counter[str]] = defaultdict(Counter)
        for text in texts:
            first: dict[Key, int] = {}
            for key, form, place in _candidates(text):
                count[key] += 1
                forms[key][form] += 1
                first.setdefault(key, place)
            spread.update(first.keys())
            places.update(first)
        self._forms = forms
        self.early = {key: places[key] / spread[key] for key in count}
        self.weights = {
            # Once in one text is no topic of the group; what several texts share is.
            key: (1.0 + math.log(count[key])) * spread[key] * self._bonus(key)
            for key in count
        }

    def _bonus(self, key: Key) -> float:
        if len(key) == 1:
            return 1.0
        is_name = all(word[:1].isupper() for word in self.written(key).split(" "))
        return _NAME_BONUS if is_name and len(key) == LONGEST else _PHRASE_BONUS

    def written(self, key: Key) -> str:
        """The commonest way in which the texts write a candidate; in lower case if it is a tie."""
        forms = self._forms[key]
        return min(forms, key=lambda form: (-forms[form], not form.islower(), form))


def keywords(group: Phrases, others: Sequence[Phrases], count: int) -> list[str]:
    """What says most about a group of texts and least about the others, best first.

    Deterministic: equal texts, in any order within their groups, give equal keywords.
    """
    held = Counter(key for other in others for key in other.weights if key in group.weights)
    total = len(others)

    def score(key: Key) -> float:
        rarity = math.log((1 + total) / (1 + held[key])) + 1.0
        return round(group.weights[key] * rarity, _DIGITS)

    # A topic tends to be named early, and in few words.
    ranked = sorted(group.weights, key=lambda key: (-score(key), group.early[key], len(key), key))
    chosen: list[Key] = []
    for key in ranked:
        if len(chosen) == count:
            break
        # A word of a phrase that is there already says nothing more.
        if not any(set(key) & set(other) for other in chosen):
            chosen.append(key)
    return [group.written(key) for key in chosen]


def _candidates(text: str) -> list[tuple[Key, str, int]]:
    """Every word and run of words that may be a keyword: stems, form, words before it."""
    found = words(text)
    noun = [_reads_as_noun(word) for word in found]
    candidates = []
    for first in range(len(found)):
        key: Key = ()
        for last in range(first, min(first + LONGEST, len(found))):
            if not noun[last] or (last > first and not _side_by_side(text, found, last)):
                break
            key = (*key, stem(found[last].lower))
            if len(set(key)) == len(key):
                form = _printed(text[found[first].start : found[last].end])
                candidates.append((key, form, first))
    return candidates


def _printed(form: str) -> str:
    """The form without a possessive's end and characters that nobody sees, as soft hyphens."""
    seen = form if form.isprintable() else "".join(filter(str.isprintable, form))
    return seen[:-2] if seen.endswith(("'s", "\u2019s")) else seen


def _side_by_side(text: str, found: Sequence[TextWord], place: int) -> bool:
    return text[found[place - 1].end : found[place].start] == " "


def _reads_as_noun(word: TextWord) -> bool:
    lower = word.lower
    if len(lower) > LONGEST_WORD or lower in _NO_NOUNS or lower in _VAGUE:
        return False
    if not any(letter.isalpha() for letter in lower):
        return False
    if word.text.isupper() and len(lower) > 1:
        return True
    if len(lower) < 3 and lower.isascii():
        return False
    if not word.text[:1].isupper() and lower not in _NOT_PAST and lower.endswith(("ly", "ed")):
        return False
    base = lower[:-1] if lower.endswith("s") else lower
    return lower in _ALSO_NOUNS or base in _ALSO_NOUNS or not {lower, base} & VERBS

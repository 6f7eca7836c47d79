"""What communities are called: the name they had, or the dominant topic of their main facts.

A name stays as long as its community is mostly the same, so that a filter or a header that names
it keeps its meaning. Names are words, so they carry a little of the facts that they come from: the
facts with the fewest access labels are asked first.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crp_integrations.language.keywords import Phrases, keywords

# What a community is called whose facts hold no word that could name it.
UNNAMED = "unnamed"
# A header token has 64 characters at most, and a number may follow.
LONGEST_LABEL = 56
# Largest communities whose main facts show how common a word is.
_BACKGROUND = 200


@dataclass(frozen=True, slots=True)
class CommunityMember:
    """A fact within a community.

    Attributes:
        importance: [0, 1].
        strength: sum of the weights of its edges within the community.
        labels: access labels.
    """

    fact_id: str
    importance: float
    strength: float
    labels: tuple[str, ...]


def main_facts(members: Iterable[CommunityMember], count: int) -> list[str]:
    """Ids of the most important facts, of those with the fewest access labels.

    Spec: CRP-SPEC-009 §5.4
    """
    listed = list(members)
    sets = Counter(member.labels for member in listed)
    open_set = min(sets, key=lambda labels: (len(labels), -sets[labels], labels))
    ranked = sorted(
        (member for member in listed if member.labels == open_set),
        key=lambda member: (-member.importance, -member.strength, member.fact_id),
    )
    return [member.fact_id for member in ranked[:count]]


def matching_names(groups: Sequence[Sequence[int]], before: Sequence[str | None]) -> dict[int, str]:
    """The names that groups keep: more than half of a group had it, and of those who had it more
    than half are in the group. No two groups can keep the same.
    """
    counted = [Counter(map(before.__getitem__, group)) for group in groups]
    had: Counter[str | None] = Counter()
    for names in counted:
        had.update(names)
    kept = {}
    for number, names in enumerate(counted):
        for name, count in names.most_common(1):
            if name is not None and 2 * count > len(groups[number]) and 2 * count > had[name]:
                kept[number] = name
    return kept


def compared(sizes: Sequence[int], wanted: Iterable[int]) -> list[int]:
    """The groups whose main facts are read to name the wanted ones: these, and the largest."""
    largest = sorted(range(len(sizes)), key=lambda number: (-sizes[number], number))
    return sorted({*wanted, *largest[:_BACKGROUND]})


def name_communities(
    texts: Mapping[int, Sequence[str]], wanted: Sequence[int], taken: Iterable[str]
) -> dict[int, str]:
    """Name groups by the dominant topic of their main facts.

    Spec: CRP-SPEC-009 §5.4
    """
    phrases = {number: Phrases(listed) for number, listed in texts.items()}
    others = list(phrases.values())
    used = {token(name) for name in taken}
    # The last number of each topic: many groups may have the same, and none is tried twice.
    last: dict[str, int] = {}
    found = {}
    for number in wanted:
        topic = topic_of(phrases[number], others)
        again = last.get(topic, 1)
        name = topic if again == 1 else f"{topic} ({again})"
        while token(name) in used:
            again += 1
            name = f"{topic} ({again})"
        last[topic] = again
        used.add(token(name))
        found[number] = name
    return found


def topic_of(group: Phrases, others: Sequence[Phrases]) -> str:
    """The dominant topic of a group: its best phrase, or its two best words."""
    best = keywords(group, others, 2)
    # One word alone is seldom a topic; a second one says which of its meanings is meant.
    pair = " ".join(best)
    if len(best) == 2 and pair.count(" ") == 1 and len(pair) <= LONGEST_LABEL:
        return pair
    return best[0][:LONGEST_LABEL].rstrip() if best else UNNAMED


def token(name: str) -> str:
    """What is left of a name where only plain letters and digits may stand.

    >>> token("EU AI Act (2)"), token("eu-ai  act: 2")
    ('eu-ai-act-2', 'eu-ai-act-2')
    """
    plain = unicodedata.normalize("NFKD", name).casefold()
    ascii_only = plain.encode("ascii", "ignore").decode()
    return "-".join(re.findall(r"[a-z0-9]+", ascii_only)) or plain

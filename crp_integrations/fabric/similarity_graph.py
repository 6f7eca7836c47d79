"""The similarity graph of a namespace, its communities and their names, and its file."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from crp_integrations.fabric.nearest_neighbours import (
    MILLION,
    NO_FACT,
    Neighbours,
    Places,
    search_neighbours,
)
from crp_integrations.fabric.ports import Cache, LogMark, Transaction
from crp_integrations.fabric.settings import CommunitySettings
from crp_integrations.language.lexical_overlap import Key, Phrases, groups_by_key, keywords
from crp_integrations.ports import Embedder
from crp_integrations.records import Record
from crp_integrations.vectors import FloatRows


class Community(Record):
    """A group of similar facts, as one subject may see it.

    Spec: CRP-SPEC-009 §5

    Attributes:
        label: the topic in words of the facts, unique in the namespace.
        size: number of its facts that the subject may read.
        facts: ids of the most important facts, most important first.
    """

    SCHEMA = "community/1"

    label: str
    size: int = Field(ge=1)
    facts: tuple[str, ...] = ()


class ClusterReport(Record):
    """The result of one reclustering; counts only.

    Spec: CRP-SPEC-009 §5.5

    Attributes:
        facts: number of retrievable facts.
        searched: number of facts whose neighbours were searched; the others' were known.
        edges: number of pairs of facts that are similar enough.
        communities: number of communities afterwards.
        dissolved: number of groups of two or more facts that were too small for a community.
        unclustered: number of facts in no community.
        relabelled: number of facts whose label changed.
        modularity: modularity of the partition before small groups were dissolved, at most 1.
        warm: whether the partition started from the previous one.
        engine: library and version; empty if there was nothing to do.
    """

    SCHEMA = "cluster-report/1"

    facts: int = 0
    searched: int = 0
    edges: int = 0
    communities: int = 0
    dissolved: int = 0
    unclustered: int = 0
    relabelled: int = 0
    modularity: float = 0.0
    warm: bool = False
    engine: str = ""
    state_hash: str = ""


@dataclass(frozen=True, slots=True)
class FactGraph:
    """The similarity graph of the facts that a subject may read.

    Attributes:
        ids: ids of the facts, ascending.
        communities: community label of each fact, None for a fact in no community.
        sources: source id of each fact.
        left, right: places of the ends of each undirected edge, left below right, shape (edges,).
        weights: cosine of each edge, shape (edges,), in (0, 1].
    """

    ids: tuple[str, ...]
    communities: tuple[str | None, ...]
    sources: tuple[str, ...]
    left: Places
    right: Places
    weights: npt.NDArray[np.float64]

    def among(self, keep: npt.NDArray[np.bool_]) -> FactGraph:
        """Return the subgraph of the facts where `keep`, shape (facts,), is true."""
        place = np.cumsum(keep) - 1
        inside = keep[self.left] & keep[self.right]
        numbers = np.flatnonzero(keep).tolist()
        return FactGraph(
            ids=tuple(self.ids[number] for number in numbers),
            communities=tuple(self.communities[number] for number in numbers),
            sources=tuple(self.sources[number] for number in numbers),
            left=place[self.left[inside]],
            right=place[self.right[inside]],
            weights=self.weights[inside],
        )


def modularity(
    membership: Places,
    left: Places,
    right: Places,
    weights: npt.NDArray[np.float64],
    resolution: float = 1.0,
) -> float:
    """Share of edge weight within communities, minus the share expected by chance."""
    total = float(weights.sum())
    if total == 0.0:
        return 0.0
    inside = float(weights[membership[left] == membership[right]].sum())
    strength = np.bincount(membership[left], weights, membership.max() + 1)
    strength += np.bincount(membership[right], weights, membership.max() + 1)
    return inside / total - resolution * float(np.square(strength / (2.0 * total)).sum())


def groups_of(membership: Places) -> list[list[int]]:
    """Return the ascending places of each community's members, ordered by first member."""
    order = np.argsort(membership, kind="stable")
    cuts = np.flatnonzero(np.diff(membership[order])) + 1
    return sorted(part.tolist() for part in np.split(order, cuts)) if len(order) else []


FILE = "similarity"
# Key in an embedder's card for the minimum cosine of two neighbouring passages, and the default for
# an embedder without it (§5.2).
CARD_THRESHOLD = "neighbour"
SIMILARITY = 0.60
# Digits of a content hash that are enough to see that a fact has changed.
_HASH_DIGITS = 16
_ARRAY = np.dtype("<i4")


@dataclass(frozen=True, slots=True)
class Similarity:
    """The neighbours of every retrievable fact at some moment.

    Attributes:
        ids: fact ids, ascending.
        hashes: last digits of each fact's content hash.
        embedder: identity of the embedder of the vectors.
        changed: number of facts added, changed or removed since the last full computation.
    """

    ids: tuple[str, ...]
    hashes: tuple[str, ...]
    neighbours: Neighbours
    embedder: str
    changed: int


@dataclass(frozen=True, slots=True)
class CurrentSimilarity:
    """The current neighbours.

    Attributes:
        searched: number of facts whose neighbours were searched.
        changed: places of the facts whose edges changed, and of facts near new ones; None if all
            facts were searched.
    """

    similarity: Similarity
    searched: int
    changed: Places | None


def similarity_threshold(settings: CommunitySettings, embedder: Embedder) -> int:
    """Minimum cosine of an edge, in millionths: the setting's, else the card's, else .60.

    Spec: CRP-SPEC-009 §5.2
    """
    wanted = settings.similarity
    if wanted is None:
        wanted = embedder.thresholds.get(CARD_THRESHOLD, SIMILARITY)
    return round(wanted * MILLION)


def update_similarity(
    ids: Sequence[str],
    content_hashes: Sequence[str],
    rows: FloatRows,
    *,
    embedder: str,
    k: int,
    least: int,
    known: Similarity | None = None,
    rebuild_share: float = 0.20,
    exact_up_to: int | None = None,
) -> CurrentSimilarity:
    """Compute the neighbours of facts; search only those that `known` does not contain.

    With more than `exact_up_to` facts, a few neighbours may be missed (`search_neighbours`).

    Spec: CRP-SPEC-009 §5.2
    """
    hashes = tuple(content_hash[-_HASH_DIGITS:] for content_hash in content_hashes)
    every = np.arange(len(ids))
    if known is not None and _fits(known, embedder, k, least):
        to = _new_places(known, ids, hashes)
        new = np.setdiff1d(every, to[to != NO_FACT], assume_unique=True)
        changed = known.changed + len(new) + int(np.count_nonzero(to == NO_FACT))
        if changed <= rebuild_share * len(ids):
            moved, robbed = known.neighbours.moved(to, len(ids))
            missing = np.union1d(new, robbed)
            neighbours = search_neighbours(moved, rows, missing, new, exact_up_to)
            return CurrentSimilarity(
                Similarity(tuple(ids), hashes, neighbours, embedder, changed),
                len(missing),
                neighbours.changed(known.neighbours, to),
            )
    nothing = Neighbours.empty(len(ids), k, least)
    neighbours = search_neighbours(nothing, rows, every, every, exact_up_to)
    return CurrentSimilarity(
        Similarity(tuple(ids), hashes, neighbours, embedder, 0), len(ids), None
    )


def _fits(known: Similarity, embedder: str, k: int, least: int) -> bool:
    lists = known.neighbours
    return (known.embedder, lists.places.shape[1], lists.threshold) == (embedder, k, least)


def _new_places(known: Similarity, ids: Sequence[str], hashes: Sequence[str]) -> Places:
    """The new place of each known fact, `NO_FACT` for one that was removed or changed."""
    place = {id_: number for number, id_ in enumerate(ids)}
    to = [
        NO_FACT if (now := place.get(id_)) is None or hashes[now] != content_hash else now
        for id_, content_hash in zip(known.ids, known.hashes, strict=True)
    ]
    return np.array(to, dtype=np.int64)


class SimilarityFile(Record):
    """The description of a file of neighbours.

    Attributes:
        facts, neighbours: shape of its lists.
        threshold: minimum score of an entry, in millionths.
        sequence, token: mark of the state from which the lists were computed.
    """

    SCHEMA = "similarity-file/1"

    facts: int = Field(ge=0)
    neighbours: int = Field(ge=1)
    threshold: int
    changes: int = Field(ge=0)
    embedder: str
    sequence: int = Field(ge=0)
    token: str


def load_similarity(cache: Cache) -> Similarity | None:
    """Load the saved neighbours; None if there are none or they are damaged."""
    cached = cache.load(FILE)
    if cached is None:
        return None
    try:
        about = SimilarityFile.model_validate(cached.about)
    except ValidationError:
        return None
    facts, k = about.facts, about.neighbours
    try:
        data = np.fromfile(cached.path, dtype=np.uint8)
    except OSError:
        # Another process has replaced or removed the file.
        return None
    size = facts * k * _ARRAY.itemsize
    if len(data) < 2 * size:
        return None
    places = data[:size].view(_ARRAY).reshape(facts, k).astype(np.int32)
    scores = data[size : 2 * size].view(_ARRAY).reshape(facts, k).astype(np.int32)
    names = _names(data[2 * size :].tobytes(), facts)
    if names is None or np.any(places < NO_FACT) or np.any(places >= facts):
        return None
    lists = Neighbours(places, scores, about.threshold)
    return Similarity(names[0], names[1], lists, about.embedder, about.changes)


def save_similarity(cache: Cache, similarity: Similarity, mark: LogMark) -> bool:
    """Save the neighbours, unless one of their facts has been removed since the mark."""
    lists = similarity.neighbours

    def write(path: str) -> None:
        parts = (
            lists.places.astype(_ARRAY).tobytes(),
            lists.scores.astype(_ARRAY).tobytes(),
            json.dumps([similarity.ids, similarity.hashes], separators=(",", ":")).encode(),
        )
        np.frombuffer(b"".join(parts), dtype=np.uint8).tofile(path)

    def still_valid(transaction: Transaction) -> bool:
        changed = transaction.facts.changes(mark)
        # Changed facts are recognised by their hashes; of removed facts nothing may be saved.
        return changed is not None and len(transaction.facts.get(changed)) == len(changed)

    return cache.save(
        FILE,
        SimilarityFile(
            facts=len(similarity.ids),
            neighbours=lists.places.shape[1],
            threshold=lists.threshold,
            changes=similarity.changed,
            embedder=similarity.embedder,
            sequence=mark.sequence,
            token=mark.token,
        ).model_dump(mode="json"),
        write,
        still_valid,
    )


def _names(data: bytes, facts: int) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    try:
        read = json.loads(data)
    except ValueError:
        return None
    if not (isinstance(read, list) and len(read) == 2):
        return None
    ids, hashes = read
    if not all(isinstance(part, list) and len(part) == facts for part in (ids, hashes)):
        return None
    return tuple(map(str, ids)), tuple(map(str, hashes))


# Label of a community whose facts contain no word that could name it.
UNNAMED = "unnamed"
# A header token has 64 characters at most, and a number may be appended.
LONGEST_LABEL = 56
# Number of the largest communities whose main facts show how common a word is.
_BACKGROUND = 200


@dataclass(frozen=True, slots=True)
class CommunityMember:
    """A fact within a community.

    Attributes:
        importance: importance weight in [0, 1].
        strength: sum of the weights of its edges within the community.
        labels: access labels of the fact.
    """

    fact_id: str
    importance: float
    strength: float
    labels: tuple[str, ...]


def main_facts(members: Iterable[CommunityMember], count: int) -> list[str]:
    """Return ids of the most important facts among those with the fewest access labels.

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
    """Return the names that groups keep: more than half of a group had the name, and more than
    half of the facts with that name are in the group, so no two groups keep the same name.
    """
    counted = [Counter(map(before.__getitem__, group)) for group in groups]
    had: Counter[str | None] = Counter()
    for names in counted:
        had.update(names)
    matches = {}
    for number, names in enumerate(counted):
        for name, count in names.most_common(1):
            if name is not None and 2 * count > len(groups[number]) and 2 * count > had[name]:
                matches[number] = name
    return matches


def compared(sizes: Sequence[int], wanted: Iterable[int]) -> list[int]:
    """Return the groups to compare for naming: the wanted ones and the largest ones."""
    largest = sorted(range(len(sizes)), key=lambda number: (-sizes[number], number))
    return sorted({*wanted, *largest[:_BACKGROUND]})


def name_communities(
    texts: Mapping[int, Sequence[str]], wanted: Sequence[int], taken: Iterable[str]
) -> dict[int, str]:
    """Name groups by the dominant topic of their main facts.

    Spec: CRP-SPEC-009 §5.4
    """
    phrases = {number: Phrases(listed) for number, listed in texts.items()}
    groups_with = groups_by_key(phrases.values())
    used = {token(name) for name in taken}
    # The last number used for each topic, so that no number is tried twice when many groups have
    # the same topic.
    last: dict[str, int] = {}
    names = {}
    for number in wanted:
        topic = topic_of(phrases[number], groups_with, len(phrases))
        again = last.get(topic, 1)
        name = topic if again == 1 else f"{topic} ({again})"
        while token(name) in used:
            again += 1
            name = f"{topic} ({again})"
        last[topic] = again
        used.add(token(name))
        names[number] = name
    return names


def topic_of(group: Phrases, groups_with: Mapping[Key, int], total: int) -> str:
    """The dominant topic of a group: its best phrase, or its two best words."""
    best = keywords(group, groups_with, total, 2)
    # A single word is often ambiguous; a second word makes the topic clear.
    pair = " ".join(best)
    if len(best) == 2 and pair.count(" ") == 1 and len(pair) <= LONGEST_LABEL:
        return pair
    return best[0][:LONGEST_LABEL].rstrip() if best else UNNAMED


def token(name: str) -> str:
    """Reduce a name to lower-case ASCII letters and digits, joined by hyphens.

    >>> token("EU AI Act (2)"), token("eu-ai  act: 2")
    ('eu-ai-act-2', 'eu-ai-act-2')
    """
    plain = unicodedata.normalize("NFKD", name).casefold()
    ascii_only = plain.encode("ascii", "ignore").decode()
    return "-".join(re.findall(r"[a-z0-9]+", ascii_only)) or plain

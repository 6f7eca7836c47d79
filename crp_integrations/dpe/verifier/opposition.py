"""Whether two statements in the same words oppose each other: by one value, or by a negation."""

from __future__ import annotations

import re
from collections import defaultdict
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from crp_integrations.dpe.verifier.slots import Pair, pair
from crp_integrations.dpe.verifier.values import Value, ValueReading
from crp_integrations.language.memo import forgotten_with
from crp_integrations.language.negation import negations, polarity_differs, sense_of
from crp_integrations.language.quantities import Quantity, same_kind

OPPOSED: Final = "opposed@1"
# Surely enough the same slot in statements that share most of their words anyway.
SLOT: Final = 0.4
_HEDGE = re.compile(r"(?i)\b(?:about|around|approximately|roughly|nearly|almost|some)\b|~|≈")
# Characters before a figure in which a hedge bears on it.
HEDGE_REACH: Final = 16
# The judgements that the document names (§8.2).
_STANCES: Final = frozenset({"positive", "negative"})

Sense = tuple[str, bool]


class OppositionKind(StrEnum):
    """How two statements contradict each other."""

    NUMERIC = "numeric"
    LOGICAL = "logical"
    TEMPORAL = "temporal"
    STANCE = "stance"
    MINOR = "minor"


@lru_cache(maxsize=4096)
def senses(reading: ValueReading) -> frozenset[Sense]:
    """Its content words without cues and adverbs: opposites are one word, told apart by a sign."""
    cues = [(cue.start, cue.end) for cue in negations(reading.text)]
    written = (
        reading.text[word.start : word.end].lower()
        for word in reading.words
        if not any(start <= word.start < end for start, end in cues)
    )
    return frozenset(sense_of(word) for word in written if not word.endswith("ly"))


forgotten_with(senses.cache_clear)


class Opposed(NamedTuple):
    """Two statements side by side.

    Attributes:
        kind: how they contradict each other; None where nothing is found.
        apart: they say other things of each other, so nothing may be concluded.
    """

    kind: OppositionKind | None
    apart: bool = False


APART: Final = Opposed(None, apart=True)
AGREED: Final = Opposed(None)


def compare(
    current: ValueReading, prior: ValueReading, minor: float, *, alike: bool = True
) -> Opposed:
    """Lay two statements beside each other.

    One contradicts the other where they have nearly the same words, and differ in exactly one
    figure or date in the same place, or in what they deny.

    Spec: CRP-SPEC-005 §5.4, §8.2 (decision D21)

    Args:
        minor: largest relative difference of figures that is minor beside a hedge.
        alike: whether they have so many words in common that they can contradict each other.
    """
    there, back = pair(current, prior), pair(prior, current)
    own, other = senses(current), senses(prior)
    turned = [word for word, sign in own - other if (word, not sign) in other]
    if len(turned) > 1 or (there.missing and back.missing):
        # "Exports grew", "imports fell": two opposite words mean another subject.
        return APART
    if not alike or there.missing or back.missing:
        return APART if there.rivals else AGREED
    denied = polarity_differs(prior.text, current.text)
    if not there.rivals:
        stance = turned and _STANCES & _words(current) and _STANCES & _words(prior)
        return (
            Opposed(OppositionKind.STANCE if stance else OppositionKind.LOGICAL)
            if denied
            else AGREED
        )
    rival = there.rivals[0]
    if len(there.rivals) > 1 or len(back.rivals) > 1 or rival.strength < SLOT:
        return APART
    if rival.claim.family == rival.source.family == "date":
        return APART if denied else Opposed(OppositionKind.TEMPORAL)
    now, before = rival.claim.of, rival.source.of
    if (
        not isinstance(now, Quantity)
        or not isinstance(before, Quantity)
        or not same_kind(now, before)
        or "ordinal" in (now.kind, before.kind)
    ):
        return APART
    slight = not denied and _is_slight(now, before, minor) and _is_hedged(rival, current, prior)
    return Opposed(OppositionKind.MINOR if slight else OppositionKind.NUMERIC)


def _words(reading: ValueReading) -> frozenset[str]:
    return frozenset(reading.text[word.start : word.end].lower() for word in reading.words)


def _is_slight(one: Quantity, other: Quantity, minor: float) -> bool:
    largest = max(abs(one.value), abs(other.value))
    if one.unit != other.unit or not largest:
        return False
    return abs(one.value - other.value) / largest <= minor


def _is_hedged(rival: Pair, current: ValueReading, prior: ValueReading) -> bool:
    def near(value: Value, text: str) -> bool:
        return bool(_HEDGE.search(text[max(0, value.start - HEDGE_REACH) : value.end]))

    return near(rival.claim, current.text) or near(rival.source, prior.text)


class StatementIndex:
    """An index over statements, by the senses of their words; linear in their length."""

    def __init__(self, most: int) -> None:
        self._at: defaultdict[str, list[int]] = defaultdict(list)
        self._sizes = np.zeros(most, dtype=np.intp)
        self._count = 0

    def add(self, reading: ValueReading) -> None:
        """Put a statement behind those that are there."""
        keys = {word for word, _ in senses(reading)}
        for key in keys:
            self._at[key].append(self._count)
        self._sizes[self._count] = len(keys)
        self._count += 1

    def near(self, reading: ValueReading, least: float) -> list[tuple[float, int]]:
        """Statements with at least this share of words in common: share and place, best first."""
        keys = {word for word, _ in senses(reading)}
        places = [place for key in keys if key in self._at for place in self._at[key]]
        shared = np.bincount(np.asarray(places, dtype=np.intp), minlength=self._count)
        likeness = shared / np.maximum(1, self._sizes[: self._count] + len(keys) - shared)
        near = np.flatnonzero((shared > 0) & (likeness >= least))
        # Among equals the last comes first: a contradicted statement is mostly a recent one.
        near = near[np.lexsort((-near, -likeness[near]))]
        return list(zip(likeness[near].tolist(), near.tolist(), strict=True))

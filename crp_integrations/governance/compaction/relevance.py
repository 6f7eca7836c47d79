"""What the question says for a text and for each piece of it (`relevance@1`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from crp_integrations.envelope import hybrid
from crp_integrations.envelope.settings import HybridSettings
from crp_integrations.governance.compaction.data import Data, data
from crp_integrations.governance.compaction.logs import Log, is_log
from crp_integrations.governance.compaction.protected import FIGURE
from crp_integrations.governance.compaction.readings import Prose, Reading
from crp_integrations.language.lexical_overlap import coverages, profiles
from crp_integrations.scores import to_fixed

RELEVANCE: Final = "relevance@1"
# Share of the kind's own weight in the score of an entry of a log or a member of data.
_OWN, _WORDS, _WHOLE = 0.45, 0.40, 0.15
_AFTER = 1e-5
# Share of a piece's own words beside the stretches that it overlaps.
_OWN_WORDS = 0.30


def read(text: str) -> Reading:
    """A text as data, as a log, or as prose."""
    found = data(text)
    if found is not None:
        return found
    return Log(text) if is_log(text) else Prose(text)


class Relevance:
    """Scores of texts and of their pieces for one question; readings are made when asked for."""

    def __init__(
        self,
        question: str,
        texts: Sequence[str],
        bonus: float,
        dense: Sequence[float] | None = None,
    ) -> None:
        """Score whole texts.

        Args:
            bonus: added to a piece with a figure or a quotation, in [0, 1].
            dense: cosines of the texts to the question, or what ranked them before; None goes by
                the words alone.
        """
        self._question = question
        self._texts = texts
        self._bonus = bonus
        # Powers were measured for whole facts; pieces of a history are weighed as they are.
        self._settings = HybridSettings(cosine_power=1.0, lexical_power=1.0, stretch_power=1.0)
        self._readings: dict[int, Reading] = {}
        self._fixed: dict[int, list[int]] = {}
        count = len(texts)
        prior = np.zeros(count) if dense is None else np.asarray(dense, dtype=np.float64)
        beside = np.full((count, 2), -1, dtype=np.intp)
        pool = hybrid.CandidatePool(question, texts, prior, beside)
        self._scores = hybrid.score_pool(hybrid.weigh_pool(pool, self._settings), self._settings)

    def of(self, at: int) -> int:
        """A text's score, fixed point."""
        return to_fixed(float(self._scores.total[at]))

    @property
    def best(self) -> int:
        """The best text's score, fixed point; 0 when the question says nothing for any."""
        return to_fixed(float(self._scores.total.max(initial=0.0)))

    def reading(self, at: int) -> Reading:
        """How a text is read."""
        if at not in self._readings:
            self._readings[at] = read(self._texts[at])
        return self._readings[at]

    def pieces(self, at: int) -> list[int]:
        """The scores of a text's pieces, fixed point, in [0, SCALE]."""
        if at not in self._fixed:
            reading = self.reading(at)
            found = self._by_stretch(at) if isinstance(reading, Prose) else self._by_words(at)
            self._fixed[at] = [
                to_fixed(
                    (score + self._bonus * bool(FIGURE.search(reading.text[p.start : p.end])))
                    / (1.0 + self._bonus)
                )
                for score, p in zip(found, reading.pieces, strict=True)
            ]
        return self._fixed[at]

    def _by_stretch(self, at: int) -> list[float]:
        """The best score among the stretches that a piece overlaps."""
        (profile,) = profiles([self._texts[at]])
        begin = self._scores.begins[at]
        reading = self.reading(at)
        found, first = [], 0
        for piece, own in zip(reading.pieces, self._own(reading), strict=True):
            while first < len(profile.ends) and profile.ends[first] <= piece.start:
                first += 1
            best, place = 0.0, first
            while place < len(profile.starts) and profile.starts[place] < piece.end:
                best = max(best, float(self._scores.parts[begin + place]))
                place += 1
            # A stretch may reach over several pieces; their own words tell them apart.
            found.append((1.0 - _OWN_WORDS) * best + _OWN_WORDS * own)
        return found

    def _by_words(self, at: int) -> list[float]:
        """Words of the question, weighed by rarity among the pieces, and the kind's own weight."""
        reading = self.reading(at)
        whole = float(self._scores.total[at])
        found = [
            _OWN * piece.weight + _WORDS * own + _WHOLE * whole
            for piece, own in zip(reading.pieces, self._own(reading), strict=True)
        ]
        if isinstance(reading, Data):
            # What names a hit goes after everything that it names.
            for number, names in reading.named.items():
                for name in names:
                    found[name] = max(found[name], min(1.0, found[number] + _AFTER))
        return found

    def _own(self, reading: Reading) -> list[float]:
        """Share of the question's words that each piece has, by their rarity among the pieces."""
        pieces = reading.pieces
        return coverages(self._question, [reading.text[p.start : p.end] for p in pieces])

"""The question's score of each text and of its pieces (`relevance@1`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from crp_integrations.envelope import hybrid
from crp_integrations.envelope.settings import HybridSettings
from crp_integrations.governance.compaction.json_data import read_json
from crp_integrations.governance.compaction.text_pieces import FIGURE, LogText, ProseText, is_log
from crp_integrations.language.lexical_overlap import coverages, profiles
from crp_integrations.scores import to_fixed

RELEVANCE: Final = "relevance@1"
# Share of the kind's own weight in the score of an entry of a log or a member of data.
_OWN, _WORDS, _WHOLE = 0.45, 0.40, 0.15
_AFTER = 1e-5
# Share of a piece's own words beside the stretches that it overlaps.
_OWN_WORDS = 0.30


def read_text(text: str) -> ProseText:
    """A text as data, as a log, or as prose."""
    return read_json(text) or (LogText(text) if is_log(text) else ProseText(text))


class Relevance:
    """Scores of texts and of their pieces for one question; readings are made when asked for.

    Args:
        bonus: added to a piece with a figure or a quotation.
        dense: scores that are known of the texts; None to go by the words alone.
    """

    def __init__(
        self,
        question: str,
        texts: Sequence[str],
        bonus: float,
        dense: Sequence[float] | None = None,
    ) -> None:
        self._question = question
        self._texts = texts
        self._bonus = bonus
        # Powers were measured for whole facts; pieces of a history are weighed as they are.
        settings = HybridSettings(cosine_power=1.0, lexical_power=1.0, stretch_power=1.0)
        self._readings: dict[int, ProseText] = {}
        self._fixed: dict[int, list[int]] = {}
        count = len(texts)
        prior = np.zeros(count) if dense is None else np.asarray(dense, dtype=np.float64)
        beside = np.full((count, 2), -1, dtype=np.intp)
        pool = hybrid.CandidatePool(question, texts, prior, beside)
        self._scores = hybrid.score_pool(hybrid.weigh_pool(pool, settings), settings)

    def of(self, at: int) -> int:
        """A text's score, fixed point."""
        return to_fixed(float(self._scores.total[at]))

    @property
    def best(self) -> int:
        """The best text's score, fixed point; 0 when the question says nothing for any."""
        return to_fixed(float(self._scores.total.max(initial=0.0)))

    def reading(self, at: int) -> ProseText:
        """How a text is read."""
        if at not in self._readings:
            self._readings[at] = read_text(self._texts[at])
        return self._readings[at]

    def pieces(self, at: int) -> list[int]:
        """The scores of a text's pieces, fixed point, in [0, SCALE]."""
        if at not in self._fixed:
            reading = self.reading(at)
            # Share of the question's words that each piece has, by their rarity among the pieces.
            own = coverages(self._question, [reading.text[p.start : p.end] for p in reading.pieces])
            scores = self._by_stretch(at, own) if reading.by_stretch else self._by_words(at, own)
            self._fixed[at] = [
                to_fixed(
                    (score + self._bonus * bool(FIGURE.search(reading.text[p.start : p.end])))
                    / (1.0 + self._bonus)
                )
                for score, p in zip(scores, reading.pieces, strict=True)
            ]
        return self._fixed[at]

    def _by_stretch(self, at: int, own: Sequence[float]) -> list[float]:
        """The best score among the stretches that a piece overlaps."""
        (profile,) = profiles([self._texts[at]])
        begin = self._scores.begins[at]
        scores, first = [], 0
        for piece, words in zip(self.reading(at).pieces, own, strict=True):
            while first < len(profile.ends) and profile.ends[first] <= piece.start:
                first += 1
            best, place = 0.0, first
            while place < len(profile.starts) and profile.starts[place] < piece.end:
                best = max(best, float(self._scores.parts[begin + place]))
                place += 1
            # A stretch may reach over several pieces; their own words tell them apart.
            scores.append((1.0 - _OWN_WORDS) * best + _OWN_WORDS * words)
        return scores

    def _by_words(self, at: int, own: Sequence[float]) -> list[float]:
        """Words of the question, and the kind's own weight."""
        reading = self.reading(at)
        whole = float(self._scores.total[at])
        scores = [
            _OWN * piece.weight + _WORDS * words + _WHOLE * whole
            for piece, words in zip(reading.pieces, own, strict=True)
        ]
        # What names a hit goes after everything that it names.
        for number, names in reading.named.items():
            for name in names:
                scores[name] = max(scores[name], min(1.0, scores[number] + _AFTER))
        return scores

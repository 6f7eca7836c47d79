"""Which results may stand in a context: those on the topic that give no orders (`screen@1`).

The rules are those of an ordinary turn; a search of this form walks no links, so a result is on
the topic by its cosine or its words.

Spec: Summit §Context Assembly Pipeline
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crp_integrations.envelope.cfs.records import RetrievalResult
from crp_integrations.envelope.screen import refusals
from crp_integrations.guard.injection.detector import Detector
from crp_integrations.guard.injection.screening import ScreeningSettings
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.vocabulary import DropReason


@dataclass(frozen=True, slots=True)
class Screen:
    """What looks at results before any of them is ranked.

    Attributes:
        settings: where fewer results than `fewest` stay, all are refused.
        detector: the rules with the settings' numbers, and what they said before.
    """

    settings: ScreeningSettings
    detector: Detector

    def refused(
        self, results: Sequence[RetrievalResult]
    ) -> tuple[dict[str, DropReason], tuple[str, ...]]:
        """Why each chunk that may not be shown may not, by its id; and what decided.

        Raises:
            EngineError: a model that is asked too failed.
        """
        best = max((one.lexical_score for one in results), default=0.0)
        enough = self.settings.words_floor * best
        near: dict[str, int] = {}
        texts: dict[str, str] = {}
        for one in results:
            worded = one.lexical_score > 0.0 and one.lexical_score >= enough
            cosine = min(1.0, max(0.0, one.semantic_score))
            found = SCALE if worded else to_fixed(cosine)
            near[one.chunk.id] = max(found, near.get(one.chunk.id, 0))
            texts[one.chunk.id] = one.chunk.text
        told = [(id_, text, near[id_]) for id_, text in texts.items()]
        return refusals(told, self.settings, self.detector)

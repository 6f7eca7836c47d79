"""Rerankers of a framework behind the package's port."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Literal, get_args

from crp_integrations.errors import ConfigError, CRPError, EngineError

Scale = Literal["given", "logistic", "rank"]
# What the object kept, in its order: the place of the text, and its score where there is one.
Kept = Sequence[tuple[int, float | None]]


def check_kind(name: str, given: object, wanted: type) -> None:
    """Check that a framework's object was given, of the base class that it has for such ones."""
    if not isinstance(given, wanted):
        seen = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        raise ConfigError(f"{name} is {seen}; give an object, a {wanted.__name__}")


class WrappedReranker:
    """The port `Reranker` around a function that keeps and scores texts.

    Objects of the frameworks promise nothing about threads, so they are called one at a time.

    Args:
        library: whose object it is, for messages.
        identity: a name for what decides the scores; it stands in every envelope.
        keep: given the query and the texts, what the object kept of them.
        scale: how its scores are read. `given`: as numbers from 0 to `best`. `logistic`: as raw
            outputs of a model, any number. `rank`: not at all, the order alone counts. An object
            that gives no scores is read by rank.
        best: the score that means 1, for `given`.
    """

    def __init__(
        self,
        library: str,
        identity: str,
        keep: Callable[[str, list[str]], Kept],
        scale: Scale,
        best: float,
    ) -> None:
        if scale not in get_args(Scale):
            wanted = ", ".join(get_args(Scale))
            raise ConfigError(f"scale {scale!r:.40} is not one of {wanted}")
        number = isinstance(best, Real)
        if not (number and best > 0.0 and math.isfinite(best)):
            raise ConfigError(f"best is {best!r:.40}, wanted the score that means 1, above 0")
        if not identity:
            raise ConfigError("a reranker's identity is empty, wanted a name for what decides")
        self._library = library
        self._identity = identity
        self._keep = keep
        self._scale = scale
        self._best = best
        self._turn = threading.Lock()

    @property
    def identity(self) -> str:
        """The name given by the caller; change it when what decides the scores changes."""
        return self._identity

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text fits the query, in [0, 1]; 0 for what the object dropped."""
        if not texts:
            return []
        try:
            with self._turn:
                kept = list(self._keep(query, list(texts)))
        except CRPError:
            raise
        except Exception as error:  # any class of any library, or of the service behind it
            raise EngineError(
                f"the reranker {self._identity} failed with {type(error).__name__}",
                engine=self._library,
            ) from error
        return self._spread(kept, len(texts))

    def _spread(self, kept: Kept, count: int) -> list[float]:
        """Scores by place; of a text that came back in pieces the best one counts."""
        unscored = sum(score is None for _, score in kept)
        if 0 < unscored < len(kept):
            raise self._error("gave a score to some texts only")
        by_rank = self._scale == "rank" or unscored > 0
        ranks = max(count, len(kept))
        spread = [0.0] * count
        for rank, (place, score) in enumerate(kept):
            if not 0 <= place < count:
                raise self._error("gave back a text that it was not given")
            value = 1.0 - rank / ranks if by_rank or score is None else self._scaled(float(score))
            spread[place] = max(spread[place], value)
        return spread

    def _scaled(self, score: float) -> float:
        if not math.isfinite(score):
            raise self._error(f"gave the score {score}, wanted a finite number")
        if self._scale == "logistic":
            # Written so that no power overflows.
            power = math.exp(-abs(score))
            return 1.0 / (1.0 + power) if score >= 0.0 else power / (1.0 + power)
        if not 0.0 <= score <= self._best:
            raise self._error(
                f"gave the score {score}, wanted 0 to {self._best}; say with best= which score "
                'means 1, or choose scale="logistic" for raw outputs'
            )
        return score / self._best

    def _error(self, what: str) -> EngineError:
        return EngineError(f"the reranker {self._identity} {what}", engine=self._library)

"""Chat models and rerankers of a framework behind the package's ports."""

from __future__ import annotations

import math
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Final, Literal, get_args

from crp_integrations.errors import (
    ConfigError,
    CRPError,
    EngineError,
    ModelError,
    ModelTimeout,
    provider_error,
)
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.vocabulary.safety import Purpose


def model_error(error: Exception, model: str) -> ModelError:
    """A chat model's error as one of this package; without its words."""
    status = getattr(error, "status_code", None) or getattr(
        getattr(error, "response", None), "status_code", None
    )
    kind = provider_error(status, str(error))
    if isinstance(error, TimeoutError) or type(error).__name__.endswith(
        ("Timeout", "TimeoutError")
    ):
        kind = ModelTimeout
    made = kind(f"the chat model behind {model!r} failed with {type(error).__name__}")
    made.provider_status = status if isinstance(status, int) else None
    made.tried = (model,)
    return made


class FrameworkChatModel(ABC):
    """What the frameworks' chat models have in common as models of a turn.

    Where an answer may be withheld they are called whole, also where a stream is asked for, so that
    nothing of it shows in a framework's own streams.
    """

    # Whether the answer is shown as it comes; nothing may withhold or change it then.
    shows: Callable[[], bool] = staticmethod(lambda: False)

    @abstractmethod
    def reply_to(self, call: ModelCall) -> Reply:
        """Answer a call, with whatever the framework raises."""

    @abstractmethod
    async def areply_to(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `reply_to`."""

    @abstractmethod
    def parts_of(self, call: ModelCall) -> Iterator[str | Reply]:
        """Answer a call in the model's own pieces, then the reply."""

    @abstractmethod
    def aparts_of(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `parts_of`."""

    def shown(self, call: ModelCall) -> bool:
        """Whether a call's tokens are shown as they come."""
        return call.purpose is Purpose.ANSWER and self.shows()

    def call(self, call: ModelCall) -> Reply:
        """Answer a call."""
        with _own_errors(call.model):
            return self.reply_to(call)

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        with _own_errors(call.model):
            return await self.areply_to(call)

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """The text in pieces, then the reply."""
        with _own_errors(call.model):
            if self.shown(call):
                yield from self.parts_of(call)
                return
            reply = self.reply_to(call)
        yield from text_pieces(reply.text)
        yield reply

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `stream`."""
        with _own_errors(call.model):
            if self.shown(call):
                async for part in self.aparts_of(call):
                    yield part
                return
            reply = await self.areply_to(call)
        for piece in text_pieces(reply.text):
            yield piece
        yield reply


@contextmanager
def _own_errors(model: str) -> Iterator[None]:
    try:
        yield
    except CRPError:
        raise
    except Exception as error:
        raise model_error(error, model) from error


def text_pieces(text: str) -> list[str]:
    """A text that was held back, in pieces of a few words as a stream gives it; joined, the text.

    >>> text_pieces("The reactor at Brenning delivers 412 MW.")
    ['The reactor ', 'at Brenning ', 'delivers 412 ', 'MW.']
    """
    return _PIECE.findall(text)


# A few characters with the rest of the word; writing without spaces is cut too.
_PIECE: Final = re.compile(r".{1,12}\S{0,16}\s*", re.DOTALL)


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

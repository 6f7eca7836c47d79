"""Processor time by step: what a step takes by itself, without the steps inside it."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from crp_integrations.ports import Embedder
from crp_integrations.vectors import FloatRows

EMBEDDING = "embedding"


class Steps:
    """A tracer that adds up the processor time of the thread in which a step runs."""

    def __init__(self) -> None:
        self._ms: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self._open = threading.local()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step, inside another or not."""
        stack: list[float] = self._open.__dict__.setdefault("stack", [])
        stack.append(0.0)
        began = time.thread_time()
        try:
            yield
        finally:
            whole = (time.thread_time() - began) * 1000
            within = stack.pop()
            if stack:
                stack[-1] += whole
            with self._lock:
                self._ms[name] += whole - within

    def taken(self) -> Mapping[str, float]:
        """Milliseconds by step since this was last asked."""
        with self._lock:
            found = dict(self._ms)
            self._ms.clear()
        return found

    @contextmanager
    def around(self, owner: Any, name: str, step: str) -> Iterator[None]:
        """Count a function of a module or class as a step for a while."""
        plain: Callable[..., Any] = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            with self.step(step):
                return plain(*args, **kwargs)

        setattr(owner, name, counted)
        try:
            yield
        finally:
            setattr(owner, name, plain)


class TimedEmbedder:
    """An embedder whose time is a step."""

    def __init__(self, embedder: Embedder, steps: Steps) -> None:
        self._embedder = embedder
        self._steps = steps
        self.identity, self.dimensions = embedder.identity, embedder.dimensions
        self.thresholds = embedder.thresholds

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        """Unit rows of texts."""
        with self._steps.step(EMBEDDING):
            return self._embedder.embed_passages(texts)

    def embed_query(self, text: str) -> FloatRows:
        """A unit vector."""
        with self._steps.step(EMBEDDING):
            return self._embedder.embed_query(text)

"""Telling how far a long step is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]


def silent(step: str, done: int, total: int) -> None:
    """The progress callback that shows nothing."""


class Told:
    """Counts what is done of a step and tells it; never backwards and never beyond the total."""

    def __init__(self, step: str, progress: Progress, total: int) -> None:
        """Tell that nothing is done yet.

        Args:
            total: how many there are to do.
        """
        self._progress = progress
        self._step = step
        self._total = total
        self._done = 0
        progress(step, 0, total)

    def more(self, count: int) -> None:
        """So many more are done."""
        count = min(count, self._total - self._done)
        if count:
            self._done += count
            self._progress(self._step, self._done, self._total)

    def end(self) -> None:
        """Everything is done."""
        self.more(self._total)

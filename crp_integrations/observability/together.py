"""Several observers as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import TracebackType

from crp_integrations.governance.tracing import Observer, WindowTrace
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.observability.prometheus import Metrics


class Together:
    """Tells each of several observers, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    def step(self, name: str) -> AbstractContextManager[None]:
        """A step of each."""
        steps = [one.step(name) for one in self.observers]
        # Most steps of a window are one observer's alone.
        steps = [one for one in steps if type(one) is not nullcontext]
        return steps[0] if len(steps) == 1 else _Steps(steps)

    @contextmanager
    def calling(self, call: ModelCall) -> Iterator[Callable[[Reply], None]]:
        """A model call of each."""
        with ExitStack() as stack:
            told = [stack.enter_context(one.calling(call)) for one in self.observers]

            def replied(reply: Reply) -> None:
                for one in told:
                    one(reply)

            yield replied

    def sealed(self, trace: WindowTrace) -> None:
        """Tell each of a window."""
        for one in self.observers:
            one.sealed(trace)

    def text(self) -> str:
        """The metrics of those that have some, as Prometheus reads them."""
        return "".join(one.text() for one in self.observers if isinstance(one, Metrics))


class _Steps:
    """Steps that are entered in their order and left in the other one, whatever one of them does.

    `ExitStack` does the same and takes longer than most observers.
    """

    __slots__ = ("_first", "_rest", "_steps")

    def __init__(self, steps: Sequence[AbstractContextManager[None]]) -> None:
        self._steps = steps

    def __enter__(self) -> None:
        if not self._steps:
            return
        first, *rest = self._steps
        self._rest = _Steps(rest)
        self._first = first
        first.__enter__()
        try:
            self._rest.__enter__()
        except BaseException as error:
            first.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._steps:
            return
        try:
            self._rest.__exit__(kind, error, traceback)
        finally:
            self._first.__exit__(kind, error, traceback)

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
        # Most steps of a window are one observer's alone.
        alone: AbstractContextManager[None] | None = None
        steps: list[AbstractContextManager[None]] = []
        for one in self.observers:
            step = one.step(name)
            if type(step) is nullcontext:
                continue
            if alone is None:
                alone = step
            else:
                steps = [*(steps or [alone]), step]
        return alone if alone is not None and not steps else _Steps(steps)

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

    __slots__ = ("_steps",)

    def __init__(self, steps: Sequence[AbstractContextManager[None]]) -> None:
        self._steps = steps

    def __enter__(self) -> None:
        entered = 0
        try:
            for step in self._steps:
                step.__enter__()
                entered += 1
        except BaseException as error:
            _leave(self._steps[:entered], type(error), error, error.__traceback__)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _leave(self._steps, kind, error, traceback)


def _leave(
    steps: Sequence[AbstractContextManager[None]],
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    """Leave steps, the last one first; one that fails keeps none of the others from its end."""
    failed: BaseException | None = None
    for step in reversed(steps):
        try:
            step.__exit__(kind, error, traceback)
        except BaseException as other:  # noqa: BLE001 - it is raised below
            failed = other
    if failed is not None:
        raise failed

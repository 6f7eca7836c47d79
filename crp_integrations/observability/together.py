"""Several observers as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from crp_integrations.governance.tracing import Observer, WindowTrace
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.observability.prometheus import Metrics


class Together:
    """Tells each of several observers, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step of each."""
        with ExitStack() as stack:
            for one in self.observers:
                stack.enter_context(one.step(name))
            yield

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

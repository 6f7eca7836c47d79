"""A relay for each subject, and the models that its questions go to.

A relay is bound to one tenant and one user within it, and none of its methods takes a tenant. So
the choice of the relay alone decides what a key can access.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final, Protocol, runtime_checkable

from crp_integrations.engines.models import Models
from crp_integrations.engines.openai_server import OpenAIServer
from crp_integrations.errors import CRPError, ModelError, StoreBusy
from crp_integrations.guard.decisions import Subject
from crp_integrations.messages import ModelCall, Reply, with_forced_calls
from crp_integrations.ports import Model
from crp_integrations.relay.relay import Relay
from crp_integrations.vocabulary import Purpose

__all__ = ["OpenAIServer", "QuestionModel", "Routed", "Upstream"]

_LOG = logging.getLogger("crp_integrations.gateway")


@dataclass(slots=True)
class _OpenRelay:
    """A relay that is open or being opened.

    Attributes:
        users: number of requests that use it.
    """

    relay: asyncio.Future[Relay]
    users: int = 0


class TenantRelays:
    """Opens and closes relays. Not thread-safe: use it from one event loop only."""

    def __init__(self, opened: Callable[[Subject], Relay], most: int) -> None:
        """Start without open relays; `most` is the number to keep open."""
        self._opened = opened
        self._most = most
        self._relays: OrderedDict[Subject, _OpenRelay] = OrderedDict()
        self._closing: set[asyncio.Future[None]] = set()

    @property
    def open(self) -> int:
        """Number of open relays."""
        return len(self._relays)

    @asynccontextmanager
    async def lease(self, subject: Subject) -> AsyncIterator[Relay]:
        """The subject's relay, which stays open while the block lasts."""
        entry = self._relays.get(subject)
        if entry is None:
            loop = asyncio.get_running_loop()
            entry = _OpenRelay(loop.run_in_executor(None, self._opened, subject))
            self._relays[subject] = entry
        self._relays.move_to_end(subject)
        entry.users += 1
        try:
            try:
                # Other requests may wait for the same relay if this one is cancelled.
                relay = await asyncio.shield(entry.relay)
            except Exception:
                if self._relays.get(subject) is entry:
                    del self._relays[subject]
                raise
            yield relay
        finally:
            entry.users -= 1
            self._evict()

    async def close(self) -> None:
        """Close every relay, even those in use."""
        for entry in self._relays.values():
            self._close(entry)
        self._relays.clear()
        if self._closing:
            await asyncio.wait(self._closing)

    def _evict(self) -> None:
        """Close the least recently used relays that are not in use, down to the limit."""
        spare = len(self._relays) - self._most
        for subject in [subject for subject, entry in self._relays.items() if not entry.users]:
            if spare <= 0:
                return
            self._close(self._relays.pop(subject))
            spare -= 1

    def _close(self, entry: _OpenRelay) -> None:
        async def closed() -> None:
            try:
                relay = await entry.relay
                await asyncio.to_thread(relay.close)
            except Exception as error:  # noqa: BLE001 - one failure must not affect other relays
                _LOG.warning("a relay was not closed: %s", type(error).__name__)

        closing = asyncio.ensure_future(closed())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


class StoreProbe:
    """Asks the store whether it answers, in a thread of its own and once at a time.

    A store that hangs holds this thread alone, however often the gateway is asked.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        """Store the question; nothing is asked yet."""
        self._ask = ask
        self._asking: Future[object] | None = None

    async def ask(self, most_seconds: float) -> None:
        """Return when the store has answered.

        Raises:
            StoreBusy: the store failed or did not answer in time.
        """
        if self._asking is None or self._asking.done():
            self._asking = Future()
            # A daemon, since the process must not wait for it at its end.
            Thread(target=self._answer, args=[self._asking], name="crp-probe", daemon=True).start()
        answered = asyncio.shield(asyncio.wrap_future(self._asking))
        try:
            await asyncio.wait_for(answered, most_seconds)
        except TimeoutError:
            raise StoreBusy(f"the store did not answer in {most_seconds:g} s") from None
        except Exception as error:
            why = error if isinstance(error, CRPError) else type(error).__name__
            raise StoreBusy(f"the store does not answer: {why}") from error

    def _answer(self, asking: Future[object]) -> None:
        try:
            asking.set_result(self._ask())
        except Exception as error:  # noqa: BLE001 - `ask` raises it
            asking.set_exception(error)


# Fields that providers refuse in a call without tools.
TOOL_FIELDS: Final = frozenset({"tool_choice", "parallel_tool_calls"})
# Dropped for LiteLLM, which itself renames `max_tokens` as the provider needs.
LENGTH_FIELD: Final = "max_completion_tokens"


class Upstream(Protocol):
    """Answers questions of all tenants."""

    def known(self, model: str) -> None:
        """Raise ModelNotFound if no model of this name is known."""
        ...

    def shaped(self, arguments: Mapping[str, Any]) -> Model:
        """A model that adds further fields of the OpenAI request to each call."""
        ...

    async def aclose(self) -> None:
        """Close open connections."""
        ...


@runtime_checkable
class StatesLimits(Protocol):
    """An upstream that knows the context limits of its models."""

    def context_limit(self, model: str) -> int | None:
        """Context limit of a model in tokens; None if unknown."""
        ...


class Routed:
    """The extractive model for `extractive`, LiteLLM for every other name."""

    def __init__(
        self, *, timeout_s: float = 60.0, options: Mapping[str, Any] | None = None
    ) -> None:
        """Store the options of all calls."""
        self._timeout_s, self._options = timeout_s, dict(options or {})
        self._plain = Models(timeout_s=timeout_s, options=self._options)

    def known(self, model: str) -> None:
        """Check that a model name implies a provider.

        Raises:
            ModelNotFound: it does not.
        """
        self._plain.known(model)

    def shaped(self, arguments: Mapping[str, Any]) -> Model:
        """The model of one question."""
        fields = {name: value for name, value in arguments.items() if name != LENGTH_FIELD}
        if not fields:
            return self._plain
        return Models(timeout_s=self._timeout_s, options={**self._options, **fields})

    async def aclose(self) -> None:
        """Close nothing: LiteLLM keeps its own clients."""


@dataclass(frozen=True, slots=True)
class QuestionModel:
    """The model of one question, which adds the caller's fields to the calls for its answer.

    Attributes:
        arguments: the caller's fields. Calls that prepare, check or join answers do not get them,
            since a `response_format` or a stop word would break these calls.
        most_characters: maximum length of an answer; a longer one raises ModelError.
        on_reply: called for each reply of the model and each piece of one.
    """

    upstream: Upstream
    arguments: Mapping[str, Any]
    most_characters: int
    on_reply: Callable[[], None] = lambda: None

    def call(self, call: ModelCall) -> Reply:
        """Answer a call."""
        return self._whole(call, self._of(call).call(call))

    async def acall(self, call: ModelCall) -> Reply:
        """Answer a call without blocking the event loop."""
        return self._whole(call, await self._of(call).acall(call))

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        """Pieces of text as they come, then the whole reply."""
        length = 0
        for part in self._of(call).stream(call):
            length = self._counted(length, part)
            yield self._whole(call, part) if isinstance(part, Reply) else part

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        """The asynchronous twin of `stream`."""
        length = 0
        async for part in self._of(call).astream(call):
            length = self._counted(length, part)
            yield self._whole(call, part) if isinstance(part, Reply) else part

    def _whole(self, call: ModelCall, reply: Reply) -> Reply:
        """The reply, after checking its length; a tool call that the caller forced is an answer."""
        self._counted(0, reply)
        forced = self.arguments.get("tool_choice") if call.tools else None
        return with_forced_calls(reply, forced) if call.purpose is Purpose.ANSWER else reply

    def _counted(self, length: int, part: str | Reply) -> int:
        """Number of characters so far; a final `Reply` has the whole text, so it is not added."""
        self.on_reply()
        length = len(part.text) if isinstance(part, Reply) else length + len(part)
        if length > self.most_characters:
            raise ModelError(
                f"the model's answer has more than {self.most_characters} characters, the maximum "
                "that is examined here; ask for a shorter one, for example with max_tokens"
            )
        return length

    def _of(self, call: ModelCall) -> Model:
        arguments = self.arguments if call.purpose is Purpose.ANSWER else {}
        if not call.tools:
            arguments = {
                name: value for name, value in arguments.items() if name not in TOOL_FIELDS
            }
        return self.upstream.shaped(arguments)

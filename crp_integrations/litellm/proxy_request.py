"""One request of LiteLLM's proxy: the proxy makes the first call for the answer itself.

The driver runs in a task. The proxy makes that call with all that it has for calls (keys, budgets,
retries, fallbacks, logs); what the question needs besides goes through the proxy's router.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from crp_integrations.engines.litellm import as_chunk
from crp_integrations.errors import EngineError
from crp_integrations.litellm.attempt_packing import CallAttempts
from crp_integrations.litellm.deployments import (
    AnsweredCall,
    Deployments,
    read_response,
    read_stream,
)
from crp_integrations.litellm.response_metadata import PROOF_FIELDS, CRPStream, attach_proof
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.relay.drive import adrive
from crp_integrations.relay.steps import Outcome, Playable, Release

GRACE_SECONDS: Final = 5.0
# Of an envelope, beside the ids of its facts.
_ENVELOPE_FIELDS: Final = {"etag", "state_hash", "quality_tier", "token_count", "token_budget"}


class ProxyRequest:
    """A question of the proxy, from its first step to its outcome. For one request alone.

    Attributes:
        running: the call that the proxy makes; None before it was handed out.
    """

    def __init__(self, played: Playable, deployments: Deployments, *, streams: bool) -> None:
        """Take a question."""
        self.running: CallAttempts | None = None
        self._deployments = deployments
        self._streams = streams
        self._played = deployments.watched(played)
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._given: asyncio.Future[CallAttempts] = loop.create_future()
        self._reply: asyncio.Future[Reply] = loop.create_future()
        self._task: asyncio.Task[Outcome] | None = None
        self._ended = asyncio.Lock()
        self._response: Any = None

    async def begin(self) -> Outcome | None:
        """Play until the proxy's call is due."""
        task = self._task = asyncio.create_task(adrive(self._played, self._model()))
        try:
            await asyncio.wait((task, self._given), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            task.cancel()
            raise
        if task.done():
            return task.result()
        self.running = self._given.result()
        return None

    async def take(self, response: Any) -> Outcome:
        """Play on with the proxy's response, or its stream, which is read to its end; once."""
        async with self._ended:
            if self._response is None and not self._reply.done():
                assert self.running is not None
                try:
                    read = read_stream if self._streams else read_response
                    self._response, reply, deployment = await read(response, self.running)
                except Exception as error:  # noqa: BLE001 - the outcome says which
                    self._reply.set_exception(self._deployments.translated(error, self.running))
                except BaseException:
                    self.give_up()
                    raise
                else:
                    tried = tuple(self.running.tried) or (self.running.model,)
                    spent = AnsweredCall(
                        self.running.step, self._response, reply, tried, deployment
                    )
                    self._deployments.spent.append(spent)
                    self._reply.set_result(reply)
        return await self.outcome()

    async def fail(self, error: Exception) -> Outcome | None:
        """End the window because the proxy's call failed; None where none was on its way."""
        if self.running is None or self._task is None:
            return None
        if not self._reply.done():
            self._reply.set_exception(self._deployments.translated(error, self.running))
        return await self.outcome()

    async def outcome(self) -> Outcome:
        """How the question ended."""
        assert self._task is not None
        return await asyncio.shield(self._task)

    def ended(self) -> Outcome | None:
        """How the question ended, as far as it has."""
        task = self._task
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    def give_up(self) -> None:
        """Seal the window of a request that nobody waits for any more; from any thread.

        A hook that is on its way is given some time.
        """
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.call_later, GRACE_SECONDS, self._gone)

    def _gone(self) -> None:
        if self._task is not None and not self._reply.done():
            self._task.cancel()

    def released(self, outcome: Release) -> Any:
        """The response that the client gets, with the answer and its proof; chunks of a stream.

        Of the envelope the client gets ids and numbers, and the facts' texts not.
        """
        answer = outcome.answer
        whole = attach_proof(answer, self._deployments.spent)
        told = answer.envelope.model_dump(mode="json", include=_ENVELOPE_FIELDS)
        whole.crp_envelope = {**told, "facts": [fact.fact_id for fact in answer.envelope.facts]}
        if not self._streams:
            return whole
        if not isinstance(whole, CRPStream):
            # The answer is of a further call, which is never a stream.
            return [_chunk_with_proof(as_chunk(whole), whole)]
        chunks = list(whole)
        for name in PROOF_FIELDS:
            delattr(chunks[-1], name)
        # One that holds usage may follow, which LiteLLM leaves out where no client asked for it.
        ends = [n for n, one in enumerate(chunks) if one.choices and one.choices[0].finish_reason]
        last = ends[-1] if ends else len(chunks) - 1
        chunks[last] = _chunk_with_proof(chunks[last], whole)
        return chunks

    def _model(self) -> _ProxyModel:
        return _ProxyModel(self._deployments, self._given, self._reply)


def _chunk_with_proof(chunk: Any, proven: Any) -> Any:
    carrier = copy.copy(chunk)
    if getattr(carrier, "provider_specific_fields", None) is None:
        # LiteLLM's short way to print a plain chunk leaves out what it does not know.
        carrier.provider_specific_fields = {}
    for name in PROOF_FIELDS:
        setattr(carrier, name, getattr(proven, name))
    return carrier


class _ProxyModel:
    """The model of a question: the first call for the answer is somebody else's."""

    def __init__(
        self,
        deployments: Deployments,
        given: asyncio.Future[CallAttempts],
        reply: asyncio.Future[Reply],
    ) -> None:
        self._deployments = deployments
        self._given = given
        self._reply = reply

    async def acall(self, call: ModelCall) -> Reply:
        if self._given.done() or not self._deployments.answers(call):
            return await self._deployments.acall(call)
        self._given.set_result(self._deployments.handed(call))
        return await self._reply

    def call(self, call: ModelCall) -> Reply:
        raise EngineError("a proxy's calls are asynchronous", engine="litellm")

    def stream(self, call: ModelCall) -> Iterator[str | Reply]:
        raise EngineError("a proxy's calls are asynchronous", engine="litellm")

    async def astream(self, call: ModelCall) -> AsyncIterator[str | Reply]:
        reply = await self.acall(call)
        yield reply.text
        yield reply

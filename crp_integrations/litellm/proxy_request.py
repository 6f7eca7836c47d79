"""One request of LiteLLM's proxy: the proxy makes the first call for the answer itself.

The driver runs in a task. The proxy makes that call with all that it has for calls (keys, budgets,
retries, fallbacks, logs); what the question needs besides goes through the proxy's router.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from crp_integrations.engines.models import WholeReplies
from crp_integrations.errors import EngineError
from crp_integrations.litellm.attempt_packing import CallAttempts
from crp_integrations.litellm.deployments import Deployments, read_answer
from crp_integrations.litellm.response_metadata import (
    proof_of,
    proven_chunks,
    proven_response,
)
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.relay.drive import adrive
from crp_integrations.relay.steps import Outcome, Playable, Release

GRACE_SECONDS: Final = 5.0
# Of an envelope, beside the ids of its facts.
_ENVELOPE_FIELDS: Final = {"etag", "state_hash", "quality_tier", "token_count", "token_budget"}


class ProxyRequest(WholeReplies):
    """A question of the proxy, from its first step to its outcome. For one request alone.

    Attributes:
        running: the call that the proxy makes; None before it was handed out.
    """

    def __init__(
        self,
        played: Playable,
        deployments: Deployments,
        *,
        streams: bool,
        tells_usage: bool = False,
    ) -> None:
        """Take a question."""
        self.running: CallAttempts | None = None
        self._deployments = deployments
        self._streams = streams
        self._tells_usage = tells_usage
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
        task = self._task = asyncio.create_task(adrive(self._played, self))
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
                    read = read_answer(response, self.running, streams=self._streams)
                    [*_, spent] = [part async for part in read]
                except Exception as error:  # noqa: BLE001 - the outcome says which
                    self._reply.set_exception(self._deployments.translated(error, self.running))
                except BaseException:
                    self.give_up()
                    raise
                else:
                    self._response = spent.response
                    self._deployments.spent.append(replace(spent, shown=0))
                    self._reply.set_result(spent.reply)
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

        The client gets the envelope's ids and numbers, but not the facts' texts.
        """
        answer, spent = outcome.answer, self._deployments.spent
        envelope = answer.envelope.model_dump(mode="json", include=_ENVELOPE_FIELDS)
        facts = [fact.fact_id for fact in answer.envelope.facts]
        proof = {**proof_of(answer, spent), "crp_envelope": {**envelope, "facts": facts}}
        if not self._streams:
            return proven_response(answer, spent, proof)
        chunks = proven_chunks(answer, spent, proof, tells_usage=self._tells_usage)
        ending = [chunk for chunk in chunks if chunk.choices][-1]
        if getattr(ending, "provider_specific_fields", None) is None:
            # LiteLLM's short way to print a plain chunk leaves out what it does not know.
            ending.provider_specific_fields = {}
        return chunks

    async def acall(self, call: ModelCall) -> Reply:
        """Answer a call of the question: the first one for the answer is the proxy's."""
        if self._given.done() or not self._deployments.answers(call):
            return await self._deployments.acall(call)
        self._given.set_result(self._deployments.handed(call))
        return await self._reply

    def call(self, call: ModelCall) -> Reply:
        """Refuse: a proxy's calls are asynchronous."""
        raise EngineError("a proxy's calls are asynchronous", engine="litellm")

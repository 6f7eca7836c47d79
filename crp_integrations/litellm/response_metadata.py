"""Puts the released answer and its proof on LiteLLM's response."""

from __future__ import annotations

import asyncio
import copy
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final

from crp_integrations.engines.litellm import as_chunk
from crp_integrations.engines.litellm_versions import library, note, notes_of
from crp_integrations.errors import EngineError
from crp_integrations.litellm.attempt_packing import is_answer
from crp_integrations.litellm.deployments import AnsweredCall, run_blocking, running_loop
from crp_integrations.relay.records import Answer
from crp_integrations.relay.steps import Outcome, answer_of

litellm = library()


class CRPStream(Iterator[Any], AsyncIterator[Any]):
    """The chunks of an answer, readable once, with `for` and `next` or with `async for`.

    If nothing can withhold the answer, chunks arrive as the model sends them, else after the
    verdict. The last chunk of the answer always arrives after the verdict.

    Attributes:
        crp, crp_envelope, crp_headers, crp_calls, crp_cost, crp_actions: as on a response that is
            not a stream, and as on the last chunk of the answer. None before the verdict.
        usage: total usage of all calls; None before the verdict.
    """

    crp: dict[str, Any] | None = None
    crp_envelope: dict[str, Any] | None = None
    crp_headers: dict[str, str] | None = None
    crp_calls: list[dict[str, Any]] | None = None
    crp_cost: float | None = None
    crp_actions: list[dict[str, Any]] | None = None
    usage: Any = None

    def __init__(
        self,
        parts: AsyncGenerator[Any],
        spent: Sequence[AnsweredCall],
        actions: Mapping[str, Any],
        *,
        tells_usage: bool,
    ) -> None:
        self._parts = parts
        self._spent = spent
        self._actions = actions
        self._tells_usage = tells_usage
        self._ready: deque[Any] = deque()
        self._loop = asyncio.get_running_loop()
        self._over = False
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def opened(
        cls,
        parts: AsyncGenerator[Any],
        spent: Sequence[AnsweredCall],
        actions: Mapping[str, Any],
        *,
        tells_usage: bool,
    ) -> CRPStream:
        """A stream with its first chunk already read, so that earlier errors are raised here.

        Args:
            actions: filled with the reports on the tool calls before the answer's end.
        """
        stream = cls(parts, spent, actions, tells_usage=tells_usage)
        await stream._read()
        return stream

    def __next__(self) -> Any:
        if not (self._ready or self._over):
            run_blocking(self._read(), self._loop)
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    async def __anext__(self) -> Any:
        if not (self._ready or self._over):
            await self._in_loop(self._read())
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    def close(self) -> None:
        """Stop reading: closes the provider's connection and seals an open window."""
        self._over = True
        self._ready.clear()
        if running_loop() is self._loop:
            self._closing = self._loop.create_task(self.aclose())
        elif self._loop.is_running():
            run_blocking(self.aclose(), self._loop)

    async def aclose(self) -> None:
        """The asynchronous twin of `close`."""
        self._over = True
        self._ready.clear()
        await self._in_loop(self._parts.aclose())

    async def _in_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        if running_loop() is self._loop:
            return await work
        return await asyncio.to_thread(run_blocking, work, self._loop)

    async def _read(self) -> None:
        """Add the next chunk to `_ready`, or nothing at the end."""
        async for part in self._parts:
            if isinstance(part, Outcome):
                self._over = True
                self._end(answer_of(part), self._actions)
            elif not isinstance(part, str):
                # Text is skipped: `_end` adds the chunks of an answer that waited for the verdict.
                self._ready.append(part)
                return
        self._over = True

    def _end(self, answer: Answer, actions: Mapping[str, Any]) -> None:
        proof = {**proof_of(answer, self._spent), **actions}
        for name, value in proof.items():
            setattr(self, name, value)
        self.usage = total_usage(self._spent)
        self._ready.extend(proven_chunks(answer, self._spent, proof, tells_usage=self._tells_usage))


def proof_of(answer: Answer, spent: Sequence[AnsweredCall]) -> dict[str, Any]:
    """The fields added to LiteLLM's response."""
    calls = [_call_summary(call) for call in spent]
    costs = [call["cost_usd"] for call in calls]
    return {
        "crp": answer.report.model_dump(mode="json"),
        "crp_envelope": answer.envelope.model_dump(mode="json"),
        "crp_headers": dict(answer.headers),
        "crp_calls": calls,
        "crp_cost": None if None in costs else sum(costs),
    }


def proven_response(answer: Answer, spent: Sequence[AnsweredCall], proof: Mapping[str, Any]) -> Any:
    """The response for the application.

    It is the response of the call that answered, with the usage of all calls and the answer's
    text, which is longer than that call's after a continuation.
    """
    answering = _answering_call(answer, spent)
    response = _with_proof(answering.response, proof)
    usage = total_usage(spent)
    if usage is not None:
        response.usage = usage
    if answer.text != answering.reply.text:
        response.choices = copy.deepcopy(response.choices)
        response.choices[0].message.content = answer.text
    if answer.repaired and answer.reply.answers_by_call:
        response.choices = copy.deepcopy(response.choices)
        (call,) = response.choices[0].message.tool_calls
        call.function.arguments = answer.reply.answer
    return response


def proven_chunks(
    answer: Answer, spent: Sequence[AnsweredCall], proof: Mapping[str, Any], *, tells_usage: bool
) -> list[Any]:
    """The answer's chunks that were not shown yet; the last one with choices has the proof.

    As in LiteLLM, usage is on a separate chunk without choices, and only on request.
    """
    answering = _answering_call(answer, spent)
    response = answering.response
    chunks = list(response if isinstance(response, list) else [as_chunk(response)])[
        answering.shown :
    ]
    last, chunks = chunks[-1], [_without_usage(chunk) for chunk in chunks if chunk.choices]
    with_text = [chunk for chunk in chunks if chunk.choices[0].delta.content]
    if answer.text != answering.reply.text or (len(with_text) == 1 and not answering.shown):
        chunks = _spread_text(chunks, answer.text)
    chunks[-1] = _with_proof(chunks[-1], proof)
    if tells_usage:
        # Replaces LiteLLM's own chunk without choices.
        closing = copy.copy(last)
        closing.choices, closing.usage = [], total_usage(spent)
        chunks.append(closing)
    return chunks


def _without_usage(chunk: Any) -> Any:
    if getattr(chunk, "usage", None) is None:
        return chunk
    plain = copy.copy(chunk)
    plain.usage = None
    return plain


def _with_proof(response: Any, proof: Mapping[str, Any]) -> Any:
    """A copy with the proof, which `model_dump()` also returns.

    LiteLLM logs its own object afterwards, so its callbacks get no CRP metadata.
    """
    carrier = copy.copy(response)
    if notes := notes_of(carrier):
        note(carrier, {**notes, "response_cost": proof["crp_cost"]})
    for name, value in proof.items():
        setattr(carrier, name, value)
    return carrier


def _answering_call(answer: Answer, spent: Sequence[AnsweredCall]) -> AnsweredCall:
    """The call whose reply is the answer, else the last one for an answer."""
    answering = [call for call in spent if is_answer(call.step)]
    if not answering:
        raise EngineError("a window was released without an answer", engine="litellm")
    exact = [call for call in answering if call.reply.text == answer.model_reply.text]
    return (exact or answering)[-1]


def _call_summary(spent: AnsweredCall) -> dict[str, Any]:
    usage = spent.reply.usage
    return {
        "purpose": spent.step.purpose.value,
        "model": spent.tried[-1],
        "tried": list(spent.tried),
        "deployment": spent.deployment,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cost_usd": usage.cost_usd,
    }


def total_usage(spent: Sequence[AnsweredCall]) -> Any:
    """LiteLLM's usage summed over all calls; None if no call reported any."""
    usages = []
    for call in spent:
        parts = call.response if isinstance(call.response, list) else [call.response]
        reported = [part.usage for part in parts if getattr(part, "usage", None)]
        usages += reported[-1:]
    if len(usages) < 2:
        return usages[0] if usages else None
    summed: dict[str, Any] = {}
    for usage in usages:
        summed = _sum_usage(summed, usage.model_dump(exclude_none=True))
    return litellm.Usage(**summed)


def _sum_usage(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    summed = dict(first)
    for name, value in other.items():
        before = summed.get(name)
        if isinstance(value, Mapping):
            summed[name] = _sum_usage(before if isinstance(before, Mapping) else {}, value)
        elif isinstance(value, int | float) and isinstance(before, int | float):
            summed[name] = before + value
        else:
            summed[name] = value
    return summed


# A word with the whitespace after it, or whitespace at the start of a text.
_WORDS: Final = re.compile(r"\S+\s*|\s+")


def _spread_text(chunks: Sequence[Any], text: str) -> list[Any]:
    """Copies of chunks, with the text as one chunk per word at the place of the first text."""
    from litellm.types.utils import Delta, StreamingChoices

    at = next((n for n, chunk in enumerate(chunks) if chunk.choices[0].delta.content), 0)
    copies = [copy.deepcopy(chunk) for chunk in chunks]
    for chunk in copies:
        chunk.choices[0].delta.content = None
    spoken: list[Any] = []
    for word in _WORDS.findall(text):
        role = None if spoken else "assistant"
        piece = copy.copy(copies[at])
        piece.choices = [StreamingChoices(index=0, delta=Delta(content=word, role=role))]
        spoken.append(piece)
    return [*copies[:at], *spoken, *copies[at:]]

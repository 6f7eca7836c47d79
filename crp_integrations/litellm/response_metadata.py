"""LiteLLM's response of the answering call with the released answer and its proof."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

from crp_integrations.engines.litellm_versions import library, note, notes_of
from crp_integrations.errors import EngineError
from crp_integrations.litellm.attempt_packing import is_answer
from crp_integrations.litellm.deployments import AnsweredCall
from crp_integrations.relay.records import Answer

litellm = library()

# What a response carries beside LiteLLM's own fields.
PROOF_FIELDS: Final = ("crp", "crp_envelope", "crp_headers", "crp_calls", "crp_cost")


class CRPStream:
    """The checked chunks of an answer, to be read with `for` or `async for`.

    Attributes:
        crp, crp_envelope, crp_headers, crp_calls, crp_cost: as on a response that is not a
            stream; the last chunk has them too.
        usage: tokens of all calls together.
    """

    def __init__(self, chunks: Sequence[Any], proven: Mapping[str, Any], usage: Any) -> None:
        self.crp: dict[str, Any] = proven["crp"]
        self.crp_envelope: dict[str, Any] = proven["crp_envelope"]
        self.crp_headers: dict[str, str] = proven["crp_headers"]
        self.crp_calls: list[dict[str, Any]] = proven["crp_calls"]
        self.crp_cost: float | None = proven["crp_cost"]
        self.usage = usage
        self._chunks = tuple(chunks)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._chunks)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for chunk in self._chunks:
            yield chunk


def attach_proof(answer: Answer, spent: Sequence[AnsweredCall]) -> Any:
    """The response that the application gets.

    It is that of the call whose reply is the answer; its text is the answer's, which after a
    continuation is more than that one call's; its usage is that of all calls.
    """
    answering = _answering_call(answer, spent)
    calls = [_call_summary(one) for one in spent]
    costs = [call["cost_usd"] for call in calls]
    proven = {
        "crp": answer.report.model_dump(mode="json"),
        "crp_envelope": answer.envelope.model_dump(mode="json"),
        "crp_headers": dict(answer.headers),
        "crp_calls": calls,
        "crp_cost": None if None in costs else sum(costs),
    }
    usage = _total_usage([one.response for one in spent])
    altered = answer.text != answering.reply.text
    if isinstance(answering.response, list):
        chunks = list(answering.response)
        if altered:
            chunks = _replace_text(chunks, answer.text)
        chunks[-1] = _with_proof(chunks[-1], proven, usage)
        return CRPStream(chunks, proven, usage)
    response = _with_proof(answering.response, proven, usage)
    if altered:
        response.choices = copy.deepcopy(response.choices)
        response.choices[0].message.content = answer.text
    return response


def _with_proof(response: Any, proven: Mapping[str, Any], usage: Any) -> Any:
    """A copy that carries the proof, also through `model_dump()`.

    LiteLLM logs its own object afterwards, and its callbacks get nothing of CRP with it.
    """
    carrier = copy.copy(response)
    if notes := notes_of(carrier):
        note(carrier, {**notes, "response_cost": proven["crp_cost"]})
    if usage is not None:
        carrier.usage = usage
    for name, value in proven.items():
        setattr(carrier, name, value)
    return carrier


def _answering_call(answer: Answer, spent: Sequence[AnsweredCall]) -> AnsweredCall:
    """The call whose reply is the answer, or else the last one that answered."""
    found = [one for one in spent if is_answer(one.step)]
    if not found:
        raise EngineError("a window was released without an answer", engine="litellm")
    exact = [one for one in found if one.reply.text == answer.reply.text]
    return (exact or found)[-1]


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


def _total_usage(responses: Sequence[Any]) -> Any:
    """LiteLLM's usage with every number the sum over all calls; None when no call told any."""
    found = []
    for response in responses:
        parts = response if isinstance(response, list) else [response]
        told = [part.usage for part in parts if getattr(part, "usage", None)]
        found += told[-1:]
    if len(found) < 2:
        return found[0] if found else None
    summed: dict[str, Any] = {}
    for usage in found:
        summed = _sum_usage(summed, usage.model_dump(exclude_none=True))
    return litellm.Usage(**summed)


def _sum_usage(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    summed = dict(one)
    for name, value in other.items():
        before = summed.get(name)
        if isinstance(value, Mapping):
            summed[name] = _sum_usage(before if isinstance(before, Mapping) else {}, value)
        elif isinstance(value, int | float) and isinstance(before, int | float):
            summed[name] = before + value
        else:
            summed[name] = value
    return summed


def _replace_text(chunks: Sequence[Any], text: str) -> list[Any]:
    """Copies of chunks with the whole text in the first that has any, and none in the others."""
    copies = [copy.deepcopy(chunk) for chunk in chunks]
    spoken = [chunk for chunk in copies if chunk.choices]
    first = next((c for c in spoken if c.choices[0].delta.content), spoken[0])
    for chunk in spoken:
        chunk.choices[0].delta.content = text if chunk is first else None
    return copies

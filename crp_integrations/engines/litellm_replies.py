"""LiteLLM's streams put together, and what a call cost where a price is on record.

LiteLLM says 0.0 both for a free model and, behind a router, for one whose price it does not
know. So a zero counts only where a price is on record: in its table, or in a deployment's entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from crp_integrations.engines.litellm_versions import ended, note, notes_of
from crp_integrations.errors import ModelError
from crp_integrations.messages import Reply, ToolCall, Usage

_PRICE: Final = ("input_cost_per_", "output_cost_per_")


def usage_of(response: Any, library: Any, names: Iterable[str] = ()) -> Usage:
    """What the provider reported of a whole response, or of the chunk of a stream that tells it."""
    used = getattr(response, "usage", None)
    return Usage(
        prompt_tokens=getattr(used, "prompt_tokens", None) or 0,
        completion_tokens=getattr(used, "completion_tokens", None) or 0,
        cost_usd=_cost(response, used, library, names),
    )


def _cost(response: Any, used: Any, library: Any, names: Iterable[str]) -> float | None:
    notes = notes_of(response)
    told = notes.get("response_cost")
    if isinstance(told, int | float) and told > 0:
        return float(told)
    if used is None:
        return None
    # A deployment's own price comes before that of its model.
    asked = (notes.get("model_id"), *names, notes.get("litellm_model_name"))
    known = [str(name) for name in asked if name]
    for name in known:
        for spelled in (name, name.partition("/")[2]):
            row = library.model_cost.get(spelled) if spelled else None
            if row and any(k.startswith(_PRICE) and v is not None for k, v in row.items()):
                return _priced(library, spelled, row.get("litellm_provider"), known, used)
    return None


def _priced(
    library: Any, name: str, provider: str | None, known: Sequence[str], used: Any
) -> float | None:
    """LiteLLM's price of what was used; what is priced by anything but tokens is not known."""
    prefixes = (one.partition("/")[0] for one in known if "/" in one)
    try:
        paid = library.cost_per_token(
            model=name, custom_llm_provider=provider or next(prefixes, None), usage_object=used
        )
    except Exception:  # noqa: BLE001 - whatever it is, the cost is not known
        return None
    return float(sum(paid))


# LiteLLM reads every piece of theirs as if it said that it is the last, so a stream that was cut
# off looks whole. They are asked for whole answers.
TELL_NO_END: Final = frozenset({"gemini", "vertex_ai", "vertex_ai_beta"})


def tells_end(library: Any, model: str, provider: str | None = None) -> bool:
    """Whether LiteLLM can tell that a stream of a model's provider ended, and was not cut off."""
    if provider is None:
        try:
            provider = library.get_llm_provider(model)[1]
        except library.exceptions.BadRequestError:
            return True
    return provider not in TELL_NO_END


def as_chunk(response: Any) -> Any:
    """A whole response as the one chunk of a stream."""
    from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices

    chunk = ModelResponseStream(
        id=response.id,
        created=response.created,
        model=response.model,
        choices=[
            StreamingChoices(
                index=choice.index,
                delta=Delta(**_delta(choice.message)),
                finish_reason=choice.finish_reason,
            )
            for choice in response.choices
        ],
        usage=getattr(response, "usage", None),
    )
    note(chunk, notes_of(response))
    return chunk


def _delta(message: Any) -> dict[str, Any]:
    said: dict[str, Any] = message.model_dump(exclude_none=True)
    for place, call in enumerate(said.get("tool_calls") or ()):
        call.setdefault("index", place)
    return said


class StreamedReply:
    """Puts a stream's pieces together."""

    def __init__(self, model: str, library: Any, priced_as: Sequence[str] = ()) -> None:
        """Begin with no piece."""
        self._model = self._called = model
        self._library = library
        self._priced_as = tuple(priced_as)
        self._pieces: list[str] = []
        self._tools: dict[int, dict[str, str]] = {}
        self._finish = ""
        self._usage = Usage()

    def add(self, chunk: Any) -> str:
        """Take in one chunk; its text, empty when it has none."""
        if getattr(chunk, "usage", None):
            self._usage = usage_of(chunk, self._library, (*self._priced_as, self._called))
        if not chunk.choices:
            return ""
        self._model = chunk.model or self._model
        choice = chunk.choices[0]
        self._finish = choice.finish_reason or self._finish
        for call in choice.delta.tool_calls or ():
            known = self._tools.setdefault(call.index, {"id": "", "name": "", "arguments": ""})
            known["id"] = call.id or known["id"]
            known["name"] = call.function.name or known["name"]
            known["arguments"] += call.function.arguments or ""
        piece: str = choice.delta.content or ""
        if piece:
            self._pieces.append(piece)
        return piece

    def reply(self, chunks: Any) -> Reply:
        """The whole reply."""
        if not self._finish or not ended(chunks):
            raise ModelError(f"the stream of model {self._model!r} broke off before its end")
        calls = tuple(
            ToolCall(id=found["id"], name=found["name"], arguments=found["arguments"] or "{}")
            for _, found in sorted(self._tools.items())
        )
        return Reply(
            text="".join(self._pieces),
            model=self._model,
            tool_calls=calls,
            usage=self._usage,
            finish_reason=self._finish,
        )

"""A scripted chat model for LangChain, and the ways in which LangChain lets a caller listen."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable
from pydantic import Field

from crp_integrations import Relay
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import NOON, HashEmbedder
from tests.relay.conftest import FACTS, KEY
from tests.relay.judges import CONTRADICTED, ScriptedJudge, scripted_judge
from tests.servers import SECRETS, no_metadata

Said = str | AIMessage | BaseException


def reader() -> ScriptedJudge:
    """A judge to whom 512 megawatts contradict the facts, and all else is supported."""
    return scripted_judge({"512": CONTRADICTED})


# What a component under a policy that withholds is given: the demand needs somebody who reads.
HALTING: dict[str, Any] = {"policy": "halt-on MEDIUM", "judge": reader()}


class Chat(BaseChatModel):
    """Answers with a function of its messages, as a stream of words too; keeps what it was sent."""

    reply: Callable[[Sequence[BaseMessage]], Said]
    model_name: str = "gpt-4o"
    temperature: float | None = None
    seed: int | None = None
    # Left out of what LangChain writes of a model for its traces, which it does at each call.
    seen: list[list[BaseMessage]] = Field(default_factory=list, repr=False)
    bound: list[dict[str, Any]] = Field(default_factory=list, repr=False)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=tools, **kwargs)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        # A copy of the list and of each message: what was sent, whatever happens to it later.
        self.seen.append([message.model_copy(deep=True) for message in messages])
        self.bound.append(kwargs)
        said = self.reply(messages)
        if isinstance(said, BaseException):
            raise said
        message = AIMessage(said) if isinstance(said, str) else said
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        message = self._generate(messages, **kwargs).generations[0].message
        pieces = str(message.content).split(" ") if message.content else []
        for number, word in enumerate(pieces):
            chunk = ChatGenerationChunk(
                message=AIMessageChunk(content=word if number == 0 else " " + word)
            )
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk
        calls = [
            {
                "type": "tool_call_chunk",
                "name": c["name"],
                "args": json.dumps(c["args"]),
                "id": c["id"],
                "index": n,
            }
            for n, c in enumerate(message.tool_calls)
        ]
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=calls))


class Listed(BaseRetriever):
    """Returns the documents it was made with."""

    documents: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.documents


def scripted(*script: Said, **fields: Any) -> Chat:
    """A model that goes through a script, the last entry again and again."""
    count = 0

    def reply(messages: Sequence[BaseMessage]) -> Said:
        nonlocal count
        count += 1
        return script[min(count, len(script)) - 1]

    return Chat(reply=reply, **fields)


def opened(*facts: str, **options: Any) -> Relay:
    """A relay in memory with the stand-ins of the relay's own tests.

    Its writers wait for each other as long as it takes: a machine may be busy with other work.
    """
    relay = Relay.open(
        MemoryStore(busy_seconds=60.0),
        **{"embedder": HashEmbedder(), "key": KEY, "clock": NOON, **options},
    )
    relay.fabric.add(list(facts or FACTS))
    return relay


def prompts(chat: Any) -> str:
    """Everything that a model was sent, with whatever a provider's client could see of it."""
    return "\n".join(repr(message) for sent in chat.seen for message in sent)


async def _listen(chain: Runnable, input: Any, way: str, heard: list[Any], **kwargs: Any) -> None:
    match way:
        case "stream":
            # In a thread, as a caller without a loop would.
            def read() -> None:
                for part in chain.stream(input, **kwargs):
                    heard.append(part)

            await asyncio.to_thread(read)
        case "astream":
            async for part in chain.astream(input, **kwargs):
                heard.append(part)
        case "astream_events" | "astream_events_v1":
            version = "v1" if way.endswith("v1") else "v2"
            async for part in chain.astream_events(input, version=version, **kwargs):
                heard.append(part)
        case "astream_log":
            async for part in chain.astream_log(input, **kwargs):
                heard.append(part)


async def overheard(
    chain: Runnable, input: Any, way: str, **kwargs: Any
) -> tuple[list[Any], BaseException | None]:
    """What a listener hears of a chain, and the error at the end."""
    heard: list[Any] = []
    try:
        await _listen(chain, input, way, heard, **kwargs)
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return heard, error
    return heard, None


def leaked(heard: Any) -> bool:
    """Whether the wrong number of an answer is to be seen; ids and hashes may hold its digits."""
    return re.search(r"(?<![\w.-])512(?![\w.-])", repr(heard)) is not None


WAYS = ("stream", "astream", "astream_events", "astream_events_v1", "astream_log")

__all__ = [
    "FACTS",
    "HALTING",
    "SECRETS",
    "WAYS",
    "Chat",
    "Listed",
    "leaked",
    "no_metadata",
    "opened",
    "overheard",
    "prompts",
    "reader",
    "scripted",
]

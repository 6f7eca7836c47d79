"""The doors that `tests.bench.calls` measures: each opens a plain call and the same through ours."""

from __future__ import annotations

import logging
import operator
import random
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from crp_integrations import Relay, aexamine, count_tokens
from crp_integrations.guard.decisions import Subject
from crp_integrations.language.text import split_sentences
from crp_integrations.language.words import STOP_WORDS
from crp_integrations.messages import ModelCall, Reply

MODEL: Final = "gpt-4o"
ASKED: Final = re.compile(r"What does the documentation say about [^?]*\?")
# One model call a question: an answer that is incomplete stays so.
ONCE: Final = {"redispatches": 0, "continue_incomplete": False}
TENANT: Final = "bench"

Call = Callable[[str], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Arms:
    """A door that is open.

    Attributes:
        texts: what questions are about.
        plain, ours: a call with a question.
        folder: of the store.
        tokens: prompt tokens of a result, where the scripted model did not see them.
        metadata: what a message of the result carries along.
    """

    texts: Sequence[str]
    plain: Call
    ours: Call
    folder: Path | None = None
    tokens: Callable[[Any], int] | None = None
    metadata: Callable[[Any], Mapping[str, Any]] | None = None


@dataclass
class World:
    """What the doors are made of.

    Attributes:
        stores: a folder with a store by its number of facts; each door opens a copy.
        facts: passages, of which the stores hold the first.
        material: passages that no store holds and no door has had.
        folder: for the copies.
        upstream: address of the provider on loopback.
        small: most passages of a door, and words of each; None for all.
        prompts: what scripted models were sent.
        opened: copies so far.
    """

    stores: Mapping[int, Path]
    facts: Sequence[str]
    material: Iterator[str]
    folder: Path
    upstream: str
    small: tuple[int, int] | None = None
    prompts: list[str] = field(default_factory=list)
    opened: int = 0

    def question(self, number: int, texts: Sequence[str]) -> str:
        """A question about one of the texts; another one for each number."""
        chance = random.Random(number)
        words = re.findall(r"[^\W\d_]{3,}", texts[number % len(texts)])
        telling = [word for word in words if word.lower() not in STOP_WORDS]
        asked = " ".join(chance.sample(telling, min(6, len(telling))))
        return f"What does the documentation say about {asked}?"

    def answer(self, prompt: str, facts: Sequence[str] = ()) -> str:
        """Three sentences of the facts, chosen by the last question in a prompt."""
        self.prompts[:] = [*self.prompts[-3:], prompt]
        at = sum(map(ord, ASKED.findall(prompt)[-1]))
        texts = facts or self.facts
        some = [texts[(at + n) % min(len(texts), 140)] for n in range(3)]
        return " ".join(split_sentences(text)[0].of(text) for text in some)

    def passages(self, many: int, words: int) -> list[str]:
        """New passages of about so many words each."""
        most, length = self.small or (many, words)
        made = []
        for _ in range(min(many, most)):
            text = ""
            while text.count(" ") < min(words, length):
                text = f"{text} {next(self.material)}".strip()
            made.append(text)
        return made

    def store(self, size: int) -> tuple[Path, Sequence[str]]:
        """A copy of a store, and its facts; where it has none, the first of all."""
        self.opened += 1
        folder = self.folder / f"store-{self.opened}"
        shutil.copytree(self.stores[size], folder)
        return folder, self.facts[: max(1, size)]


def opened(folder: Path, stack: AsyncExitStack, **options: Any) -> Relay:
    """A relay over a store, until the stack closes."""
    subject = Subject(tenant=TENANT)
    return stack.enter_context(
        Relay.open(folder, subject=subject, dispatch=ONCE, model=MODEL, **options)
    )


class Answering:
    """A model of the package's own that answers by script."""

    def __init__(self, world: World) -> None:
        self.world = world

    def call(self, call: ModelCall) -> Reply:
        prompt = "\n".join(str(message.content) for message in call.messages)
        return Reply(text=self.world.answer(prompt), model=call.model)

    async def acall(self, call: ModelCall) -> Reply:
        return self.call(call)


def langchain_model(world: World, facts: Sequence[str] = (), *, tool: bool = False) -> Any:
    """A chat model of LangChain that answers by script, after the call of a tool or at once."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Scripted(BaseChatModel):
        model_name: str = MODEL

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self.bind(tools=tools, **kwargs)

        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            message = AIMessage(world.answer("\n".join(str(m.content) for m in messages), facts))
            if tool and not isinstance(messages[-1], ToolMessage):
                asked = {"name": "today", "args": {}, "id": "1", "type": "tool_call"}
                message = AIMessage("", tool_calls=[asked])
            return ChatResult(generations=[ChatGeneration(message=message)])

    return Scripted()


async def agent(facts: int, world: World, stack: AsyncExitStack, *, tool: bool = False) -> Arms:
    from langchain.agents import create_agent

    from crp_integrations.langchain import CRPMiddleware

    def today() -> str:
        """The date of today."""
        return "Today is the 12th of May 2026, a Tuesday."

    folder, texts = world.store(facts)
    model, tools = langchain_model(world, tool=tool), [today] if tool else []
    ours = CRPMiddleware(opened(folder, stack))

    async def call(graph: Any, question: str) -> Any:
        return await graph.ainvoke({"messages": [("user", question)]})

    arms = [partial(call, create_agent(model, tools, middleware=more)) for more in ([], [ours])]
    return Arms(
        texts, *arms, folder, metadata=lambda result: result["messages"][-1].response_metadata
    )


def listed(texts: Sequence[str]) -> Any:
    """A retriever of LangChain that returns passages at once."""
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

    documents = [Document(text, id=f"d{at}") for at, text in enumerate(texts)]

    class Listed(BaseRetriever):
        def _get_relevant_documents(self, query: str, **kwargs: Any) -> list[Document]:
            return [document.model_copy() for document in documents]

    return Listed()


async def wrapped(many: int, world: World, stack: AsyncExitStack) -> Arms:
    from crp_integrations.langchain import CRPRetriever

    texts = world.passages(many, 170)
    plain = listed(texts)
    ours = CRPRetriever.wrap(plain, model=MODEL)
    return Arms(texts, plain.ainvoke, ours.ainvoke, tokens=partial(sum_tokens, "page_content"))


async def handler(many: int, world: World, stack: AsyncExitStack) -> Arms:
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import RunnablePassthrough

    from crp_integrations.langchain import DPECallbackHandler

    texts = world.passages(many, 170)
    prompt = ChatPromptTemplate.from_messages([("system", "{context}"), ("user", "{question}")])
    joined = listed(texts) | (lambda parts: "\n\n".join(part.page_content for part in parts))
    filled = {"context": joined, "question": RunnablePassthrough()} | prompt
    chain = filled | langchain_model(world, texts)
    ours = chain.with_config(callbacks=[DPECallbackHandler()])
    carried = operator.attrgetter("response_metadata")
    return Arms(texts, chain.ainvoke, ours.ainvoke, metadata=carried)


async def postprocessor(many: int, world: World, stack: AsyncExitStack) -> Arms:
    from llama_index.core.schema import NodeWithScore, TextNode

    from crp_integrations.llama_index import CRPNodePostprocessor

    texts = world.passages(many, 400)
    nodes = [
        NodeWithScore(node=TextNode(text=text, id_=f"n{at}"), score=1 / (at + 1))
        for at, text in enumerate(texts)
    ]
    packing = CRPNodePostprocessor(model=MODEL)

    async def plain(question: str) -> Any:
        return nodes

    async def ours(question: str) -> Any:
        return await packing.apostprocess_nodes(nodes, query_str=question)

    return Arms(texts, plain, ours, tokens=partial(sum_tokens, "text"))


async def query_engine(facts: int, world: World, stack: AsyncExitStack) -> Arms:
    from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    from crp_integrations.llama_index import CRPQueryEngine

    class Scripted(CustomLLM):
        @property
        def metadata(self) -> LLMMetadata:
            return LLMMetadata(model_name=MODEL, context_window=128_000)

        def complete(self, prompt: str, *args: Any, **kwargs: Any) -> CompletionResponse:
            return CompletionResponse(text=world.answer(prompt))

        def stream_complete(self, prompt: str, *args: Any, **kwargs: Any) -> Any:
            yield self.complete(prompt)

    class First(BaseRetriever):
        def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
            return [NodeWithScore(node=TextNode(text=world.facts[0]), score=1.0)]

    folder, texts = world.store(facts)
    plain = RetrieverQueryEngine.from_args(First(), llm=Scripted())
    ours = CRPQueryEngine(opened(folder, stack), llm=Scripted())
    carried = operator.attrgetter("metadata")
    return Arms(texts, plain.aquery, ours.aquery, folder, metadata=carried)


async def router(facts: int, world: World, stack: AsyncExitStack) -> Arms:
    from crp_integrations.litellm import CRPRouter

    # LiteLLM warns of everything that a loopback server is not.
    logging.getLogger("LiteLLM").setLevel(logging.ERROR)
    folder, texts = world.store(facts)
    server = {"model": f"openai/{MODEL}", "api_base": world.upstream, "api_key": "none"}
    models = [{"model_name": "main", "litellm_params": server}]
    ours = CRPRouter(models, relay=opened(folder, stack), num_retries=0)

    async def call(through: Any, question: str) -> Any:
        messages = [{"role": "user", "content": question}]
        return await through.acompletion(model="main", messages=messages)

    arms = [partial(call, through) for through in (ours.router, ours)]
    return Arms(texts, *arms, folder, tokens=operator.attrgetter("usage.prompt_tokens"))


async def gateway(facts: int, world: World, stack: AsyncExitStack) -> Arms:
    import httpx

    from crp_integrations.gateway import GatewaySettings, KeyFile, OpenAIServer, create_app
    from crp_integrations.gateway.admission import new_key

    folder, texts = world.store(facts)
    secret, key = new_key(TENANT)
    keys = KeyFile(world.folder / f"{folder.name}.keys")
    keys.add(key)
    limits = GatewaySettings(requests_per_minute=1e9, burst=1_000_000)
    upstream = OpenAIServer(world.upstream)
    app = create_app(folder, keys=keys, upstream=upstream, settings=limits, dispatch=ONCE)
    await stack.enter_async_context(app.router.lifespan_context(app))
    headers, within = {"Authorization": f"Bearer {secret}"}, httpx.ASGITransport(app)
    clients = (
        httpx.AsyncClient(base_url=world.upstream, timeout=120),
        httpx.AsyncClient(
            base_url="http://ours/v1", transport=within, headers=headers, timeout=120
        ),
    )

    async def call(client: httpx.AsyncClient, question: str) -> Any:
        body = {"model": MODEL, "messages": [{"role": "user", "content": question}]}
        response = await client.post("/chat/completions", json=body)
        return response.raise_for_status().json()

    arms = [partial(call, await stack.enter_async_context(client)) for client in clients]
    return Arms(texts, *arms, folder, tokens=lambda result: result["usage"]["prompt_tokens"])


async def ask(facts: int, world: World, stack: AsyncExitStack) -> Arms:
    folder, texts = world.store(facts)
    relay = opened(folder, stack, models=Answering(world))
    return Arms(texts, partial(answered, world, texts), relay.aask, folder)


async def examination(many: int, world: World, stack: AsyncExitStack) -> Arms:
    texts = world.passages(many, 170)

    async def ours(question: str) -> Any:
        return await aexamine(world.answer(question, texts), texts, question)

    return Arms(texts, partial(answered, world, texts), ours)


async def answered(world: World, texts: Sequence[str], question: str) -> str:
    return world.answer(question, texts)


def tokens(text: str) -> int:
    """As the model counts."""
    return count_tokens(text, MODEL).n


def sum_tokens(name: str, parts: Sequence[Any]) -> int:
    return sum(tokens(getattr(part, name)) for part in parts)


Opened = Callable[[int, World, AsyncExitStack], Awaitable[Arms]]
# Rows of the table, with the facts of the store or the number of passages.
DOORS: Final[Mapping[str, tuple[int, Opened]]] = {
    "`CRPMiddleware`, empty store": (0, agent),
    "`CRPMiddleware`, 500 facts": (500, agent),
    "`CRPMiddleware`, 500 facts, a tool step": (500, partial(agent, tool=True)),
    "`CRPRetriever.wrap`, 4 passages": (4, wrapped),
    "`CRPRetriever.wrap`, 20 passages": (20, wrapped),
    "`CRPRetriever.wrap`, 50 passages": (50, wrapped),
    "`CRPNodePostprocessor`, 30 nodes": (30, postprocessor),
    "`CRPRouter`, 140 facts": (140, router),
    "gateway, 1 fact": (1, gateway),
    "gateway, 140 facts": (140, gateway),
    "`DPECallbackHandler`, 4 passages": (4, handler),
    "`CRPQueryEngine`, 140 facts": (140, query_engine),
    "`relay.ask`, 1,000 facts": (1_000, ask),
    "`examine`, 4 passages": (4, examination),
}

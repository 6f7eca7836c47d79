"""Arguments of a wrong kind or value are refused by name when they are given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import litellm
import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core.llms import MockLLM
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery

import crp_integrations.langchain as lc
import crp_integrations.litellm as ll
import crp_integrations.llama_index as li
from crp_integrations.errors import ConfigError, CRPError, RequestError
from tests.adapters.langchain_doubles import Listed
from tests.adapters.langchain_doubles import scripted as chat
from tests.adapters.llama_index_doubles import opened, scripted
from tests.commands import script
from tests.doubles import HashEmbedder
from tests.servers import Double

TEXT = "Dogs and cats are allowed in the house on a written request to the landlord."
QUESTION = "How much power does the Meridian reactor deliver?"
DOCUMENT = Document(TEXT, id="a")
ENTRY = {"model_name": "quoting", "litellm_params": {"model": "extractive"}}
ASKED = [{"role": "user", "content": QUESTION}]
Case = tuple[Callable[[], Any], str]


@pytest.fixture(autouse=True)
def _callbacks() -> Iterator[None]:
    """LiteLLM's lists as they were: each router takes a place in them, and there are 30."""
    names = [name for name in dir(litellm) if name.endswith(("callback", "callbacks"))]
    lists = [one for one in (getattr(litellm, name) for name in names) if isinstance(one, list)]
    before = [list(one) for one in lists]
    yield
    for one, was in zip(lists, before, strict=True):
        one[:] = was


def router(**more: Any) -> ll.CRPRouter:
    return ll.CRPRouter([ENTRY], relay=opened(), **more)


def refused(made: Callable[[], Any], told: str) -> str:
    """The message of an error of ours that holds these words."""
    with pytest.raises(CRPError) as caught:
        made()
    assert told in str(caught.value)
    return str(caught.value)


# --- fields of a component ---------------------------------------------------------------------


COMPONENTS: dict[str, Callable[..., Any]] = {
    "CRPRetriever": lambda **f: lc.CRPRetriever(
        **{"source": Listed(documents=[DOCUMENT]), "model": "gpt-4o", **f}
    ),
    "CRPDocumentCompressor": lambda **f: lc.CRPDocumentCompressor(**{"model": "gpt-4o", **f}),
    "CRPNodePostprocessor": lambda **f: li.CRPNodePostprocessor(**{"model": "gpt-4o", **f}),
    "CRPMemoryBlock": lambda **f: li.CRPMemoryBlock(opened(), **f),
}
MODELS: dict[str, Callable[..., Any]] = {
    "CRPChatModel": lambda **f: lc.CRPChatModel(**{"model": "gpt-4o", **f}),
    "CRPLLM": lambda **f: li.CRPLLM(**{"model": "gpt-4o", **f}),
}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"model": ""}, "model of {taker} is ''"),
        ({"budget_tokens": "many"}, "budget_tokens of {taker} is 'many'"),
        ({"k": 0}, "k of {taker} is 0"),
        ({"budget": 9}, "{taker} has no field 'budget'; it takes "),
    ],
)
@pytest.mark.parametrize("taker", COMPONENTS)
def test_a_field_without_use_is_named_with_its_value(
    taker: str, fields: dict[str, Any], told: str
) -> None:
    said = refused(lambda: COMPONENTS[taker](**fields), told.format(taker=taker))
    assert "pydantic" not in said


@pytest.mark.parametrize("taker", MODELS)
def test_a_model_s_field_without_use_is_named_and_its_key_is_not_shown(taker: str) -> None:
    made = MODELS[taker]
    refused(lambda: made(model=None), f"model of {taker} is None")
    refused(lambda: made(temperature="hot"), f"temperature of {taker} is 'hot'")
    refused(lambda: made(maxtokens=4), f"{taker} has no field 'maxtokens'; it takes ")
    assert "4711" not in refused(lambda: made(api_key=4711), f"api_key of {taker} is of type int")


@pytest.mark.parametrize("value", ["x", 1.5, True, 0])
def test_how_much_is_packed_is_a_whole_number(value: Any) -> None:
    for name in ("budget_tokens", "k"):
        for made in (
            lambda **f: li.CRPRetriever(opened(), model="gpt-4o", **f),
            lambda **f: li.CRPSynthesizer(scripted("a"), **f),
        ):
            refused(lambda: made(**{name: value}), f"{name} is {value!r}, wanted a whole number")  # noqa: B023
    for wrap in (
        lambda: lc.CRPRetriever.wrap(
            InMemoryVectorStore(lc.FabricEmbeddings(HashEmbedder())),
            model="gpt-4o",
            candidates=value,
        ),
        lambda: li.CRPRetriever(opened(), model="gpt-4o", candidates=value),
    ):
        refused(wrap, f"candidates is {value!r}")


# --- an object in whose place something else is given -------------------------------------------


def _shown(context: Any, question: Any) -> None:
    with ll.CRPLogger().shown(context, question):
        pass


def _compress(documents: Any) -> Any:
    compressor = lc.CRPDocumentCompressor(model="gpt-4o")
    return compressor.compress_documents(documents, QUESTION)


def _postprocess(nodes: Any) -> Any:
    return li.CRPNodePostprocessor(model="gpt-4o").postprocess_nodes(nodes, query_str=QUESTION)


# One case of each kind of object, by who is given it.
OBJECTS: dict[str, tuple[Callable[..., Any], str]] = {
    "wrap a folder": (lambda: lc.CRPRetriever.wrap("./kb", model="x"), "source is str, wanted a"),  # type: ignore[arg-type]
    "wrap a relay": (
        lambda: lc.CRPRetriever.wrap(opened(), model="gpt-4o"),  # type: ignore[arg-type]
        "a relay is given as CRPRetriever(relay=…)",
    ),
    "reranker": (lambda: COMPONENTS["CRPRetriever"](reranker="cohere"), "give a Reranker"),
    "compressor": (
        lambda: lc.LangChainReranker(lc.CRPDocumentCompressor, "x"),  # type: ignore[arg-type]
        "compressor is the class CRPDocumentCompressor; give an object",
    ),
    "embedder": (lambda: lc.FabricEmbeddings("minilm"), "embedder is str; give a fabric's"),  # type: ignore[arg-type]
    "embedding": (lambda: lc.CRPVectorStore.from_texts([TEXT], "minilm"), "embedding is str"),  # type: ignore[arg-type]
    "client": (lambda: li.CRPLLM("gpt-4o", client="mine"), "client is str; give a Model"),  # type: ignore[arg-type]
    "reviewer": (lambda: lc.CRPGate(reviewer="bob"), "reviewer is the text 'bob'"),  # type: ignore[arg-type]
    "settings": (lambda: ll.CRPLogger(settings="x"), "settings is of type str"),  # type: ignore[arg-type]
    "emitter": (lambda: li.EmittingHandler("x"), "takes an Emitter"),  # type: ignore[arg-type]
    "max_depth": (lambda: lc.CRPMiddleware(opened(), max_depth="2"), "max_depth is '2'"),  # type: ignore[arg-type]
    "place": (lambda: li.CRPVectorStore("./kb"), "a relay or a namespace, not str"),  # type: ignore[arg-type]
    "folder": (lambda: lc.CRPStore(5), "int was given"),  # type: ignore[arg-type]
    "name": (lambda: lc.CRPDocumentStore(None, name=3), "the collection's name is 3"),  # type: ignore[arg-type]
    "fields": (lambda: lc.CRPStore(None, fields="text"), "fields is the text 'text'; give a list"),
    "ttl": (lambda: lc.CRPStore(None, ttl={"default": 5}), "ttl has no key 'default'; it takes"),  # type: ignore[typeddict-unknown-key]
    "index": (lambda: lc.CRPStore(None, index={"dims": 3}), "fields=[…] says by which paths"),
    "documents": (lambda: _compress("a text"), "documents is str"),
    "document": (lambda: _compress(["a text"]), "document 1 is str; give a Document"),
    "nodes": (lambda: _postprocess("a text"), "nodes is str"),
    "node": (lambda: _postprocess([TextNode(text=TEXT)]), "node 1 is TextNode; give NodeWith"),
    "context": (lambda: _shown(TEXT, None), "context is one string; give an envelope"),
    "facts": (lambda: _shown([3], None), "context 1 is int"),
    "question": (lambda: _shown([TEXT], 3), "question is int, wanted a text"),
    "model list": (lambda: ll.CRPRouter("gpt-4o", relay=opened()), "model_list is str, wanted a"),  # type: ignore[arg-type]
    "entry": (lambda: ll.CRPRouter(["gpt-4o"], relay=opened()), "entry 1 of model_list is not"),  # type: ignore[list-item]
    "group": (lambda: router().completion(None, ASKED), "wanted the name of a group"),  # type: ignore[arg-type]
    "crp": (lambda: router().completion("quoting", ASKED, crp=5), "crp is int"),
    "handler's hook": (lambda: lc.DPECallbackHandler(on_report="log.txt"), "give a function"),  # type: ignore[arg-type]
    "middleware's hook": (lambda: lc.CRPMiddleware(opened(), on_receipt="x"), "give a function"),  # type: ignore[arg-type]
    "listener's hook": (lambda: li.DPEEventHandler(on_receipt="log.txt"), "give a function"),  # type: ignore[arg-type]
    "logger's hook": (lambda: ll.CRPLogger(on_report="log.txt"), "give a function"),  # type: ignore[arg-type]
    "a call's value": (
        lambda: lc.CRPChatModel(model="extractive").invoke("Hello", temperature="hot"),
        "temperature of the call is not usable",
    ),
}


@pytest.mark.parametrize("case", OBJECTS)
def test_what_is_no_such_object_is_named(case: str) -> None:
    refused(*OBJECTS[case])


TURNS: dict[str, Callable[..., Any]] = {
    "CRPRunnable": lambda **f: lc.CRPRunnable(opened(), llm=chat("a"), **f),
    "CRPMiddleware": lambda **f: lc.CRPMiddleware(opened(), **f),
    "CRPQueryEngine": lambda **f: li.CRPQueryEngine(opened(), llm=scripted("a"), **f),
    "CRPAgentLLM": lambda **f: li.CRPAgentLLM(opened(), scripted("a"), **f),
}


@pytest.mark.parametrize("taker", TURNS)
def test_a_question_s_fields_are_looked_at_when_they_are_given(taker: str) -> None:
    refused(lambda: TURNS[taker](policy="halt-on"), "halt-on")
    refused(lambda: TURNS[taker](report_only="stop"), "unknown directive 'stop'")
    refused(lambda: TURNS[taker](budget_tokens="x"), "budget_tokens is not usable")
    refused(lambda: TURNS[taker](strategy="fast"), "strategy")
    if taker != "CRPRunnable":
        # A judge may come with a call of `CRPRunnable`; these others' calls bring none.
        refused(lambda: TURNS[taker](policy="halt-on HIGH"), "unchecked allow")
    TURNS[taker](policy="halt-on HIGH; unchecked allow", budget_tokens=100, strategy=None, k=None)


# --- documents, nodes and answers -----------------------------------------------------------------


def test_a_gate_checks_against_documents_and_names_what_it_cannot() -> None:
    gate = lc.CRPGate("warn-on HIGH", embedder=HashEmbedder())
    assert gate.check(TEXT, [DOCUMENT]).risk_level == gate.check(TEXT, [TEXT]).risk_level  # type: ignore[list-item]
    refused(lambda: gate.check(TEXT, None), "context is NoneType")  # type: ignore[arg-type]
    refused(lambda: gate.check(TEXT, [TEXT], 3), "question is int, wanted a text")  # type: ignore[arg-type]


# --- vector stores -------------------------------------------------------------------------------


LANGCHAIN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "texts": (lambda v: v.add_texts(TEXT), "texts is str"),
    "a number": (lambda v: v.add_texts([3]), "item 1 is int, wanted a text"),
    "metadatas": (lambda v: v.add_texts([TEXT], {"a": 1}), "metadatas is dict"),
    "delete": (lambda v: v.delete("ab"), "ids is the text 'ab'; give a list"),
    "k": (lambda v: v.similarity_search("dogs", k="2"), "k is '2', wanted a whole number"),
    "vector": (lambda v: v.similarity_search_by_vector("dogs"), "the vector is a text"),
}


@pytest.mark.parametrize("case", LANGCHAIN)
def test_a_langchain_vector_store_says_what_it_cannot_take(case: str) -> None:
    ask, told = LANGCHAIN[case]
    store = lc.CRPVectorStore(opened())
    store.add_texts([TEXT, TEXT + " Birds too."], ids=["a", "b"])
    refused(lambda: ask(store), told)
    assert len(store.get_by_ids(["a", "b"])) == 2, "nothing was deleted"


def _asked(**fields: Any) -> VectorStoreQuery:
    vector = HashEmbedder().embed_query("dogs").tolist()
    return VectorStoreQuery(query_embedding=vector, **{"similarity_top_k": 2, **fields})


LLAMA_INDEX: dict[str, tuple[Callable[[Any], Any], str]] = {
    "one node": (lambda v: v.add(TextNode(text=TEXT)), "nodes is TextNode, wanted a list"),
    "delete": (lambda v: v.delete(None), "a document's id is NoneType"),
    "filters": (lambda v: v.get_nodes(filters={"a": 1}), "filters is dict; give MetadataFilters"),
    "query": (lambda v: v.query("dogs"), "query is str; give a VectorStoreQuery"),
    "mode": (lambda v: v.query(_asked(mode="hybrid")), "query mode 'hybrid' is not one of"),
}


@pytest.mark.parametrize("case", LLAMA_INDEX)
def test_a_llama_index_vector_store_says_what_it_cannot_take(case: str) -> None:
    ask, told = LLAMA_INDEX[case]
    store = li.CRPVectorStore(opened())
    store.add([TextNode(id_="a", text=TEXT), TextNode(id_="b", text=TEXT + " Birds too.")])
    refused(lambda: ask(store), told)
    assert len(store.get_nodes(["a", "b"])) == 2, "nothing was deleted"


def test_a_mode_by_its_word_is_that_mode() -> None:
    """`default` as a text went the way of `mmr`, which chooses other nodes."""
    store = li.CRPVectorStore(opened())
    near = [TextNode(id_=f"n{n}", text=f"{TEXT} dogs dogs {'.' * n}") for n in range(3)]
    store.add([*near, TextNode(id_="far", text="The rent is due on the first day of each month.")])
    wanted = store.query(_asked(similarity_top_k=3)).ids
    assert store.query(_asked(similarity_top_k=3, mode="default")).ids == wanted


# --- stores of values ----------------------------------------------------------------------------


STORES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "put": (lambda s: s.put("users", "k", {"a": "b"}), "namespace is the text 'users'"),
    "erase": (lambda s: s.erase("users"), "give a tuple, as ('users',)"),
    "index": (lambda s: s.put(("users",), "k", {"a": "b"}, index="a"), "index is the text 'a'"),
    "ttl": (lambda s: s.put(("users",), "k", {"a": "b"}, ttl="5"), "ttl is '5'"),
    "filter": (lambda s: s.search(("users",), filter="a"), "filter is str, wanted a dict"),
}


@pytest.mark.parametrize("case", STORES)
def test_a_store_says_what_it_cannot_take(case: str) -> None:
    """A text in a namespace's place is a tuple of letters, and nothing under it is erased."""
    ask, told = STORES[case]
    store = lc.CRPStore(None, embedder=HashEmbedder())
    store.put(("users",), "there", {"text": TEXT})
    refused(lambda: ask(store), told)
    assert [item.key for item in store.search(())] == ["there"]


# --- LiteLLM --------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["strategy", "safety_budget", "oversight", "pinned"])
def test_a_question_s_field_is_no_argument_of_litellm(field: str) -> None:
    """A policy among them was passed over, and went to the provider as an argument."""
    told = f"{field} is a field of the question; give it with each call, as crp={{'{field}': …}}"
    refused(lambda: router().completion("quoting", ASKED, **{field: "halt-on HIGH"}), told)
    refused(lambda: router(**{field: "halt-on HIGH"}), told)


def test_litellm_s_own_cache_is_still_an_argument() -> None:
    said = router().completion("quoting", ASKED, cache={"no-cache": True})
    assert "412 megawatts" in said.choices[0].message.content
    refused(lambda: router().completion("quoting", ASKED, cache="no-store"), "cache is a field")


@pytest.mark.parametrize("given", ["./kb", None, 5])
def test_a_proxy_s_hook_takes_a_relay_or_a_function(given: Any) -> None:
    hook = pytest.importorskip("crp_integrations.litellm.proxy").CRPProxyHook
    refused(lambda: hook(given), "CRPProxyHook takes a relay, as Relay.open(…) gives it, or a func")
    refused(lambda: hook(type(opened())), "or a function that gives the relay of a key, not type")
    for fields in ({"safety_budget": "x"}, {"k": "x"}, {"strategy": "agentic"}):
        refused(lambda: hook(opened(), **fields), next(iter(fields)))  # noqa: B023
    refused(lambda: hook(opened(), polic="x"), "CRPProxyHook has no field 'polic'")


def test_an_argument_that_a_model_does_not_take_is_named(server: Double) -> None:
    """LiteLLM refuses it before any call; its class alone told nobody which one it was."""
    params = {"model": "openai/gpt-4o", "api_base": server.url, "api_key": "sk-test"}
    entry = {"model_name": "main", "litellm_params": params}
    called = ll.CRPRouter([entry], relay=opened(), num_retries=0)
    told = "model 'main' takes no reasoning_effort, thinking; leave it out, or ask another model"
    further = {"reasoning_effort": "low", "thinking": {"type": "enabled", "budget_tokens": 9}}
    refused(lambda: called.completion("main", ASKED, **further), told)
    assert not server.requests
    refused(lambda: ll.CRPRouter([], relay=opened()).completion("main", ASKED), "the list has none")


# Of a relay alone, by the name that the message gives it.
RELAYS: dict[str, Callable[[Any], Any]] = {
    "CRPRunnable": lambda given: lc.CRPRunnable(given),
    "CRPMiddleware": lambda given: lc.CRPMiddleware(given, max_depth=2),
    "DPECallbackHandler": lambda given: lc.DPECallbackHandler(relay=given),
    "CRPQueryEngine": lambda given: li.CRPQueryEngine(given),
    "CRPAgentLLM": lambda given: li.CRPAgentLLM(given, MockLLM()),
    "CRPMemoryBlock": lambda given: li.CRPMemoryBlock(given),
    "DPEEventHandler": lambda given: li.DPEEventHandler(relay=given),
    "CRPRouter": lambda given: ll.CRPRouter([], relay=given),
}


@pytest.mark.parametrize("given", ["./kb", 5])
@pytest.mark.parametrize("taker", RELAYS)
def test_what_is_no_relay_is_refused(taker: str, given: Any) -> None:
    with pytest.raises(RequestError, match=rf"{taker} takes a relay.*{type(given).__name__}"):
        RELAYS[taker](given)


def test_what_is_no_chat_model_is_refused() -> None:
    relay = opened()
    with pytest.raises(RequestError, match="llm is str, wanted a chat model"):
        lc.CRPRunnable(relay, llm="gpt-4o")  # type: ignore[arg-type]
    for made in (li.CRPAgentLLM, lambda *given: li.CRPQueryEngine(given[0], llm=given[1])):
        with pytest.raises(RequestError, match="llm is str, wanted an LLM of LlamaIndex"):
            made(relay, "gpt-4o")
    with pytest.raises(RequestError, match="llm is NoneType, wanted an LLM of LlamaIndex"):
        li.CRPSynthesizer(None, model="gpt-4o")  # type: ignore[arg-type]


def test_a_gate_stands_around_whatever_langchain_calls_a_chain() -> None:
    with pytest.raises(RequestError, match="the chain is str"):
        lc.CRPGate.around("chain")  # type: ignore[arg-type]

    def answer(question: str) -> dict[str, Any]:
        return {"answer": "It opened in 1957.", "context": ["Plant 7 opened in 1957."]}

    guarded = lc.CRPGate.around(answer, "warn-on HIGH")  # type: ignore[arg-type]
    assert guarded.invoke("When did plant 7 open?")["answer"] == "It opened in 1957."


def test_what_llama_index_writes_of_a_component_is_still_read() -> None:
    packing = li.CRPNodePostprocessor(model="gpt-4o", budget_tokens=200)
    assert li.CRPNodePostprocessor.from_dict(packing.to_dict()).budget_tokens == 200
    assert li.CRPNodePostprocessor.from_json(packing.to_json()).budget_tokens == 200
    assert li.CRPNodePostprocessor(**packing.model_dump()).budget_tokens == 200
    model = li.CRPLLM("gpt-4o", max_tokens=9)
    assert li.CRPLLM.from_dict(model.to_dict()).max_tokens == 9


# --- the model that needs no key --------------------------------------------------------------


# Each in a process of its own, of those that one begins which has the frameworks loaded.
SCRIPT = """
import os, sys
from crp_integrations.langchain import CRPChatModel
from crp_integrations.llama_index import CRPLLM

def langchain(name):
    model = CRPChatModel(model=name)
    return model.invoke("x").text, "".join(piece.text for piece in model.stream("x"))

def llama_index(name):
    model = CRPLLM(name)
    streamed = "".join(piece.delta for piece in model.stream_complete("x"))
    return model.complete("x").text, streamed

for asked in (langchain, llama_index):
    for name in ("extractive", "extractive/best"):
        child = os.fork()
        if not child:
            print(*asked(name), sep="\\n", flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, (asked, name)
"""
UNANSWERED = "The context does not contain an answer to this question."


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_it_answers_as_a_chat_model_by_both_of_its_names() -> None:
    """Not in this process, where making a router taught LiteLLM the name."""
    done = script("-c", SCRIPT)
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout.splitlines() == [UNANSWERED] * 8


def test_it_stands_in_a_model_list_by_its_bare_name() -> None:
    entry = {"model_name": "quoting", "litellm_params": {"model": "extractive"}}
    relay = opened()
    router = ll.CRPRouter([entry], relay=relay)
    asked = [{"role": "user", "content": "How much power does the Meridian reactor deliver?"}]
    assert "412 megawatts" in router.completion("quoting", asked).choices[0].message.content
    assert entry["litellm_params"] == {"model": "extractive"}


# --- nothing of CRP goes to a provider ----------------------------------------------------------


def test_an_option_of_crp_goes_to_no_provider() -> None:
    with pytest.raises(ConfigError, match="'crp_policy' would send CRP metadata to a provider"):
        lc.CRPChatModel(model="gpt-4o", options={"crp_policy": "halt-on HIGH"})
    for model in (
        lambda: lc.CRPChatModel(model="gpt-4o", api_key="x").invoke("Hello", crp={"policy": "x"}),
        lambda: li.CRPLLM("gpt-4o", api_key="x").complete("Hello", crp={"policy": "x"}),
    ):
        with pytest.raises(ConfigError, match="'crp' would send CRP metadata to a provider"):
            model()

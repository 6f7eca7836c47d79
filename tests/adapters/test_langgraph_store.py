"""CRPStore: the cases of LangGraph's own store tests, and what a fabric adds to them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.tools import InjectedStore, ToolRuntime
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_tests.integration_tests.base_store import BaseStoreAsyncTests, BaseStoreSyncTests
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from crp_integrations import Relay
from crp_integrations.errors import RequestError
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.langchain import CRPDocumentStore, CRPMiddleware, CRPStore
from crp_integrations.stores.memory import MemoryStore
from tests.adapters.langchain_doubles import FACTS, Chat, no_metadata, opened, prompts
from tests.doubles import NOON, FixedClock, HashEmbedder
from tests.relay.conftest import KEY

OWN = {"embedder": HashEmbedder(), "key": KEY}


def store_of(place: Any = None, **options: Any) -> CRPStore:
    clock = options.pop("clock", None) or FixedClock()
    return CRPStore(place, **{"clock": clock, **OWN, **options})


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> CRPStore:
    return store_of(None if request.param == "memory" else tmp_path / "kept")


# --- LangGraph's own cases ---------------------------------------------------------------


async def test_the_asynchronous_way_does_the_same(store):
    await store.aput(("a",), "k", {"text": "one"})
    assert (await store.aget(("a",), "k")).value == {"text": "one"}
    assert [item.key for item in await store.asearch(("a",))] == ["k"]
    assert await store.alist_namespaces() == [("a",)]
    assert (await store.abatch([GetOp(("a",), "k")]))[0].key == "k"
    await store.adelete(("a",), "k")
    assert await store.aget(("a",), "k") is None


def test_an_update_keeps_when_it_was_made():
    clock = FixedClock()
    store = store_of(clock=clock)
    store.put(("test",), "key", {"data": "value1"})
    clock.moment += timedelta(minutes=1)
    store.put(("test",), "key", {"data": "value2"})
    item = store.get(("test",), "key")
    assert item.value == {"data": "value2"}
    assert (item.created_at, item.updated_at) == (NOON, NOON + timedelta(minutes=1))


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        ({"tag": "a"}, {"k1", "k3"}),
        ({"tag": "a", "score": 3}, {"k3"}),
        ({"score": {"$gt": 1.5}}, {"k2", "k3"}),
        ({"score": {"$gte": 2, "$lt": 3}}, {"k2"}),
        ({"score": {"$lte": 1}}, {"k1"}),
        ({"tag": {"$ne": "a"}}, {"k2", "k4"}),
        ({"tag": {"$eq": "b"}}, {"k2"}),
        ({"day": {"$gt": "2026-01-31"}}, {"k2"}),
        ({"in": {"city": "Rome"}}, {"k3"}),
        ({"list": [1, {"a": 2}]}, {"k3"}),
        ({"missing": None}, {"k1", "k2", "k3", "k4"}),
        ({"tag": {"$gt": 1}}, set()),
        ({"tag": "A"}, set()),
        (None, {"k1", "k2", "k3", "k4"}),
    ],
    # In one order under any hash seed, so that processes that share a run collect the same tests.
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_filters(wanted, keys):
    store = store_of()
    values = {
        "k1": {"tag": "a", "score": 1, "day": "2026-01-30"},
        "k2": {"tag": "b", "score": 2, "day": "2026-02-01"},
        "k3": {
            "tag": "a",
            "score": 3,
            "in": {"city": "Rome", "zip": 1},
            "list": [1, {"a": 2, "b": 3}],
        },
        "k4": {"tag": None},
    }
    for key, value in values.items():
        store.put(("f", "deep"), key, value)
    assert {item.key for item in store.search(("f",), filter=wanted)} == keys
    assert {item.key for item in store.search((), filter=wanted, query="anything")} == keys


def test_a_filter_with_an_operator_that_there_is_not_is_refused(store):
    store.put(("f",), "k", {"a": 1})
    with pytest.raises(RequestError, match=r"\$near"):
        store.search(("f",), filter={"a": {"$near": 1}})


def test_pages_cover_everything_once():
    clock = FixedClock()
    store = store_of(clock=clock)
    for n in range(23):
        clock.moment += timedelta(seconds=1)
        store.put(("p", str(n % 3)), f"k{n:02}", {"n": n})
    for query in (None, "n"):
        pages = [store.search(("p",), limit=5, offset=at, query=query) for at in range(0, 25, 5)]
        assert [len(page) for page in pages] == [5, 5, 5, 5, 3]
        assert {item.key for page in pages for item in page} == {f"k{n:02}" for n in range(23)}
    assert store.search(("p",), limit=1)[0].key == "k22", "those written last come first"
    assert store.search(("p",), limit=0) == []
    assert store.search(("p",), offset=99) == []
    assert store.search(("nowhere",)) == []


NAMESPACES = [
    ("a", "b", "c"),
    ("a", "b", "d", "e"),
    ("a", "b", "d", "i"),
    ("a", "b", "f"),
    ("a", "c", "f"),
    ("b", "a", "f"),
    ("users", "123"),
    ("users", "456", "settings"),
]


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        ({}, NAMESPACES),
        ({"prefix": ("a", "b")}, NAMESPACES[:4]),
        ({"suffix": ("f",)}, [("a", "b", "f"), ("a", "c", "f"), ("b", "a", "f")]),
        ({"prefix": ("a",), "suffix": ("f",)}, [("a", "b", "f"), ("a", "c", "f")]),
        ({"prefix": ("a", "*", "f")}, [("a", "b", "f"), ("a", "c", "f")]),
        ({"suffix": ("*", "settings")}, [("users", "456", "settings")]),
        (
            {"prefix": ("a", "b"), "max_depth": 3},
            [("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f")],
        ),
        ({"limit": 2, "offset": 1}, NAMESPACES[1:3]),
        ({"max_depth": 1}, [("a",), ("b",), ("users",)]),
        ({"prefix": ("z",)}, []),
        ({"prefix": ("a", "b", "c", "d", "e")}, []),
    ],
    ids=str,
)
def test_namespaces_are_listed(options, listed):
    store = store_of()
    for namespace in NAMESPACES:
        store.put(namespace, "k", {"at": 1})
    store.put(("empty",), "k", {"at": 1})
    store.delete(("empty",), "k")
    assert store.list_namespaces(**options) == listed


def test_a_condition_is_a_prefix_or_a_suffix(store):
    store.put(("a",), "k", {"at": 1})
    with pytest.raises(RequestError, match="middle"):
        store.batch([ListNamespacesOp(match_conditions=(MatchCondition("middle", ("a",)),))])


def test_namespaces_that_are_none_are_refused(store):
    for namespace in ((), ("langgraph", "foo"), ("a.b",), ("a", "")):
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "k", {"a": 1})
    for namespace in ((), ("a", ""), ("a", 1)):
        with pytest.raises(RequestError, match="namespace"):
            store.batch([PutOp(namespace, "k", {"a": 1})])
    with pytest.raises(RequestError, match="operation"):
        store.batch(["put"])


@pytest.mark.parametrize("value", ["a text", ["a", "list"], 3])
def test_a_value_that_is_no_dict_is_refused_and_nothing_is_put(store, value):
    with pytest.raises(RequestError, match=f"'k' is {type(value).__name__}, wanted a dict"):
        store.batch([PutOp(("a",), "good", {"a": 1}), PutOp(("a",), "k", value)])
    assert store.search(("a",)) == []


LIVES = {
    "doc1": {"text": "short text about animals"},
    "doc2": {"text": "a longer text about the growing of tulips in the garden"},
    "doc3": {"text": "the reactor delivers power to the northern grid"},
}


def test_a_query_finds_by_meaning(store):
    for key, value in LIVES.items():
        store.put(("docs",), key, value)
    found = store.search(("docs",), query="the reactor power grid")
    assert found[0].key == "doc3"
    assert found[0].score > found[1].score
    assert len(found) == 3
    store.put(("docs",), "doc3", {"text": "nothing of the sort about animals"})
    assert store.search(("docs",), query="reactor grid northern delivers")[0].key != "doc3"
    assert store.search((), query="tulips in the garden", limit=1)[0].key == "doc2"
    assert store.search(("other",), query="tulips") == []


def test_each_field_finds_its_item(store):
    value = {
        "name": "Anna Berger",
        "notes": [{"said": "likes old trains"}, {"said": "grows tulips in the garden"}],
        "secret": "the vault opens with seven keys",
    }
    store.put(("people",), "anna", value, index=["name", "notes[*].said"])
    store.put(("people",), "bert", {"name": "the vault opens slowly"}, index=["name"])
    assert store.search(("people",), query="grows tulips garden")[0].key == "anna"
    assert store.search(("people",), query="old trains")[0].key == "anna"
    first = store.search(("people",), query="the vault opens with seven keys")[0]
    assert first.key == "bert", "a field that is not named finds nothing"
    store.put(("people",), "anna", {"name": "Anna Berger"}, index=["name"])
    assert store.search(("people",), query="grows tulips garden")[0].score < 0.5


def test_what_is_not_indexed_comes_last_and_without_a_score(store):
    store.put(("docs",), "dark", {"text": "the reactor power grid"}, index=False)
    store.put(("docs",), "gone", {"text": "the reactor"}, index=["no.such.field"])
    store.put(("docs",), "seen", {"text": "something else about gardens"})
    found = store.search(("docs",), query="the reactor power grid")
    assert found[0].key == "seen"
    assert {(item.key, item.score) for item in found[1:]} == {("dark", None), ("gone", None)}
    assert store.get(("docs",), "dark").value == {"text": "the reactor power grid"}
    assert len(store.search(("docs",), query="reactor", limit=1)) == 1


def test_default_fields_are_set_once():
    store = store_of(fields=["text"])
    store.put(("d",), "one", {"text": "about the garden", "other": "reactor power grid"})
    store.put(("d",), "two", {"text": "about the reactor", "other": "garden"})
    assert store.search(("d",), query="about the garden")[0].key == "one"


@pytest.mark.parametrize(
    "value",
    [
        {"text": "日本語のテキスト"},
        {"emoji": "🌷", "quote": "\"'\\", "none": None},
        {"deep": {"list": [1, 2.5, True, {"a": []}]}, "": "empty key"},
        {},
        {"a": "x"},
        {"long": "The garden has a hundred tulips and a rose. " * 400},
        {"lines": "\n\n \t \n", "control": "\u0000\u0001"},
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_value_comes_back_as_it_was(store, value):
    store.put(("v", "日本 / ü", "a%2Fb"), "schlüssel/#1", value)
    item = store.get(("v", "日本 / ü", "a%2Fb"), "schlüssel/#1")
    assert (item.value, item.key, item.namespace) == (
        value,
        "schlüssel/#1",
        ("v", "日本 / ü", "a%2Fb"),
    )
    assert store.search(("v",), query="tulips")[0].value == value
    assert store.list_namespaces() == [("v", "日本 / ü", "a%2Fb")]
    store.delete(("v", "日本 / ü", "a%2Fb"), "schlüssel/#1")
    assert store.namespace.size() == 0


def test_a_value_that_is_no_json_is_refused_and_nothing_is_written(store):
    with pytest.raises(RequestError, match="'day'"):
        store.batch([PutOp(("v",), "a", {"x": 1}), PutOp(("v",), "b", {"day": NOON})])
    assert store.search(()) == []


def test_a_long_value_is_found_by_any_part_and_shrinks_without_leftovers(store):
    parts = [
        f"The station number {n} of the northern line was opened in {1900 + n}." for n in range(90)
    ]
    store.put(("long",), "k", {"text": "\n\n".join(parts)}, index=["text"])
    store.put(("long",), "other", {"text": "Tulips grow in gardens."}, index=["text"])
    assert store.namespace.size() > 5
    found = store.search(("long",), query="station number 77 northern line opened 1977")
    assert [item.key for item in found] == ["k", "other"], "each item once"
    store.put(("long",), "k", {"text": "short"}, index=["text"])
    assert store.namespace.size() == 2


# --- time to live ------------------------------------------------------------------------


def test_a_time_to_live_is_a_number(store):
    with pytest.raises(RequestError, match="nan"):
        store.put(("t",), "k", {"a": 1}, ttl=float("nan"))
    store.put(("t",), "k", {"a": 1}, ttl=1e300)
    assert store.get(("t",), "k").value == {"a": 1}


def test_items_live_for_their_minutes_after_they_were_last_touched():
    clock = FixedClock()
    store = store_of(clock=clock)
    store.put(("t",), "short", {"a": "short-lived"}, ttl=10)
    store.put(("t",), "ever", {"a": "long-lived"})
    clock.moment += timedelta(minutes=9)
    assert store.get(("t",), "short") is not None
    clock.moment += timedelta(minutes=9)
    item = store.get(("t",), "short", refresh_ttl=False)
    assert item is not None, "the first read let it live on"
    assert item.updated_at == NOON, "a read is no update"
    clock.moment += timedelta(minutes=2)
    assert store.get(("t",), "short") is None
    assert [one.key for one in store.search(("t",))] == ["ever"]
    assert [one.key for one in store.search(("t",), query="short-lived")] == ["ever"]
    assert store.namespace.size() == 2, "out of sight, and not yet deleted"
    assert store.sweep_ttl() == 1
    assert store.namespace.size() == 1
    assert store.sweep_ttl() == 0


def test_a_search_lets_items_live_on_and_a_put_begins_anew():
    clock = FixedClock()
    store = store_of(clock=clock, ttl={"default_ttl": 10, "refresh_on_read": True})
    store.put(("t",), "k", {"a": 1})
    clock.moment += timedelta(minutes=9)
    store.search(("t",))
    clock.moment += timedelta(minutes=9)
    assert store.list_namespaces() == [("t",)]
    clock.moment += timedelta(minutes=9)
    assert store.get(("t",), "k") is None
    assert store.list_namespaces() == []
    store.put(("t",), "k", {"a": 2})
    item = store.get(("t",), "k")
    assert item.created_at == item.updated_at == clock.moment, "the old one had gone"
    store.put(("t",), "k", {"a": 3}, ttl=None)
    clock.moment += timedelta(days=99)
    assert store.get(("t",), "k").value == {"a": 3}


def test_reads_do_not_let_items_live_on_where_that_is_so_configured():
    clock = FixedClock()
    store = store_of(clock=clock, ttl={"default_ttl": 10, "refresh_on_read": False})
    store.put(("t",), "k", {"a": 1})
    before = store.namespace.state_hash()
    clock.moment += timedelta(minutes=9)
    assert store.get(("t",), "k") is not None
    assert store.namespace.state_hash() == before
    clock.moment += timedelta(minutes=2)
    assert store.get(("t",), "k") is None


# --- what a fabric adds ------------------------------------------------------------------


def test_it_is_there_after_it_was_opened_again_and_in_other_processes(tmp_path):
    store_of(tmp_path / "kept").put(("users", "anna"), "likes", {"text": "old trains"})
    again = store_of(tmp_path / "kept")
    assert again.get(("users", "anna"), "likes").value == {"text": "old trains"}
    assert again.search(("users",), query="old trains")[0].key == "likes"


def test_tenants_see_nothing_of_each_other(tmp_path):
    stores = {
        name: store_of(tmp_path / "kept", subject=Subject(tenant=name))
        for name in ("acme", "other")
    }
    stores["acme"].put(("users",), "anna", {"text": "the secret of acme"})
    other = stores["other"]
    assert other.get(("users",), "anna") is None
    assert other.search(()) == other.search((), query="the secret of acme") == []
    assert other.list_namespaces() == []
    other.put(("users",), "anna", {"text": "of the other"})
    other.delete(("users",), "anna")
    assert stores["acme"].get(("users",), "anna").value == {"text": "the secret of acme"}


class Staff:
    """Lets those read `staff` who are of the staff."""

    name = "staff@1"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        allowed = "staff" not in labels or "staff" in subject.roles
        return Decision(allowed=allowed, guard=self.name, reason="")


def test_labels_keep_items_from_those_who_may_not_read_them():
    place = MemoryStore()
    options = {"guard": Staff(), **OWN, "clock": FixedClock()}
    staff = Subject(tenant="t", roles=("staff",))
    inner = CRPStore(place, subject=staff, labels=["staff"], **options)
    inner.put(("notes",), "k", {"text": "for the staff alone"})
    outer = CRPStore(place, subject=Subject(tenant="t", name="guest"), **options)
    assert outer.get(("notes",), "k") is None
    assert outer.search((), query="for the staff alone") == [] == outer.list_namespaces()
    assert inner.get(("notes",), "k") is not None


def test_what_is_erased_is_in_no_file(tmp_path):
    folder = tmp_path / "kept"
    store = store_of(folder)
    store.put(("users", "anna"), "secret", {"text": "xylophone-4711 is the word of Anna"})
    store.put(("users", "bert"), "word", {"text": "something of Bert that stays"})
    assert _holding(folder, b"xylophone-4711")
    assert store.erase(("users", "anna")) == 1
    assert not _holding(folder, b"xylophone-4711")
    assert store.list_namespaces() == [("users", "bert")]
    store.put(("users", "anna"), "secret", {"text": "another word"})
    assert store.get(("users", "anna"), "secret").value == {"text": "another word"}


def _holding(folder, text):
    return [path for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


def test_a_relay_is_refused_and_its_namespace_is_knowledge():
    relay = opened()
    with pytest.raises(RequestError, match="everybody"):
        CRPStore(relay)
    with pytest.raises(RequestError, match="subject"):
        CRPStore(relay.fabric, subject=Subject(tenant="t"))
    store = CRPStore(relay.fabric)
    store.put(
        ("plants",),
        "valley",
        {"text": "The Valley reactor delivers 77 megawatts since May."},
        ["text"],
    )
    assert (
        "77 megawatts"
        in relay.turn("What does the Valley reactor deliver?", model="gpt-4o").preview().text
    )
    relay.verify()


def test_writers_at_the_same_time_lose_nothing(tmp_path):
    store = store_of(tmp_path / "kept")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.put(("w", str(n % 4)), f"k{n}", {"n": n}), range(40)))
        assert {item.value["n"] for item in store.search(("w",), limit=99)} == set(range(40))
        list(pool.map(lambda n: store.put(("w",), "same", {"n": n}), range(16)))
    assert store.get(("w",), "same").value["n"] in range(16)


KEYS = st.sampled_from(["a", "b", "c"])
PATHS = st.sampled_from([("x",), ("x", "y"), ("z",)])
VALUES = st.one_of(st.none(), st.builds(lambda n: {"n": n}, st.integers(0, 3)))
# By hand, since hypothesis would fill in the fields that have defaults.
OPS = st.one_of(
    st.tuples(PATHS, KEYS, VALUES).map(lambda given: PutOp(*given)),
    st.tuples(PATHS, KEYS).map(lambda given: GetOp(*given)),
    st.tuples(PATHS, VALUES).map(lambda given: SearchOp(*given, 99)),
    st.just(ListNamespacesOp()),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(OPS, max_size=4), max_size=6))
def test_it_answers_as_langgraphs_own_store(batches):
    ours, theirs = store_of(), InMemoryStore()
    for batch in batches:
        for one, other in zip(ours.batch(batch), theirs.batch(batch), strict=True):
            assert _told(one) == _told(other)


def _told(result):
    if isinstance(result, list):
        told = [_told(one) for one in result]
        # LangGraph lists a namespace whose items are all gone; ours tells what is there.
        return sorted((one for one in told if len(one) == 3), key=repr)
    if result is None or isinstance(result, tuple):
        return result
    return result.namespace, result.key, result.value


# --- in agents and graphs ----------------------------------------------------------------


@tool
def remember(text: str, store: Annotated[Any, InjectedStore()]) -> str:
    """Remember something."""
    store.put(("memories",), text[:8], {"text": text})
    return "It is remembered from now on, and will be found by anybody who asks for it."


@tool
def recall(query: str, runtime: ToolRuntime) -> str:
    """Recall something."""
    return "; ".join(
        item.value["text"] for item in runtime.store.search(("memories",), query=query, limit=1)
    )


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_an_agent_remembers_beyond_a_thread(way, tmp_path):
    said = "Anna likes the old trains of the northern line, and travels by them every summer."

    def reply(messages):
        if messages[-1].type == "tool":
            return messages[-1].text
        asks = "recall" if "What" in messages[-1].text else "remember"
        args = {"query": "Anna trains"} if asks == "recall" else {"text": said}
        return AIMessage(
            "", tool_calls=[{"name": asks, "args": args, "id": "1", "type": "tool_call"}]
        )

    model = Chat(reply=reply)
    relay = opened()
    for text in ("Remember that.", "What does Anna like?"):
        # Another process each time: nothing but the folder goes on.
        agent = create_agent(
            model,
            [remember, recall],
            middleware=[CRPMiddleware(relay)],
            store=store_of(tmp_path / "kept"),
        )
        ask = {"messages": [("user", text)]}
        result = await agent.ainvoke(ask) if way == "ainvoke" else agent.invoke(ask)
    last = result["messages"][-1]
    assert last.content == said
    assert last.response_metadata["crp"]["risk_level"] == "LOW", "what a tool recalled is context"
    assert no_metadata(prompts(model))
    store_of(tmp_path / "kept").namespace.doctor()


async def test_nodes_of_a_graph_share_it():
    def write(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        store.put(("notes",), "k", {"text": state["messages"][-1].content})
        return {}

    async def read(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        (item,) = await store.asearch(("notes",), query="written")
        return {"messages": [AIMessage("read: " + item.value["text"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("write", write)
    graph.add_node("read", read)
    graph.add_edge(START, "write")
    graph.add_edge("write", "read")
    graph.add_edge("read", END)
    compiled = graph.compile(store=store_of())
    results = await asyncio.gather(
        *(compiled.ainvoke({"messages": [("user", "what was written")]}) for _ in range(3))
    )
    assert {result["messages"][-1].content for result in results} == {"read: what was written"}


# --- the key-value store of LangChain ------------------------------------------------------

DOCUMENTS = (
    Document("A short one."),
    Document("The station was opened in 1900. " * 300, metadata={"source": "a", "n": 1}),
    Document(FACTS[0], id="own-id"),
)


def documents() -> CRPDocumentStore:
    return CRPDocumentStore(clock=FixedClock(), **OWN)


class TestBaseStoreSuite(BaseStoreSyncTests[Document]):
    @pytest.fixture
    def three_values(self):
        return DOCUMENTS

    @pytest.fixture
    def kv_store(self):
        return documents()


class TestBaseStoreAsyncSuite(BaseStoreAsyncTests[Document]):
    @pytest.fixture
    def three_values(self):
        return DOCUMENTS

    @pytest.fixture
    async def kv_store(self):
        return documents()


def test_whole_documents_behind_their_chunks(tmp_path):
    parents = CRPDocumentStore(tmp_path / "parents", clock=FixedClock(), **OWN)
    parents.mset([("lease", DOCUMENTS[1]), ("lease", DOCUMENTS[2]), ("other", DOCUMENTS[0])])
    again = CRPDocumentStore(tmp_path / "parents", clock=FixedClock(), **OWN)
    assert again.mget(["lease", "none", "other"]) == [DOCUMENTS[2], None, DOCUMENTS[0]]
    assert list(again.yield_keys(prefix="l")) == ["lease"]
    named = CRPDocumentStore(again.namespace, name="another")
    assert named.mget(["lease"]) == [None]
    with pytest.raises(RequestError, match="not a Document"):
        again.mset([("k", "text")])
    with pytest.raises(RequestError, match="name"):
        CRPDocumentStore(name="")


def test_a_store_of_each_kind_in_one_namespace_keeps_to_itself():
    parents = documents()
    store = CRPStore(parents.namespace)
    parents.mset([("k", DOCUMENTS[0])])
    store.put(("documents",), "k", {"a": 1})
    assert parents.mget(["k"]) == [DOCUMENTS[0]]
    assert store.search((), query="A short one")[0].value == {"a": 1}
    assert store.list_namespaces() == [("documents",)]
    store.delete(("documents",), "k")
    assert parents.mget(["k"]) == [DOCUMENTS[0]]


def test_the_relay_of_its_own_is_an_ordinary_one(tmp_path):
    store_of(tmp_path / "kept").put(("a",), "k", {"text": "The garden has a hundred tulips."})
    with Relay.open(tmp_path / "kept", clock=NOON, **OWN) as relay:
        relay.verify()
        assert relay.fabric.doctor().findings == ()

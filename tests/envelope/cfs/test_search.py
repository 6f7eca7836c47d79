"""Hybrid search, assembly from a fabric, the cache, and determinism under threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from blake3 import blake3

from crp_integrations.envelope.cfs.assembly import (
    CacheKey,
    ContextCache,
    assemble_context,
    verify_properties,
)
from crp_integrations.envelope.cfs.pack import ModelTokenizer, SimpleTokenizer
from crp_integrations.envelope.cfs.records import AssembledContext, AssemblySettings, TokenBudget
from crp_integrations.envelope.cfs.search import SearchedChunks, hybrid_search, rrf
from crp_integrations.errors import StoreBusy
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Block, Document, Fact
from crp_integrations.fabric.search.vector_index import Hit
from crp_integrations.fabric.view import FabricView
from crp_integrations.guard.decisions import LOCAL
from crp_integrations.seals import sha256
from tests.doubles import NOON, FixedClock, HashEmbedder, WordCounter
from tests.envelope.builders import open_fabric
from tests.envelope.cfs.builders import made

BUDGET = TokenBudget.new(2000)
SETTINGS = AssemblySettings()
PAGES = {
    "file:///docs/consensus.md": (
        "Proof of stake is a consensus mechanism where validators are selected by their stake.",
        "Validators lock tokens as collateral, which can be slashed for malicious behaviour.",
        "Byzantine fault tolerance lets the network reach consensus with malicious participants.",
    ),
    "file:///docs/a%20tree.md": (
        "Merkle trees provide efficient verification of data integrity in a blockchain network.",
        "Each leaf of the tree is the hash of a block of data, and each node hashes its children.",
    ),
}
QUERY = "blockchain consensus"


def document(uri: str, texts: tuple[str, ...]) -> Document:
    starts = [sum(len(text) + 2 for text in texts[:n]) for n in range(len(texts))]
    return Document(
        uri=uri,
        title=uri,
        blocks=tuple(Block(text=t, start=s) for t, s in zip(texts, starts, strict=True)),
        document_hash=sha256("".join(texts)),
    )


class Watching(HashEmbedder):
    """Counts the questions that it embeds."""

    asked = 0

    def embed_query(self, text):
        self.asked += 1
        return super().embed_query(text)


def bound(clock: FixedClock | None = None) -> Namespace:
    return open_fabric(Watching(), clock).bind(LOCAL)


@pytest.fixture
def namespace() -> Namespace:
    made = bound()
    # One passage a fact.
    for uri, texts in PAGES.items():
        for number, text in enumerate(texts):
            start = sum(len(t) + 2 for t in texts[:number])
            made.add(
                [Fact(content=text, source_id=uri, source_location=f"{start}-{start + len(text)}")]
            )
    return made


def search(namespace: FabricView, query: str = QUERY, **choices) -> SearchedChunks:
    return hybrid_search(
        namespace, query, tokenizer=SimpleTokenizer(), settings=AssemblySettings(**choices)
    )


def assembled(namespace: FabricView, query: str = QUERY, **choices) -> AssembledContext:
    return assemble_context(
        query, namespace, BUDGET, now=NOON, settings=AssemblySettings(**choices)
    )


# --- search ----------------------------------------------------------------------------


class Recorded:
    """A view that remembers what a search asked of it."""

    def __init__(self, namespace: Namespace) -> None:
        self.inner = namespace
        self.calls: list[tuple[str, int]] = []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def nearest(self, vector, k, where=None):
        self.calls.append(("nearest", k))
        return self.inner.nearest(vector, k, where)

    def search_text(self, query, k, where=None):
        self.calls.append(("search_text", k))
        return self.inner.search_text(query, k, where)


@pytest.mark.requirement("CFS-11-1", "CFS-11-2")
def test_both_searches_are_asked_for_their_fifty_first(namespace):
    watched = Recorded(namespace)
    context = assemble_context(QUERY, watched, BUDGET, now=NOON)
    assert watched.calls == [("nearest", 50), ("search_text", 50)]
    assert (SETTINGS.semantic_k, SETTINGS.lexical_k, SETTINGS.top_k) == (50, 50, 100)
    assert context.chunks


@pytest.mark.requirement("CFS-2-1", "CFS-Parallel-1")
def test_a_score_is_the_sum_of_the_reciprocal_ranks(namespace):
    found = search(namespace)
    near = [h.fact_id for h in namespace.nearest(namespace.embedder.embed_query(QUERY), 50)]
    worded = [h.fact_id for h in namespace.search_text(QUERY, 50)]
    assert 0 < len(worded) < len(near) == 5
    for result in found.results:
        id_ = result.chunk.id
        expected = 1 / (60 + near.index(id_) + 1)
        if id_ in worded:
            expected += 1 / (60 + worded.index(id_) + 1)
            assert result.lexical_score > 0
        else:
            assert result.lexical_score == 0.0
        assert result.score == pytest.approx(expected)
    assert rrf([["a", "b"], ["b"], []], 10) == {"a": 1 / 11, "b": 1 / 12 + 1 / 11}


def test_documents_bear_the_path_and_chunks_their_place_of_ingested_files():
    namespace = bound()
    namespace.ingest([document(uri, texts) for uri, texts in PAGES.items()])
    context = assembled(namespace, include_metadata=True)
    assert {chunk.document_path for chunk in context.chunks} == {
        "/docs/consensus.md", "/docs/a tree.md",
    }  # fmt: skip
    assert "[DOC: /docs/a tree.md]\n" in context.text
    for chunk in context.chunks:
        location = chunk.metadata.about["location"]
        assert location.split("-")[0] == str(chunk.sequence) == str(chunk.metadata.byte_offset)
    assert context.metadata.state_root == namespace.state_hash()


def test_only_the_sources_of_what_was_found_are_read(namespace):
    every = namespace.sources()
    assert len(every) == 2
    for source in every:
        assert namespace.sources({source.source_id, "no such source"}) == [source]
    assert namespace.sources(()) == []

    class Asked(Recorded):
        def sources(self, ids=None):
            self.calls.append(("sources", sorted(ids)))
            return self.inner.sources(ids)

    watched = Asked(namespace)
    found = search(watched, semantic_k=1, lexical_k=0)
    (result,) = found.results
    assert watched.calls[-1] == ("sources", [result.document.id])


@pytest.mark.requirement("CFS-7-1")
def test_passages_of_a_document_stand_in_its_own_order(namespace):
    context = assembled(namespace)
    for uri, texts in PAGES.items():
        assert [c.text for c in context.chunks if c.document_id == uri] == list(texts)


@pytest.mark.requirement("CFS-Config-5")
def test_a_document_that_was_changed_lately_is_preferred():
    clock = FixedClock(NOON - timedelta(days=900))
    namespace = bound(clock)
    near = "A blockchain reaches consensus, blockchain consensus, when its validators all agree."
    far = "A blockchain is extended by one of its validators after another, whoever holds a stake."
    namespace.add([Fact(content=near, source_id="old")])
    clock.moment = NOON
    namespace.add([Fact(content=far, source_id="new")])
    assert [c.document_path for c in assembled(namespace).chunks] == ["user:old", "user:new"]
    recent = assembled(namespace, prefer_recent=True)
    assert [c.document_path for c in recent.chunks] == ["user:new", "user:old"]
    assert "cfs-recent@1" in recent.algorithms


def test_an_empty_fabric_gives_an_empty_context():
    namespace = bound()
    context = assembled(namespace)
    assert (context.text, context.chunks, context.truncated) == ("", (), False)
    assert namespace.embedder.asked == 0


def test_a_fabric_that_changes_while_it_is_read_is_read_again(namespace):
    class Restless(Recorded):
        left = 2

        def search_text(self, query, k, where=None):
            if self.left:
                self.left -= 1
                self.inner.add(
                    [
                        f"Validators of a blockchain reach consensus in round number {len(self.calls)}."
                    ]
                )
            return super().search_text(query, k, where)

    watched = Restless(namespace)
    found = search(watched)
    assert found.generation == namespace.generation()
    assert found.state_root == namespace.state_hash()
    assert namespace.embedder.asked == 1
    watched.left = 3
    with pytest.raises(StoreBusy, match="3 attempts"):
        search(watched)


def test_counts_of_a_model_are_kept_by_the_fabric(namespace):
    class Counting(WordCounter):
        texts = 0

        def count_many(self, texts):
            self.texts += len(texts)
            return super().count_many(texts)

    counter = Counting()
    for _ in range(2):
        context = assemble_context(QUERY, namespace, BUDGET, ModelTokenizer(counter), now=NOON)
    assert counter.texts == 5
    assert context.total_tokens == sum(counter.count(c.text) for c in context.chunks)
    assert context.tokenizer == "words@1"


@pytest.mark.requirement("CFS-1-1", "CFS-11-3")
def test_the_pipeline_runs_in_its_order(namespace):
    # A duplicate of lower rank costs no budget, groups follow the best chunk, headers come last.
    copy = PAGES["file:///docs/consensus.md"][0]
    namespace.add([Fact(content=copy, source_id="z-copy")])
    context = assembled(namespace)
    assert context.algorithms == (
        "rrf@1", "cfs-order@1", "cfs-dedup@1", "cfs-greedy@1", "cfs-format@1", "cfs-whole@1",
    )  # fmt: skip
    assert context.text.count(copy) == 1
    (dropped,) = context.dropped
    assert dropped.reason == "duplicate"
    results = list(search(namespace).results)
    assert context.text == made(results, BUDGET).text
    paths = [line for line in context.text.splitlines() if line.startswith("[DOC:")]
    assert len(paths) == len({c.document_id for c in context.chunks})


# --- determinism and parallel search ---------------------------------------------------


@pytest.mark.requirement("CFS-TV-Determinism-1", "CFS-P1-1")
def test_the_determinism_vector(namespace):
    settings = AssemblySettings(separator="")
    runs = [
        assemble_context("blockchain consensus", namespace, BUDGET, now=NOON, settings=settings)
        for _ in range(2)
    ]
    chunks, texts, hashes, roots = (
        {pick(run) for run in runs}
        for pick in (
            lambda run: tuple(c.chunk_id for c in run.chunks),
            lambda run: run.text,
            lambda run: run.text_hash,
            lambda run: run.metadata.state_root,
        )
    )
    assert len(chunks) == len(texts) == len(hashes) == len(roots) == 1
    (text,), (text_hash,) = texts, hashes
    assert text_hash == "blake3:" + blake3(text.encode()).hexdigest()
    assert text.startswith("[DOC: ")
    assert "\n\n" not in text
    assert namespace.embedder.asked == 2


@pytest.mark.requirement("CFS-12-1", "CFS-12-2")
def test_determinism_is_verified_by_assembling_twice(namespace):
    context = verify_properties(QUERY, namespace, BUDGET, now=NOON)
    assert context.properties.deterministic is True
    assert namespace.embedder.asked == 2

    class Flickering(Recorded):
        odd = False

        def nearest(self, vector, k, where=None) -> list[Hit]:
            self.odd = not self.odd
            return super().nearest(vector, 1 if self.odd else k, where)

    few = AssemblySettings(lexical_k=0)
    assert assembled(namespace).properties.deterministic is None
    assert context.text == assembled(namespace).text
    flickering = verify_properties(QUERY, Flickering(namespace), BUDGET, now=NOON, settings=few)
    assert flickering.properties.deterministic is False


@pytest.mark.requirement("CFS-Parallel-1", "CFS-Parallel-2")
@pytest.mark.parametrize("packing", ["greedy", "interleaved", "score_weighted"])
def test_searching_at_once_gives_the_same_bytes(namespace, packing):
    pool = ThreadPoolExecutor(1)
    contexts = [
        assemble_context(
            QUERY,
            namespace,
            BUDGET,
            now=NOON,
            settings=AssemblySettings(packing=packing),
            pool=searching,
        ).model_dump_json()
        for searching in (None, pool)
    ]
    assert contexts[0] == contexts[1]


@pytest.mark.requirement("CFS-P1-1")
def test_threads_get_equal_contexts(namespace):
    cache = ContextCache(1)
    alone = {q: assembled(namespace, q).model_dump_json() for q in (QUERY, "a tree of hashes")}

    def ask(query: str) -> str:
        return assemble_context(query, namespace, BUDGET, now=NOON, cache=cache).model_dump_json()

    with ThreadPoolExecutor(8) as pool:
        queries = list(alone) * 16
        assert list(pool.map(ask, queries)) == [alone[query] for query in queries]
    assert len(cache) == 1


# --- the cache -------------------------------------------------------------------------


def cached(
    namespace: FabricView, cache: ContextCache, query: str = QUERY, **fields
) -> AssembledContext:
    budget = fields.pop("budget", BUDGET)
    tokenizer = fields.pop("tokenizer", SimpleTokenizer())
    scope = fields.pop("scope", "")
    return assemble_context(
        query, namespace, budget, tokenizer, now=NOON, cache=cache, scope=scope,
        settings=AssemblySettings(**fields),
    )  # fmt: skip


@pytest.mark.requirement("CFS-Caching-2")
def test_an_equal_question_is_not_assembled_again(namespace):
    cache = ContextCache(8)
    first = cached(namespace, cache)
    asked = namespace.embedder.asked
    assert cached(namespace, cache) is first
    assert namespace.embedder.asked == asked
    assert len(cache) == 1


@pytest.mark.requirement("CFS-Caching-1")
def test_the_key_holds_everything_that_decides_the_bytes(namespace):
    cache = ContextCache(99)
    first = cached(namespace, cache)
    others = (
        {"query": "blockchain consensus?"},
        {"budget": TokenBudget.new(1900)},
        {"budget": TokenBudget.new(2000, AssemblySettings(per_doc_overhead=11))},
        {"packing": "interleaved"},
        {"tokenizer": ModelTokenizer(WordCounter())},
        {"dedup_threshold": 0.9},
        {"max_chunks_per_doc": 1},
        {"separator": ""},
        {"scope": "another"},
    )
    for number, fields in enumerate(others, start=2):
        assert cached(namespace, cache, **fields) is not first
        assert len(cache) == number
    namespace.add(["Consensus in a blockchain is reached by validators, as this new fact says."])
    changed = cached(namespace, cache)
    assert changed.metadata.state_root != first.metadata.state_root
    assert first.metadata.query_hash == "blake3:" + blake3(QUERY.encode()).hexdigest()


def key(query: str, generation: int = 1, scope: str = "") -> CacheKey:
    return CacheKey(scope, generation, f"root {generation}", query)


@pytest.mark.requirement("CFS-Caching-3")
def test_the_least_recently_used_context_goes_first():
    cache, context = ContextCache(2), made([])
    for query in ("one", "two"):
        cache.put(key(query), context)
    assert cache.get(key("one")) is context
    cache.put(key("three"), context)
    assert len(cache) == 2
    assert cache.get(key("two")) is None
    assert cache.get(key("one")) is cache.get(key("three")) is context
    none = ContextCache(0)
    none.put(key("one"), context)
    assert (len(none), none.get(key("one"))) == (0, None)


def test_contexts_of_an_older_state_are_let_go():
    cache, context = ContextCache(9), made([])
    cache.put(key("one"), context)
    cache.put(key("one", scope="other"), context)
    assert cache.get(key("two", generation=2)) is None
    assert len(cache) == 1
    # What a slower thread brings of the older state is not kept.
    cache.put(key("one"), context)
    assert len(cache) == 1
    assert cache.get(key("one", scope="other")) is context


def test_what_was_erased_is_in_no_context_and_in_no_cache(namespace):
    cache = ContextCache(9)
    text = PAGES["file:///docs/a%20tree.md"][0]
    assert text in cached(namespace, cache).text
    (fact,) = [h.fact_id for h in namespace.search_text("Merkle trees", 1)]
    namespace.quarantine([fact], "Wrong.")
    assert text not in cached(namespace, cache).text
    assert len(cache) == 1


def test_threads_share_a_bounded_cache():
    cache, context = ContextCache(3), made([])

    def work(number: int) -> int:
        for turn in range(50):
            cache.put(key(str((number + turn) % 7)), context)
            cache.get(key(str(turn % 7)))
        return len(cache)

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(work, range(8))) <= 3

"""`relay.ingest` takes what LangChain and LlamaIndex load, as one source is one source."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from langchain_core.documents import Document as LangChainDocument
from llama_index.core import Document as LlamaIndexDocument
from llama_index.core.node_parser import SentenceSplitter

from crp_integrations import Relay
from crp_integrations.errors import IngestError
from crp_integrations.fabric.records import Where, source_id
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import FactStatus, SourceKind, SourceStatus
from tests.doubles import NOON, FixedClock, HashEmbedder
from tests.relay.conftest import FACTS, KEY

TEXT = "\n\n".join(FACTS)


@pytest.fixture(params=["memory", "sqlite"])
def relay(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Relay]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")
    with Relay.open(
        store,
        embedder=HashEmbedder(),
        key=KEY,
        clock=FixedClock(),
        # One fact a paragraph.
        fabric={"chunking": {"join_up_to_tokens": 0}},
    ) as opened:
        yield opened


def langchain(text: str, **metadata) -> LangChainDocument:
    return LangChainDocument(text, metadata={"source": "docs/a.txt", **metadata})


def llama_index(text: str, **metadata) -> LlamaIndexDocument:
    return LlamaIndexDocument(text=text, metadata={"source": "docs/a.txt", **metadata})


def contents(relay: Relay, **where) -> list[str]:
    fabric = relay.fabric
    return sorted(fact.content for fact in fabric.facts(fabric.find(Where(**where))))


@pytest.mark.requirement("009-4.5-1", "009-4.5-3", "009-2-5")
@pytest.mark.parametrize("make", [langchain, llama_index])
def test_a_document_becomes_a_source_with_its_hash_metadata_and_count(relay, make):
    report = relay.ingest(make(TEXT, author="B"), kind="official")
    assert report.sources == (source_id("docs/a.txt"),)
    (source,) = relay.fabric.sources()
    assert source.uri == "docs/a.txt"
    assert source.document_hash == sha256(TEXT)
    assert source.metadata == {"source": "docs/a.txt", "author": "B"}
    assert (source.kind, source.status) == (SourceKind.OFFICIAL, SourceStatus.ACTIVE)
    assert source.fact_count == len(report.facts) == relay.fabric.size()
    answer = relay.ask("Which gardens grow tulips and roses?", model="extractive")
    assert FACTS[4] in answer.text


def test_both_frameworks_and_a_second_time_make_the_same_source(relay):
    first = relay.ingest([langchain(TEXT)])
    again = relay.ingest([llama_index(TEXT)])
    assert again.facts == ()
    assert again.unchanged == ("docs/a.txt",)
    assert again.state_hash == first.state_hash


@pytest.mark.requirement("009-4.5-4", "009-4.5-5", "009-4.5-6", "009-2.2-1", "009-2.2-4")
@pytest.mark.parametrize("make", [langchain, llama_index])
def test_an_update_keeps_what_stayed_marks_what_is_gone_and_takes_back_what_returns(relay, make):
    relay.ingest(make("\n\n".join(FACTS[:3])))
    kept = relay.fabric.facts(relay.fabric.find(Where()))
    new = FACTS[2].replace("$4.2 million", "$4.9 million")
    report = relay.ingest(make("\n\n".join([*FACTS[:2], new])))
    assert contents(relay, statuses=(FactStatus.STALE,)) == [FACTS[2]]
    assert contents(relay, statuses=(FactStatus.ACTIVE,)) == sorted([*FACTS[:2], new])
    (fact,) = relay.fabric.facts(report.facts)
    assert fact.source_id == source_id("docs/a.txt")
    assert fact.content_hash not in {old.content_hash for old in kept}
    (source,) = relay.fabric.sources()
    assert (source.status, source.fact_count) == (SourceStatus.UPDATED, 3)
    back = relay.ingest(make("\n\n".join(FACTS[:3])))
    assert contents(relay, statuses=(FactStatus.ACTIVE,)) == sorted(FACTS[:3])
    assert len(back.returned) == 1
    assert back.facts == ()


def test_what_a_splitter_made_of_one_document_is_one_source(relay):
    long = "\n\n".join(f"{fact} It is noted in entry {n}." for n, fact in enumerate(FACTS * 6))
    # As a splitter of LangChain makes them: metadata of the page, and where the piece begins.
    pieces = [langchain(part, page=0, start_index=long.index(part)) for part in long.split("\n\n")]
    nodes = SentenceSplitter(chunk_size=128, chunk_overlap=0).get_nodes_from_documents(
        [LlamaIndexDocument(text=long, id_="whole")]
    )
    assert len(pieces) > 2
    assert len(nodes) > 2
    relay.ingest([*pieces, *nodes])
    assert [s.uri for s in sorted(relay.fabric.sources(), key=lambda s: s.uri)] == [
        "docs/a.txt",
        "document:whole",
    ]
    places = {fact.source_location for fact in relay.fabric.facts(
        relay.fabric.find(Where(sources=(source_id("docs/a.txt"),))))}  # fmt: skip
    assert all(place.startswith("p. 1 ") for place in places)
    relay.fabric.erase(source_id("document:whole"))
    assert {fact.source_id for fact in relay.fabric.facts(relay.fabric.find(Where()))} == {
        source_id("docs/a.txt")
    }


def test_one_bad_document_leaves_the_store_as_it_was(relay):
    before = relay.fabric.state_hash()
    with pytest.raises(IngestError, match="document 2 has metadata 'when' of type date"):
        relay.ingest(
            [langchain(TEXT), LangChainDocument(FACTS[0], metadata={"when": date(2026, 1, 1)})]
        )
    with pytest.raises(IngestError, match="twice with different content"):
        relay.ingest(
            [langchain(TEXT), LangChainDocument("x", metadata={"source": "b"}), langchain("y")]
        )
    with pytest.raises(IngestError, match="int cannot be ingested"):
        relay.ingest([langchain(TEXT), 3])
    assert relay.fabric.state_hash() == before
    assert relay.fabric.sources() == []


def test_paths_and_documents_go_in_together_and_from_a_generator(relay, tmp_path):
    (tmp_path / "b.md").write_text(FACTS[3])
    report = relay.ingest(item for item in (tmp_path / "b.md", langchain(TEXT)))
    assert set(report.sources) == {source_id((tmp_path / "b.md").as_uri()), source_id("docs/a.txt")}
    assert relay.fabric.sources()[0].ingested_at == NOON

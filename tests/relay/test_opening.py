"""Opening a relay and putting documents in: what is refused, what runs, what is made of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document as LangChainDocument
from llama_index.core import Document as LlamaIndexDocument
from llama_index.core.node_parser import SentenceSplitter

from crp_integrations import Relay
from crp_integrations.errors import AccessDenied, ConfigError, EngineError, IngestError, StoreBusy
from crp_integrations.fabric.records import Fact, Where, source_id
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.guard.settings import GuardSettings
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import FactStatus, SourceKind, SourceStatus
from tests.doubles import NOON, FixedClock, HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS, KEY, Opener


class Other(HashEmbedder):
    identity = "other/32"


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The roots of the stores that were closed."""
    roots: list[Path] = []
    close = SqliteStore.close

    def watched(self: SqliteStore) -> None:
        roots.append(self.root)
        close(self)

    monkeypatch.setattr(SqliteStore, "close", watched)
    return roots


def test_a_relay_that_cannot_be_opened_leaves_no_store_open(
    tmp_path: Path, closed: list[Path]
) -> None:
    with Relay.open(tmp_path / "kb", embedder=HashEmbedder(), key=KEY) as relay:
        relay.add([FACTS[0]])
    closed.clear()
    regions = {"eu": tmp_path / "eu"}
    with pytest.raises(ConfigError, match="embedder"):
        Relay.open(tmp_path / "kb", embedder=Other(), key=KEY, regions=regions)
    assert sorted(closed) == [tmp_path / "eu", tmp_path / "kb"]
    closed.clear()
    with pytest.raises(ConfigError, match="unheard"):
        Relay.open(tmp_path / "kb", embedder=HashEmbedder(), key=KEY, unheard=1)
    assert closed == [tmp_path / "kb"]


def test_a_store_of_the_callers_own_stays_open(tmp_path: Path, closed: list[Path]) -> None:
    store = SqliteStore(tmp_path / "kb")
    with pytest.raises(AccessDenied):
        Relay.open(store, subject=Subject(tenant=""), embedder=HashEmbedder(), key=KEY)
    assert closed == []
    with Relay.open(store, embedder=HashEmbedder(), key=KEY) as relay:
        relay.add([FACTS[0]])
        assert relay.fabric.size() == 1
    # Two relays may share it, one after the other or at once.
    assert closed == []
    with Relay.open(store, embedder=HashEmbedder(), key=KEY) as relay:
        assert relay.fabric.size() == 1
    store.close()


QUESTION = "Who operates the Meridian reactor?"


@pytest.mark.parametrize(
    ("argument", "given", "said"),
    [
        ("models", "gpt-4o", "models is the text 'gpt-4o'; .* a name goes into model="),
        ("models", ScriptedModel, "models is the class ScriptedModel"),
        ("verifier", "alignment", r"verifier is the text 'alignment'; .* dpe=\{'verifier'"),
        ("subject", "acme", r"subject is the text 'acme'; .* Subject\(tenant='acme'\)"),
        ("guard", True, r"guard is of type bool; .* guard=\{'policy': True\}"),
        ("embedder", "minilm", "embedder is the text 'minilm'"),
        ("reranker", 5, "reranker is of type int"),
        ("injections", "rules", "injections is the text 'rules'"),
        ("policy", 5, "policy is of type int"),
        ("recognisers", "presidio", "recognisers is the text 'presidio'; give a list"),
        ("recognisers", ["presidio"], "recognisers is the text 'presidio'; give a list"),
        ("tracer", "otel", "tracer is the text 'otel'"),
        ("clock", 5, "clock is of type int"),
        ("ids", 5, "ids is of type int"),
        ("reviewer", True, "reviewer is of type bool; give a function"),
        ("receiver", "http://x", "receiver is of type str; give a function"),
        ("violations", "http://x", "violations is of type str"),
        ("artifacts", "s3://bucket", r"artifacts is of type str; .* artifacts=\{'place'"),
        ("settings", {"model": "extractive"}, "settings is of type dict; .* by their names"),
    ],
)
def test_what_is_no_part_is_named_with_what_to_give(argument: str, given: Any, said: str) -> None:
    options = {"embedder": HashEmbedder(), "key": KEY, argument: given}
    with pytest.raises(ConfigError, match=f"^{said}"):
        Relay.open(None, **options)


@pytest.mark.parametrize("argument", ["artifacts", "keyring", "receiver", "settings", "violations"])
def test_a_key_in_the_place_of_a_part_is_not_repeated(argument: str) -> None:
    with pytest.raises(ConfigError, match=f"^{argument} is of type str") as caught:
        Relay.open(None, **{argument: KEY})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("guard", [{"policy": True}, GuardSettings(policy=True)])
def test_a_guard_is_given_by_its_settings_too(open_relay: Opener, guard: Any) -> None:
    relay = open_relay(guard=guard)
    with pytest.raises(AccessDenied, match="it carries no label"):
        relay.add([FACTS[0]])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"modle": "gpt-4o"}, "setting 'modle' is unknown; did you mean 'model'?"),
        (
            {"dpe": {"verifer": "x"}},
            "setting 'dpe.verifer' is unknown; did you mean 'dpe.verifier'?",
        ),
        ({"bananas": 1}, "setting 'bananas' is unknown"),
    ],
)
def test_an_unknown_setting_is_told_with_the_nearest(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Relay.open(None, **given)
    assert str(caught.value) == said


def test_a_policy_of_ones_own_with_an_error_is_refused_at_opening(tmp_path: Path) -> None:
    pytest.importorskip("regopy")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "access.rego").write_text('package crp.access\n\ndecision := {"allow": true\n')
    with pytest.raises(ConfigError, match=r"guard\.bundle '.*mine' .* access\.rego, line [13]$"):
        Relay.open(SqliteStore(tmp_path / "kb"), key=KEY, guard={"bundle": folder})
    (folder / "access.rego").write_text(
        'package crp.access\n\ndecision := {"allow": true, "reason": "", "redact": []}\n'
    )
    with Relay.open(None, embedder=HashEmbedder(), key=KEY, guard={"bundle": folder}) as relay:
        assert relay.preview(QUESTION).facts_available == 0


LATER = NOON + timedelta(days=2)


class ReadOnly:
    name = "read-only"

    def decide(self, subject: Any, action: str, labels: tuple[str, ...]) -> Decision:
        return Decision(allowed=action == "read", guard=self.name, reason="reading only")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")


def state(root: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file that holds something, with time and bytes; marks in shared memory left out."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith("-shm") and path.stat().st_size
    }


def statuses(relay: Relay, ids: Any) -> list[FactStatus]:
    return [fact.status for fact in relay.fabric.facts(ids)]


@pytest.mark.requirement("009-2.2-8", "009-8.1-1", "009-8.1-2")
def test_opening_runs_what_is_due(open_relay: Opener, store: Any) -> None:
    first = open_relay(store)
    ids = first.fabric.add([Fact(content=FACTS[0], ttl="P1D"), FACTS[1]]).facts
    later = open_relay(store, clock=LATER)
    assert statuses(later, ids) == [FactStatus.STALE, FactStatus.ACTIVE]
    report = later.ask("Which reactor delivers 412 megawatts?")
    packed = {fact.fact_id: fact for fact in report.envelope.facts}
    assert packed[ids[0]].freshness_score == 0.0
    assert packed[ids[1]].freshness_score > 0.0


def test_opening_writes_nothing_when_nothing_is_due(open_relay: Opener, tmp_path: Path) -> None:
    root = tmp_path / "kb"
    with open_relay(root) as first:
        first.fabric.add(list(FACTS))
        generation = first.fabric.generation()
    with open_relay(root):
        pass
    before = state(root)
    with open_relay(root, clock=LATER) as relay:
        assert relay.fabric.generation() == generation
        assert state(root) == before
    assert state(root) == before


def test_opening_a_folder_that_is_not_there_makes_none(open_relay: Opener, tmp_path: Path) -> None:
    with open_relay(tmp_path / "kb", clock=LATER):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["setting", "guard"])
def test_opening_leaves_a_store_alone_where_it_shall_or_must(
    open_relay: Opener, store: Any, how: str
) -> None:
    first = open_relay(store)
    ids = first.fabric.add([Fact(content=FACTS[0], ttl="P1D")]).facts
    before = first.fabric.state_hash()
    options: dict[str, Any] = (
        {"fabric": FabricSettings(maintain_on_open=False)}
        if how == "setting"
        else {"guard": ReadOnly()}
    )
    later = open_relay(store, clock=LATER, **options)
    # A view says that the ttl has run out; what is stored says what it said.
    assert statuses(later, ids) == [FactStatus.STALE]
    assert later.fabric.state_hash() == before


@pytest.mark.parametrize("error", [StoreBusy, EngineError])
def test_maintenance_that_fails_is_put_off_and_the_log_says_so(
    open_relay: Opener, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    class Busy(MemoryStore):
        locked = False

        def begin(self, namespace: str, *, write: bool = True) -> Any:
            if write and self.locked:
                raise error("not now")
            return super().begin(namespace, write=write)

    store = Busy()
    first = open_relay(store)
    ids = first.fabric.add([Fact(content=FACTS[0], ttl="P1D")]).facts
    before = first.fabric.state_hash()
    store.locked = True
    with caplog.at_level(logging.WARNING, logger="crp_integrations.relay"):
        later = open_relay(store, clock=LATER)
    assert statuses(later, ids) == [FactStatus.STALE]
    assert later.fabric.state_hash() == before
    assert ["put off" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.requirement("009-2-6", "009-6.2-4")
def test_each_inclusion_in_an_envelope_counts_once_and_changes_no_hash(
    open_relay: Opener, store: Any
) -> None:
    clock = FixedClock()
    relay = open_relay(store, clock=clock)
    ids = relay.fabric.add(list(FACTS)).facts
    hashed, generation = relay.fabric.state_hash(), relay.fabric.generation()
    used: dict[str, int] = dict.fromkeys(ids, 0)
    last: dict[str, Any] = dict.fromkeys(ids)
    for hours, query in enumerate(
        ["Who operates the Meridian reactor?", "Northfield revenue?"] * 2
    ):
        clock.moment = NOON + timedelta(hours=hours)
        envelope = relay.ask(query, k=2).envelope
        assert 0 < len(envelope.facts) < len(ids)
        for fact in envelope.facts:
            used[fact.fact_id] += 1
            last[fact.fact_id] = clock.moment
    relay.preview("What of the gardens?")
    facts = relay.fabric.facts(ids)
    assert {fact.fact_id: fact.access_count for fact in facts} == used
    assert {fact.fact_id: fact.last_accessed_at for fact in facts} == last
    assert 0 in used.values()
    assert {fact.modified_at for fact in facts} == {NOON}
    assert (relay.fabric.state_hash(), relay.fabric.generation()) == (hashed, generation)


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

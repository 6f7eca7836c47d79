"""Passages of long documents are cut once, and put down under no name while they are ingested."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.errors import StoreError
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.ingest import batch
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.records import Block, StreamedDocument, Where
from crp_integrations.seals import sha256
from crp_integrations.stores import files
from crp_integrations.stores.files import (
    FileScratch,
    memory_scratch,
    scratch_beside,
    temporary_scratch,
)
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from tests.doubles import HashEmbedder
from tests.fabric.keeping import ACME, fabric, sentence

MANY = 120


class Streamed:
    """A document that counts how often it is cut."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self.passes = 0
        self.name = name
        self.lines = lines

    def blocks(self) -> Iterator[Block]:
        self.passes += 1
        start = 0
        for number, line in enumerate(self.lines):
            yield Block(text=line, start=start, page=1 + number // 10, heading=f"Part {number}")
            start += len(line) + 2

    def given(self) -> StreamedDocument:
        hashed = sha256("".join(self.lines))
        return StreamedDocument(
            uri=f"test:{self.name}", title="a", document_hash=hashed, blocks=self.blocks
        )


def lines(*more: str) -> list[str]:
    return [sentence(number) + " \u05e9\u05dc\u05d5\u05dd \U0001f600" for number in range(MANY)] + [
        *more
    ]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kb")
    with closing(made):
        yield made


@pytest.fixture(autouse=True)
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every document were long."""
    monkeypatch.setattr(batch, "_HELD_CHARACTERS", 1_000)


def told(namespace: Namespace) -> list[dict[str, Any]]:
    found = namespace.facts(namespace.find(Where()))
    return sorted((fact.model_dump(mode="json") for fact in found), key=lambda one: one["fact_id"])


def test_a_long_document_is_cut_once(store: Store) -> None:
    document, other = (
        Streamed("a", lines()),
        Streamed("b", lines("A line that ends the other one.")),
    )
    namespace = fabric(store).bind(ACME)
    report = namespace.ingest([document.given(), other.given()])
    assert len(report.facts) >= 2 * MANY
    assert (document.passes, other.passes) == (1, 1)
    # So is the one that has changed, of which a few passages alone are wanted.
    changed = Streamed("a", lines("A sentence is new and stands at the very end of the document."))
    again = namespace.ingest([changed.given(), other.given()])
    assert 0 < len(again.facts) < 5
    assert (changed.passes, other.passes) == (1, 1)


def test_what_is_put_down_is_stored_as_what_is_held(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = fabric(store).bind(ACME)
    namespace.ingest([Streamed("a", lines()).given()])
    monkeypatch.setattr(batch, "_HELD_CHARACTERS", 10_000_000)
    held = fabric(MemoryStore()).bind(ACME)
    held.ingest([Streamed("a", lines()).given()])
    assert told(namespace) == told(held)


def test_nothing_of_it_has_a_name_or_stays(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    class Looking(HashEmbedder):
        def embed_passages(self, texts: Any) -> Any:
            seen.append(sorted(path.name for path in tmp_path.iterdir()))
            return super().embed_passages(texts)

    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0
    with closing(SqliteStore(tmp_path / "kb")) as store:
        fabric(store, embedder=Looking()).bind(ACME).ingest([Streamed("a", lines()).given()])
    assert seen
    assert all(set(names) <= {"kb"} for names in seen)
    assert (len(list(Path("/proc/self/fd").iterdir())) if before else 0) <= before


@pytest.mark.parametrize("room", [0, 1_000, 8_000])
def test_a_disk_without_room_for_it_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    class Full(FileScratch):
        def put(self, data: bytes) -> int | None:
            return None if self._end + len(data) > room else super().put(data)

    class Small(MemoryStore):
        def scratch(self) -> FileScratch:
            return Full(memory_scratch()._file)

    document = Streamed("a", lines())
    made: Fabric = fabric(Small())
    namespace = made.bind(ACME)
    namespace.ingest([document.given()])
    plain = fabric(MemoryStore()).bind(ACME)
    plain.ingest([Streamed("a", lines()).given()])
    assert document.passes > 1
    assert told(namespace) == told(plain)


def test_a_store_without_a_scratch_cuts_again() -> None:
    class Plain(MemoryStore):
        scratch = None  # type: ignore[assignment]

    document = Streamed("a", lines())
    namespace = fabric(Plain()).bind(ACME)
    namespace.ingest([document.given()])
    assert document.passes > 1
    assert namespace.size() >= MANY


def test_a_scratch_gives_back_what_was_put(tmp_path: Path) -> None:
    for made in (
        scratch_beside(tmp_path / "deep" / "not" / "there"),
        temporary_scratch(),
        memory_scratch(),
    ):
        assert made is not None
        with closing(made):
            places = [made.put(data) for data in (b"one", b"", b"three")]
            assert places == [0, 3, 3]
            assert made.get(3, 5) == b"three"
            assert made.get(0, 3) == b"one"
            assert made.put(b"four") == 8
            with pytest.raises(StoreError, match="gave 4 of 9 bytes"):
                made.get(8, 9)
    assert list(tmp_path.iterdir()) == []


def test_where_no_file_can_be_made_there_is_no_scratch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.tempfile, "TemporaryFile", refused)
    assert scratch_beside(tmp_path) is None
    with closing(SqliteStore(tmp_path / "kb")) as store:
        namespace = fabric(store).bind(ACME)
        namespace.ingest([Streamed("a", lines()).given()])
        assert namespace.size() >= MANY


def test_a_full_disk_is_noticed_when_it_is_written() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with Path("/dev/full").open("r+b", buffering=0) as file:
        assert FileScratch(file).put(b"text") is None

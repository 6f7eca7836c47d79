"""When the files of the embedded store are written anew; the rest is in the conformance suite."""

from __future__ import annotations

from pathlib import Path

from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.testing.fixtures import NAMESPACE
from tests.conformance.erasure import Archive, keep_file


def bytes_of(folder: Path) -> bytes:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return b"".join(path.read_bytes() for path in files)


def test_before_scrubbing_something_is_left(tmp_path: Path) -> None:
    """What the conformance suite looks for is there to be found."""
    archive, store = Archive(9), SqliteStore(tmp_path / "kb")
    ids = archive.add(store, NAMESPACE, 50)
    assert archive.found(bytes_of(tmp_path)) == {*ids}
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.remove(ids)
    assert archive.found(bytes_of(tmp_path)) == {*ids}
    assert store.scrub(NAMESPACE) is True
    assert archive.found(bytes_of(tmp_path)) == set()


def test_a_reader_of_the_old_state_puts_scrubbing_off(tmp_path: Path) -> None:
    archive, store = Archive(2), SqliteStore(tmp_path / "kb", busy_seconds=0.05)
    ids = archive.add(store, NAMESPACE, 20)
    with store.begin(NAMESPACE, write=False) as reader:
        assert len(reader.facts.retrievable()) == 20
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove(ids[:10])
        assert store.scrub(NAMESPACE) is False
        assert len(reader.facts.get(ids)) == 20
    assert store.scrub(NAMESPACE) is True
    assert archive.found(bytes_of(tmp_path)) == {*ids[10:]}


def test_scrubbing_does_nothing_when_nothing_was_removed(tmp_path: Path) -> None:
    archive, store = Archive(4), SqliteStore(tmp_path / "kb")
    ids = archive.add(store, NAMESPACE, 5)
    keep_file(store, NAMESPACE, b"derived")

    def stamps() -> dict[str, int]:
        files = (path for path in tmp_path.rglob("*") if path.suffix in (".sqlite", ".bin"))
        return {path.name: path.stat().st_mtime_ns for path in files}

    before = stamps()
    assert store.scrub(NAMESPACE) is True
    assert stamps() == before
    with store.begin(NAMESPACE) as transaction:
        transaction.facts.remove(ids[:1])
    assert store.scrub(NAMESPACE) is True
    after = stamps()
    assert after.keys() == {"fabric.sqlite"}
    assert after["fabric.sqlite"] != before["fabric.sqlite"]
    assert store.scrub(NAMESPACE) is True
    assert stamps() == after

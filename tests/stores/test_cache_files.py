"""Every kind of damage to a derived file is found, logged and cleared away."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Transaction
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.stores.sqlite.cache import (
    ABANDONED_SECONDS,
    FileCache,
)
from crp_integrations.testing.fixtures import NAMESPACE, OTHER, fill

CONTENT = bytes(range(256)) * 40


def saved(store: SqliteStore, name: str = "graph", content: bytes = CONTENT) -> FileCache:
    cache = store.cache(NAMESPACE)

    def write(path: str) -> None:
        Path(path).write_bytes(content)

    assert cache.save(name, {"rows": 3}, write, lambda _: True)
    return cache


def parts(folder: Path, name: str = "graph") -> tuple[Path, Path]:
    """The file and its manifest."""
    (data,) = folder.rglob(f"cache/{name}.*.bin")
    (manifest,) = folder.rglob(f"cache/{name}.json")
    return data, manifest


def store_at(tmp_path: Path) -> SqliteStore:
    store = SqliteStore(tmp_path / "kb")
    fill(store, "one")
    return store


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
    def damage(data: Path, manifest: Path) -> None:
        data.write_bytes(change(data.read_bytes()))

    return damage


def folder_instead(data: Path, manifest: Path) -> None:
    data.unlink()
    data.mkdir()


def told(**fields: object) -> Callable[[Path, Path], None]:
    """A manifest that says something else."""

    def change(data: Path, manifest: Path) -> None:
        manifest.write_text(json.dumps({**json.loads(manifest.read_bytes()), **fields}))

    return change


def flipped(content: bytes) -> bytes:
    return content[:4_000] + bytes([content[4_000] ^ 0x10]) + content[4_001:]


DAMAGE: dict[str, Callable[[Path, Path], object]] = {
    "cut": rewritten(lambda content: content[:-1]),
    "half": rewritten(lambda content: content[: len(content) // 2]),
    "longer": rewritten(lambda content: content + b"\0"),
    "flipped": rewritten(flipped),
    "zeroed": rewritten(lambda content: bytes(len(content))),
    "emptied": rewritten(lambda content: b""),
    "gone": lambda data, manifest: data.unlink(),
    "folder": folder_instead,
    "manifest gone": lambda data, manifest: manifest.unlink(),
    "manifest empty": lambda data, manifest: manifest.write_bytes(b""),
    "manifest garbled": lambda data, manifest: manifest.write_bytes(b"\xff{"),
    "manifest nested": lambda data, manifest: manifest.write_bytes(b"[" * 100_000),
    "manifest a list": lambda data, manifest: manifest.write_bytes(b"[1]"),
    "other name": told(name="other"),
    "other namespace": told(namespace="0" * 64),
    "other length": told(length=1),
    "other hash": told(sha256="0" * 64),
    "other description": told(about={"rows": 4}),
    "a path": told(file="../fabric.sqlite"),
    "other schema": told(schema="cache/2"),
    "more fields": told(more=1),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_cleared_away(
    tmp_path: Path,
    kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = store_at(tmp_path)
    cache = saved(store)
    saved(store, "other")
    DAMAGE[kind](*parts(tmp_path))
    if kind == "manifest gone":
        (data,) = (tmp_path / "kb").rglob("cache/graph*.bin")
        aged(data)
    # Without its manifest it is what a killed process leaves, and nobody takes it for a file.
    assert len(store.check(NAMESPACE)) == (kind != "manifest gone")
    with caplog.at_level(logging.WARNING, "crp_integrations.stores"):
        assert cache.load("graph") is None
    (record,) = caplog.records
    assert record.name == "crp_integrations.stores"
    assert "graph" in record.getMessage()
    assert NAMESPACE not in record.getMessage()
    left = [one for one in tmp_path.rglob("cache/graph*") if one.is_file()]
    assert left == []
    assert cache.load("other") is not None
    for one in tmp_path.rglob("cache/graph*"):
        one.rmdir()
    assert saved(store).load("graph") is not None
    assert store.check(NAMESPACE) == []


def test_a_swapped_file_is_not_taken(tmp_path: Path) -> None:
    """Another name's, or another namespace's, with its own manifest."""
    store = store_at(tmp_path)
    cache = saved(store)
    saved(store, "other", b"another content")
    (data, manifest), (data2, manifest2) = parts(tmp_path), parts(tmp_path, "other")
    data2.replace(data)
    assert cache.load("graph") is None
    saved(store)
    saved(store, "other", b"another content")
    manifest2.replace(manifest)
    assert cache.load("graph") is None
    with store.begin(OTHER) as transaction:
        transaction.facts.set_setting("a", "b")
    saved(store)
    data, manifest = parts(tmp_path)
    (theirs,) = {one.parent for one in tmp_path.rglob("*.sqlite")} - {data.parents[1]}
    (theirs / "cache").mkdir()
    data.replace(theirs / "cache" / data.name)
    manifest.replace(theirs / "cache" / manifest.name)
    assert store.cache(OTHER).load("graph") is None


@given(at=st.integers(0, len(CONTENT) - 1), bit=st.integers(0, 7), in_manifest=st.booleans())
@settings(max_examples=40, deadline=None)
def test_no_flipped_bit_passes(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int, in_manifest: bool
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    store = store_at(folder)
    cache = saved(store)
    target = parts(folder)[in_manifest]
    changed = bytearray(target.read_bytes())
    changed[at % len(changed)] ^= 1 << bit
    target.write_bytes(changed)
    found = cache.load("graph")
    if in_manifest and found is not None:
        # An older schema number is read; file and description are what was saved all the same.
        assert Path(found.path).read_bytes() == CONTENT
        assert found.about == {"rows": 3}
    else:
        assert found is None
    store.close()


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        saved(store_at(tmp_path))
    finally:
        os.umask(old)
    data, manifest = parts(tmp_path)
    assert stat.S_IMODE(data.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in (data, manifest)} == {0o600}


def test_nothing_is_made_before_something_is_saved(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kb")
    cache = store.cache(NAMESPACE)
    assert cache.load("graph") is None
    cache.drop()
    assert list(tmp_path.iterdir()) == []


def test_a_first_file_may_come_before_the_first_fact(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kb")
    assert saved(store).load("graph") is not None
    assert store.namespaces() == [NAMESPACE]


def aged(path: Path) -> None:
    """As if nobody had touched it for long."""
    long_ago = path.stat().st_mtime - ABANDONED_SECONDS - 60
    os.utime(path, (long_ago, long_ago))


def test_a_file_whose_manifest_is_about_to_come_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at(tmp_path)
    looked: list[object] = []
    replace = Path.replace

    def between(self: Path, target: Path) -> Path:
        # Another process looks after the file has its name and before the manifest has.
        if Path(target).suffix == ".json":
            looked.append(store.cache(NAMESPACE).load("graph"))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", between)
    cache = saved(store)
    assert looked == [None]
    assert cache.load("graph") is not None
    assert store.check(NAMESPACE) == []


def test_what_killed_processes_left_is_cleared_away(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    cache = saved(store)
    folder = parts(tmp_path)[0].parent
    old, new, foreign = (folder / f"{name}.tmp" for name in ("graph.1-a", "graph.2-b", "other.1-a"))
    for one in (old, new, foreign):
        one.write_bytes(b"half")
    aged(old)
    aged(foreign)
    saved(store)
    assert not old.exists()
    assert new.exists()
    assert foreign.exists()
    assert cache.load("graph") is not None
    cache.drop("graph")
    assert not new.exists()
    assert foreign.exists()
    cache.drop()
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder nobody can write")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    cache = FileCache(Path("/proc/self/cache"), NAMESPACE, lambda: store.begin(NAMESPACE))
    with pytest.raises(StoreError, match="cannot be written"):
        cache.save("graph", {}, lambda path: None, lambda _: True)


def test_a_file_that_another_process_puts_in_its_place_at_once_stays(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    folder = next((tmp_path / "kb").rglob("fabric.sqlite")).parent / "cache"
    newer = b"the newer one"

    @contextmanager
    def begin() -> Iterator[Transaction]:
        with store.begin(NAMESPACE) as transaction:
            yield transaction
        # The lock is free again, and the other one was waiting for it.
        saved(store, content=newer)

    slow = FileCache(folder, NAMESPACE, begin)

    def write(path: str) -> None:
        Path(path).write_bytes(CONTENT)

    assert slow.save("graph", {}, write, lambda _: True)
    found = store.cache(NAMESPACE).load("graph")
    assert found is not None
    assert Path(found.path).read_bytes() == newer
    assert [one.name for one in folder.glob("*.bin")] == [Path(found.path).name]

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from crp_integrations.errors import ConfigError, StoreError
from crp_integrations.ports import KeyRing
from crp_integrations.stores.keys import FileKeyRing, FixedKeyRing, MemoryKeyRing
from crp_integrations.stores.sqlite import SqliteStore
from tests.stores import processes


def test_a_key_is_made_when_it_is_first_asked_for_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kb" / "keys"
    ring = FileKeyRing(path)
    assert list(tmp_path.iterdir()) == []
    key = ring.master()
    assert len(key) == 32
    assert FileKeyRing(path).master() == key == ring.master()
    assert [one.name for one in path.parent.iterdir()] == ["keys"]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        FileKeyRing(tmp_path / "kb" / "keys").master()
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "kb" / "keys").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "kb").stat().st_mode) == 0o700


def test_two_stores_have_two_keys(tmp_path: Path) -> None:
    rings: list[KeyRing] = [
        FileKeyRing(tmp_path / "a"),
        FileKeyRing(tmp_path / "b"),
        MemoryKeyRing(),
    ]
    assert len({ring.master() for ring in [*rings, MemoryKeyRing()]}) == 4


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b"\xff\xfe",
        b'{"schema": "keys/1", "master": "xyz"}',
        b'{"schema": "keys/1", "master": 5}',
        b'{"schema": "keys/1", "master": "00ff"}',
        b'{"schema": "keys/2", "master": "' + b"00" * 32 + b'"}',
        b'{"schema": "keys/2", "retired": [5], "master": "' + b"00" * 32 + b'"}',
        b'{"schema": "keys/2", "retired": ["00"], "master": "' + b"00" * 32 + b'"}',
        b'{"schema": "keys/3", "retired": [], "master": "' + b"00" * 32 + b'"}',
    ],
)
def test_a_file_without_a_usable_key_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="key file"):
        FileKeyRing(path).master()
    assert path.read_bytes() == content


def test_a_place_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file" / "keys", tmp_path):
        with pytest.raises(StoreError, match="cannot be read or made"):
            FileKeyRing(path).master()


def test_keys_do_not_show() -> None:
    key = bytes(range(32))
    assert "…" in repr(FixedKeyRing(key))
    assert key.hex() not in repr(FixedKeyRing(key))
    assert repr(key) not in repr(FixedKeyRing(key))


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="31 bytes"):
        FixedKeyRing(bytes(31))


def test_a_lost_key_of_a_written_store_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "kb" / "keys"
    key = FileKeyRing(path).master()
    store = SqliteStore(tmp_path / "kb")
    processes.write_batch(store, "a")
    store.close()
    copy = path.read_bytes()
    path.unlink()
    with pytest.raises(ConfigError, match=r"keys is missing, but .*kb holds what was sealed"):
        FileKeyRing(path).master()
    assert not path.exists()
    path.write_bytes(copy)
    assert FileKeyRing(path).master() == key


def test_a_key_that_appears_between_two_looks_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kb" / "keys"
    look = FileKeyRing._guards_something

    def overtaken(self: FileKeyRing) -> bool:
        monkeypatch.undo()
        FileKeyRing(path).master()
        store = SqliteStore(tmp_path / "kb")
        processes.write_batch(store, "a")
        store.close()
        return look(self)

    monkeypatch.setattr(FileKeyRing, "_guards_something", overtaken)
    assert FileKeyRing(path).master() == FileKeyRing(path).master()

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from crp_integrations.errors import ConfigError, StoreError
from crp_integrations.ports import KeyRing, RotatedKeyRing
from crp_integrations.stores.keys import (
    EnvironmentKeyRing,
    FileKeyRing,
    FixedKeyRing,
    MemoryKeyRing,
    WrappedKeyRing,
)
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
    with pytest.raises(ConfigError, match=r"keys is missing, but .*kb has data that was sealed"):
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


# --- rotation, and keys from elsewhere -------------------------------------------------

ONE, TWO = (bytes([number]) * 32 for number in (1, 2))


def test_a_rotated_file_keeps_the_keys_before(tmp_path: Path) -> None:
    ring = FileKeyRing(tmp_path / "kb" / "keys")
    first = ring.master()
    assert ring.retired() == ()
    ring.rotate()
    second = ring.master()
    ring.rotate()
    assert ring.retired() == (first, second)
    assert len({first, second, ring.master()}) == 3
    again = FileKeyRing(ring.path)
    assert (again.retired(), again.master()) == (ring.retired(), ring.master())
    assert [one.name for one in ring.path.parent.iterdir()] == ["keys"]
    if os.name == "posix":
        assert stat.S_IMODE(ring.path.stat().st_mode) == 0o600


def test_a_rotation_goes_on_from_what_is_in_the_file(tmp_path: Path) -> None:
    one, other = (FileKeyRing(tmp_path / "keys") for _ in range(2))
    first = one.master()
    assert other.master() == first
    one.rotate()
    other.rotate()
    assert other.retired() == (first, one.master())
    # Who was not told goes on with the key that it knows.
    assert one.master() == other.retired()[-1]


def test_two_rotations_at_a_time_are_refused_and_a_killed_one_is_named(tmp_path: Path) -> None:
    ring = FileKeyRing(tmp_path / "keys")
    first = ring.master()
    claim = tmp_path / "keys.rotating"
    claim.touch()
    with pytest.raises(StoreError, match=r"remove .*keys.rotating if no process does"):
        ring.rotate()
    assert FileKeyRing(ring.path).master() == first and claim.exists()
    claim.unlink()
    ring.rotate()
    assert ring.retired() == (first,)


def test_a_file_that_was_damaged_since_is_not_rotated(tmp_path: Path) -> None:
    ring = FileKeyRing(tmp_path / "keys")
    ring.master()
    ring.path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="key file"):
        ring.rotate()
    assert ring.path.read_bytes() == b"\xff"
    assert [one.name for one in tmp_path.iterdir()] == ["keys"]


def test_keys_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS", f" {ONE.hex()}, {TWO.hex().upper()}\n")
    ring = EnvironmentKeyRing("KEYS")
    assert (ring.retired(), ring.master()) == ((ONE,), TWO)
    monkeypatch.delenv("KEYS")
    assert ring.master() == TWO
    with pytest.raises(ConfigError, match="KEYS is not set"):
        EnvironmentKeyRing("KEYS").master()
    for wrong in ("xyz", ONE.hex() + ",", "00", f"{ONE.hex()},{ONE.hex()}", ONE.hex()[:-1]):
        monkeypatch.setenv("KEYS", wrong)
        with pytest.raises(ConfigError, match="KEYS") as refused:
            EnvironmentKeyRing("KEYS").master()
        assert wrong not in str(refused.value)


class LocalKms:
    """A key service that wraps by turning bits round; it counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def wrap(self, key: bytes) -> bytes:
        return bytes(byte ^ 0xFF for byte in key)

    def unwrap(self, wrapped: bytes, /) -> bytes:
        self.asked += 1
        return self.wrap(wrapped)


def test_keys_that_a_service_unwraps() -> None:
    kms = LocalKms()
    ring = WrappedKeyRing(kms.wrap(TWO), kms.unwrap, retired=[kms.wrap(ONE)])
    assert kms.asked == 0
    assert (ring.retired(), ring.master(), ring.master()) == ((ONE,), TWO, TWO)
    assert kms.asked == 2


def test_a_service_that_fails_is_named_and_not_quoted() -> None:
    def fails(wrapped: bytes, /) -> bytes:
        raise RuntimeError(f"denied for {ONE.hex()}")

    with pytest.raises(StoreError, match=r"key service .* RuntimeError") as refused:
        WrappedKeyRing(b"w", fails).master()
    assert ONE.hex() not in str(refused.value)
    assert refused.value.__cause__ is None and refused.value.__suppress_context__
    with pytest.raises(ConfigError, match="unwrapped master key has 1 bytes"):
        WrappedKeyRing(b"w", lambda wrapped: wrapped).master()


def test_the_same_key_for_two_epochs_is_refused() -> None:
    with pytest.raises(ConfigError, match="same key for two epochs"):
        FixedKeyRing(ONE, retired=[ONE])


def test_no_ring_shows_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS", f"{ONE.hex()},{TWO.hex()}")
    file = FileKeyRing(tmp_path / "keys")
    file.rotate()
    rings = [
        FixedKeyRing(TWO, retired=[ONE]),
        EnvironmentKeyRing("KEYS"),
        WrappedKeyRing(TWO, bytes, retired=[ONE]),
        MemoryKeyRing(),
        file,
    ]
    for ring in rings:
        keys = (*ring.retired(), ring.master())
        for shown in (repr(ring), str(ring), f"{ring}", repr([ring])):
            for key in keys:
                assert key.hex() not in shown and repr(key)[2:-1] not in shown
        assert isinstance(ring, RotatedKeyRing)

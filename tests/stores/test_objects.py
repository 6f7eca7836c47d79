"""Objects: one law for the folder, memory and what obstore reaches."""

from __future__ import annotations

import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crp_integrations.engines.obstore import CloudObjects
from crp_integrations.errors import ConfigError, RequestError, StoreError
from crp_integrations.governance.artifacts.storage import ObjectStore
from crp_integrations.stores.files import FolderObjects, MemoryObjects

STORES: dict[str, Callable[[Path], ObjectStore]] = {
    "folder": lambda folder: FolderObjects(folder / "objects"),
    "memory": lambda folder: MemoryObjects(),
    "obstore-memory": lambda folder: CloudObjects("memory:///"),
    "obstore-folder": lambda folder: CloudObjects(f"file://{folder}"),
}


@pytest.fixture(params=STORES)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return STORES[request.param](tmp_path)


def test_an_object_is_created_once_and_read_whole(objects: ObjectStore) -> None:
    assert objects.get("a/b/1") is None
    assert objects.create("a/b/1", b"first")
    assert not objects.create("a/b/1", b"second")
    assert objects.get("a/b/1") == b"first"
    # An empty one is one too.
    assert objects.create("a/b/2", b"")
    assert not objects.create("a/b/2", b"")
    assert objects.get("a/b/2") == b""


def test_names_are_listed_by_whole_parts_and_removed(objects: ObjectStore) -> None:
    for key in ("a/b/2", "a/b/1", "a/bc/1", "d/1"):
        objects.create(key, b"x")
    assert list(objects.list("a/b")) == ["a/b/1", "a/b/2"]
    assert list(objects.list("none")) == []
    objects.delete("a/b/1")
    objects.delete("a/b/1")
    assert objects.get("a/b/1") is None
    assert list(objects.list("a")) == ["a/b/2", "a/bc/1"]
    assert objects.create("a/b/1", b"again")


def test_of_many_that_create_one_name_one_is_told_so(objects: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: objects.create("a/1", bytes([n]) * 1000), range(8)))
    assert sum(made) == 1
    assert objects.get("a/1") == bytes([made.index(True)]) * 1000


def test_a_folders_files_are_its_owners_alone(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    objects.create("a/b/1", b"secret")
    found = sorted((tmp_path / "kept").rglob("*"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in found}
    assert modes == {"a": 0o700, "b": 0o700, "1": 0o600}
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    objects.delete("a/b/1")
    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "../a", "a/../b", ".a", "a//b", "a\\b", "a\n"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, key: str) -> None:
    for objects in (FolderObjects(tmp_path), MemoryObjects()):
        with pytest.raises(RequestError, match="object name"):
            objects.create(key, b"x")
        with pytest.raises(RequestError, match="object name"):
            objects.get(key)


def test_a_place_that_cannot_be_used_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot write object 'a/1'"):
        FolderObjects(tmp_path / "file").create("a/1", b"x")
    with pytest.raises(ConfigError, match="wanted an address"):
        CloudObjects("nonsense://x")
    # Nothing listens there; no credential is in the message.
    cloud = CloudObjects(
        "s3://bucket/prefix",
        config={
            "endpoint": "http://127.0.0.1:9",
            "access_key_id": "AKIAEXAMPLE",
            "secret_access_key": "very-secret",
            "region": "eu-central-1",
        },
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    with pytest.raises(StoreError, match="cannot read object 'a/1' in s3://bucket") as refused:
        cloud.get("a/1")
    assert "secret" not in str(refused.value)

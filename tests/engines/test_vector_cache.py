"""A text is embedded once while its vector is cached; the bits are those without a cache."""

from __future__ import annotations

import gc
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.engines.vector_cache import (
    CachedEmbedder,
    SharedEmbedder,
    VectorCache,
    object_scope,
)
from crp_integrations.errors import ConfigError, StoreError
from crp_integrations.language import memo
from crp_integrations.ports import Embedder, embedder_of_tenant, without_keeping
from crp_integrations.relay.defaults import chosen_embedder
from crp_integrations.relay.settings import load
from crp_integrations.vectors import FloatRows
from tests.doubles import CountingEmbedder, HashEmbedder

WORDS = st.text(alphabet="abc \ud800", max_size=6)


def cached(base: Embedder, megabytes: float = 1, folder: Path | None = None) -> SharedEmbedder:
    return SharedEmbedder(base, VectorCache(megabytes, folder))


@given(
    batches=st.lists(st.lists(WORDS, max_size=5), max_size=6),
    megabytes=st.sampled_from((0, 0.005, 1)),
)
def test_vectors_are_the_same_bit_for_bit(batches: list[list[str]], megabytes: float) -> None:
    cache = VectorCache(megabytes)
    embedder = CachedEmbedder(HashEmbedder(), cache)
    for texts in batches:
        rows, wanted = embedder.embed_passages(texts), HashEmbedder().embed_passages(texts)
        assert (rows.dtype, rows.shape, rows.tobytes()) == (
            wanted.dtype, wanted.shape, wanted.tobytes(),
        )  # fmt: skip
        for text in texts:
            assert (
                embedder.embed_query(text).tobytes() == HashEmbedder().embed_query(text).tobytes()
            )
        assert cache.size <= megabytes * 1_000_000


def test_the_shipped_model_gives_the_same_bits_and_reads_a_query_as_a_passage() -> None:
    base = CountingEmbedder(OnnxEmbedder())
    embedder = cached(base)
    texts = ["The ferry leaves at nine.", "Lunch costs 12 euros."]
    first = embedder.embed_passages(texts)
    assert embedder.embed_passages(texts[::-1]).tobytes() == first[::-1].tobytes()
    assert embedder.embed_query(texts[0]).tobytes() == first[0].tobytes()
    assert base.texts == texts


def test_a_text_is_embedded_once_and_a_query_apart_from_a_passage() -> None:
    base = CountingEmbedder(HashEmbedder())
    embedder = cached(base)
    embedder.embed_passages(["one", "two", "one"])
    embedder.embed_passages(["two", "three"])
    embedder.embed_query("one")
    embedder.embed_query("one")
    assert base.texts == ["one", "two", "three", "one"]


def test_a_caller_who_writes_into_a_row_changes_no_vector_of_another() -> None:
    embedder = cached(HashEmbedder())
    for _ in range(3):
        rows = embedder.embed_passages(["one", "two"])
        assert rows.tobytes() == HashEmbedder().embed_passages(["one", "two"]).tobytes()
        rows[:] = 0.0


def test_the_least_recently_used_vectors_go_first() -> None:
    base = CountingEmbedder(HashEmbedder())
    # Two rows of 256 numbers with the objects around them.
    embedder = cached(base, 0.0027)
    for text in ("one", "two", "one", "three", "one", "two"):
        embedder.embed_passages([text])
    assert base.texts == ["one", "two", "three", "two"]


def test_tenants_share_no_vectors() -> None:
    base = CountingEmbedder(HashEmbedder())
    embedder = cached(base)
    for tenant in ("acme", "globex", "acme"):
        embedder_of_tenant(embedder, tenant).embed_passages(["one"])
    assert base.texts == ["one", "one"]


def test_an_embedder_that_keeps_nothing_reads_what_is_cached() -> None:
    base = CountingEmbedder(HashEmbedder())
    embedder = cached(base)
    embedder.embed_passages(["one"])
    without_keeping(embedder).embed_passages(["one", "two"])
    without_keeping(embedder_of_tenant(embedder, "acme")).embed_passages(["two"])
    embedder.embed_passages(["two"])
    assert base.texts == ["one", "two", "two", "two"]
    plain = HashEmbedder()
    assert without_keeping(plain) is embedder_of_tenant(plain, "acme") is plain


def test_a_vector_made_while_the_cache_is_emptied_is_not_added() -> None:
    cache = VectorCache(1)

    class Emptying(HashEmbedder):
        def embed_passages(self, texts: Sequence[str]) -> FloatRows:
            cache.forget()
            return super().embed_passages(texts)

    CachedEmbedder(Emptying(), cache).embed_passages(["one"])
    assert cache.size == 0


def test_threads_get_their_own_rows() -> None:
    embedder, wrong = cached(HashEmbedder(), 0.01), []

    def ask(number: int) -> None:
        for round_ in range(30):
            texts = [f"text {(number + round_ + at) % 17}" for at in range(5)]
            if (
                embedder.embed_passages(texts).tobytes()
                != HashEmbedder().embed_passages(texts).tobytes()
            ):
                wrong.append(texts)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("answer", [[[1.0]], np.ones((1, 2)), np.ones((2, 3), dtype=np.float32)])
def test_what_a_foreign_embedder_returns_is_handed_on(answer: Any) -> None:
    class Foreign(HashEmbedder):
        def embed_passages(self, texts: Sequence[str]) -> Any:
            return answer

    embedder = cached(Foreign())
    assert embedder.embed_passages(["one"]) is answer
    assert embedder.embed_passages(["one"]) is answer


# --- on disk -------------------------------------------------------------------------------


def test_a_folder_keeps_vectors_between_processes_and_no_text(tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    first, second = CountingEmbedder(HashEmbedder()), CountingEmbedder(HashEmbedder())
    cached(first, 1, folder).embed_passages(["one", "walruszq"])
    rows = cached(second, 1, folder).embed_passages(["walruszq", "three", "one"])
    assert rows.tobytes() == HashEmbedder().embed_passages(["walruszq", "three", "one"]).tobytes()
    assert second.texts == ["three"]
    [file] = folder.iterdir()
    assert b"walruszq" not in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_gets_nothing_of_a_tenant_and_nothing_that_is_not_kept(tmp_path: Path) -> None:
    embedder = cached(HashEmbedder(), 1, tmp_path)
    embedder.of_tenant("acme").embed_passages(["one"])
    embedder.without_keeping().embed_passages(["two"])
    SharedEmbedder(HashEmbedder(), VectorCache(1, tmp_path), scope="object 1").embed_query("three")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "changed", "other"])
def test_a_damaged_file_is_read_up_to_the_damage(tmp_path: Path, damage: str) -> None:
    cached(HashEmbedder(), 1, tmp_path).embed_passages(["one", "two", "three"])
    [file] = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    record = len(content) // 3
    if damage == "cut":
        content = content[: record + 100]
    elif damage == "changed":
        content[record + 100] ^= 1
    else:
        content = bytearray(b"no vectors")
    file.write_bytes(content)
    for wanted in (["two", "three"] if damage != "other" else ["one", "two", "three"], []):
        base = CountingEmbedder(HashEmbedder())
        texts = ["one", "two", "three"]
        rows = cached(base, 1, tmp_path).embed_passages(texts)
        assert rows.tobytes() == HashEmbedder().embed_passages(texts).tobytes()
        assert base.texts == wanted


def test_a_file_has_at_most_the_size_of_the_cache(tmp_path: Path) -> None:
    embedder = cached(HashEmbedder(), 0.01, tmp_path)
    for number in range(40):
        embedder.embed_passages([f"text {number}"])
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 10_000


def test_emptying_the_cache_removes_its_files(tmp_path: Path) -> None:
    base = CountingEmbedder(HashEmbedder())
    cache = VectorCache(1, tmp_path)
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    CachedEmbedder(base, cache).embed_passages(["one"])
    cache.forget()
    assert list(tmp_path.iterdir()) == [other]
    CachedEmbedder(base, cache).embed_passages(["one"])
    assert base.texts == ["one", "one"]


def test_emptying_the_memory_alone_leaves_a_file_as_it_is(tmp_path: Path) -> None:
    base = CountingEmbedder(HashEmbedder())
    cache = VectorCache(1, tmp_path)
    CachedEmbedder(base, cache).embed_passages(["one"])
    [file] = tmp_path.iterdir()
    before = file.read_bytes()
    cache.forget(lasting=False)
    assert cache.size == 0
    CachedEmbedder(base, cache).embed_passages(["one"])
    assert base.texts == ["one"]
    assert file.read_bytes() == before


def test_a_file_that_cannot_be_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = VectorCache(1, tmp_path)
    CachedEmbedder(HashEmbedder(), cache).embed_passages(["one"])
    later = tmp_path / "later-64.vectors"
    later.write_bytes(b"")
    unlink = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self != later:
            raise PermissionError(13, "Permission denied")
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StoreError, match=r"\.vectors in vector_cache cannot be removed .*: remove"):
        cache.forget()
    assert cache.size == 0
    assert not later.exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"vector_cache '.*file/vectors' cannot be made"):
        VectorCache(1, tmp_path / "file" / "vectors")


# --- which embedder ------------------------------------------------------------------------


def test_the_settings_choose_the_cache(tmp_path: Path) -> None:
    base = CountingEmbedder(HashEmbedder())
    assert chosen_embedder(base, load(vector_cache_mb=0)) is base
    shared = chosen_embedder(base, load())
    assert chosen_embedder(shared, load()) is shared
    folder = load(vector_cache=str(tmp_path), vector_cache_mb=1)
    for settings in (load(), load(), folder, folder):
        chosen_embedder(base, settings).embed_passages(["one"])
    assert base.texts == ["one", "one"]
    assert len(list(tmp_path.iterdir())) == 1
    memo.forget()
    assert list(tmp_path.iterdir()) == []


class Framework:
    """An embedder of a framework."""

    __slots__ = ("model_name",)

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[float(len(self.model_name)), 1.0] for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class Referenced(Framework):
    """One that can be referenced weakly."""


@pytest.mark.parametrize(
    "source", [None, Framework("a"), CachedEmbedder(HashEmbedder(), VectorCache(1))]
)
def test_an_erasure_removes_the_files_whatever_embeds(tmp_path: Path, source: Any) -> None:
    file = tmp_path / "earlier-256.vectors"
    file.write_bytes(b"rows")
    megabytes = 0 if source is None else 1
    settings = load(vector_cache=str(tmp_path), vector_cache_mb=megabytes)
    chosen_embedder(source, settings)
    memo.forget(lasting=False)
    assert file.exists()
    memo.forget()
    assert not file.exists()


def test_an_object_whose_model_was_changed_gives_the_vectors_of_the_new_one() -> None:
    source, rows = Referenced("short"), []
    for source.model_name in ("short", "much-longer"):
        embedder = chosen_embedder(source, load())
        assert isinstance(embedder, SharedEmbedder)
        rows.append(embedder.embed_query("one").tobytes())
    assert rows[0] != rows[1]


def test_two_objects_of_one_name_share_no_vectors() -> None:
    bases = [CountingEmbedder(HashEmbedder()) for _ in range(2)]
    for base in bases:
        chosen_embedder(base, load()).embed_passages(["one"])
    assert [base.texts for base in bases] == [["one"], ["one"]]


def test_an_objects_scope_ends_with_it() -> None:
    source = HashEmbedder()
    scope = object_scope(source)
    assert object_scope(source) == scope != object_scope(HashEmbedder())
    assert object_scope(1) == ""
    del source
    gc.collect()
    assert object_scope(HashEmbedder()) != scope

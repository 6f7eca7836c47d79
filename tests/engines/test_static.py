"""The static table: an embedder by itself, and what it keeps of the model it is distilled from."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations import Relay, pack, weights
from crp_integrations.engines.embeddings import StaticEmbedder, embedder_of
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.errors import EngineError
from crp_integrations.ports import Embedder
from tests.engines.test_onnx import TEXTS

SHARED = StaticEmbedder()


def test_it_is_an_embedder_with_an_identity_of_its_own() -> None:
    assert isinstance(SHARED, Embedder)
    assert SHARED.dimensions == 256
    assert SHARED.identity == StaticEmbedder().identity == embedder_of("static").identity
    assert SHARED.identity.startswith("all-MiniLM-L6-v2-static/")
    assert SHARED.identity != OnnxEmbedder().identity
    with pytest.raises(TypeError):
        SHARED.thresholds["relevance_floor"] = 0.1  # type: ignore[index]


def test_rows_are_unit_float32_and_contiguous() -> None:
    rows = SHARED.embed_passages(TEXTS)
    assert rows.shape == (len(TEXTS), 256)
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert np.allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1, atol=1e-6)
    assert SHARED.embed_passages([]).shape == (0, 256)


@settings(max_examples=15)
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6))
def test_a_vector_does_not_depend_on_its_batch(chosen: list[str]) -> None:
    together = SHARED.embed_passages(chosen)
    for row, text in zip(together, chosen, strict=True):
        assert row.tobytes() == SHARED.embed_query(text).tobytes()


@settings(max_examples=40)
@given(st.text(max_size=200))
def test_any_text_gives_a_unit_vector(text: str) -> None:
    row = SHARED.embed_query(text)
    assert abs(float(row.astype(np.float64) @ row.astype(np.float64)) - 1) < 1e-6


def test_control_tokens_in_a_text_are_text() -> None:
    plain = SHARED.embed_query("a [ sep ] b")
    assert plain.tobytes() == SHARED.embed_query("a [SEP] b").tobytes()


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(EngineError, match="tokenizers"):
        SHARED.embed_query("\ud800")


def test_callers_in_several_threads_get_the_same_bytes() -> None:
    wanted, fresh = SHARED.embed_passages(TEXTS).tobytes(), StaticEmbedder()
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: fresh.embed_passages(TEXTS).tobytes(), range(8)))
    assert set(made) == {wanted}


def test_a_changed_byte_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(weights.describe("static").path, tmp_path / "static")
    table = tmp_path / "static" / "table.npy"
    content = table.read_bytes()
    table.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    altered = weights.describe_directory(tmp_path / "static")
    describe = weights.describe
    monkeypatch.setattr(weights, "describe", lambda n: altered if n == "static" else describe(n))
    with pytest.raises(EngineError, match=r"table\.npy .* has SHA-256"):
        embedder_of("static")
    with pytest.raises(EngineError, match=r"table\.npy .* has SHA-256"):
        StaticEmbedder().embed_query("anything")


def test_near_words_are_near_and_others_are_not() -> None:
    car, other, far = SHARED.embed_passages(["a car", "the automobile", "prime minister"])
    assert car @ other > 0.5 > 0.2 > car @ far


def test_a_store_and_pack_take_it_by_name(tmp_path: Path) -> None:
    text = "The Meridian plan costs 4.20 euros a month."
    with Relay.open(tmp_path / "kb", embedder="static") as relay:
        relay.add([text])
        assert relay.fabric.embedder.identity == SHARED.identity
    envelope = pack("What does the plan cost?", [text], model="gpt-4o", embedder="static")
    assert [fact.content for fact in envelope.facts] == [text]

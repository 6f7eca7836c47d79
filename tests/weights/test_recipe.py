"""The recipe gives the bytes that ship; skipped where its libraries are not installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crp_integrations import weights
from crp_integrations.errors import ConfigError, EngineError

pytest.importorskip("onnx")
pytest.importorskip("safetensors")

from crp_integrations.engines.embeddings import STATIC_TABLE, StaticEmbedder
from crp_integrations.engines.onnx import OnnxEmbedder
from tests.recipes import minilm, static
from tests.recipes.minilm import quantise


def test_the_recipe_gives_what_ships(tmp_path: Path) -> None:
    try:
        source = minilm.find_weights()
    except ConfigError as error:
        pytest.skip(str(error))
    card = minilm.make(tmp_path, source, "weight-only")
    shipped = weights.describe("minilm")
    assert card == shipped.card
    for file in (*card.files, "card.json"):
        assert (tmp_path / file).read_bytes() == (shipped.path / file).read_bytes()


def test_other_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"other")
    with pytest.raises(EngineError, match=minilm.WEIGHTS_SHA256):
        minilm.make(tmp_path / "out", tmp_path / "model.safetensors", "weight-only")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("axis", [0, 1])
def test_a_rounded_value_is_within_half_a_scale(axis: int) -> None:
    matrix = np.random.default_rng(7).normal(size=(5, 9)).astype(np.float32)
    matrix[0] = 0
    codes, scales = quantise(matrix, axis=axis)
    assert codes.dtype == np.int8
    assert np.abs(codes).max() == 127
    assert (np.abs(codes * scales - matrix) <= scales * 0.5001).all()


def test_the_static_recipe_gives_the_same_bytes_twice_and_a_card(tmp_path: Path) -> None:
    # The vocabulary's own rows take minutes; random ones go the same way.
    rows = np.random.default_rng(3).normal(size=(30_522, 384)).astype(np.float32)
    first, second = static.make(tmp_path / "a", rows), static.make(tmp_path / "b", rows)
    assert first == second
    content = (tmp_path / "a" / STATIC_TABLE).read_bytes()
    assert content == (tmp_path / "b" / STATIC_TABLE).read_bytes()
    shipped = weights.describe("static").card
    assert first.model_copy(update={"files": shipped.files}) == shipped


def test_the_shipped_table_keeps_the_models_cosines_of_words() -> None:
    words = (
        "ferry boat parliament minister copper metal violin music glacier ice euro price".split()
    )
    table, model = (e.embed_passages(words) for e in (StaticEmbedder(), OnnxEmbedder()))
    pairs = np.triu_indices(len(words), 1)
    wanted, seen = (model @ model.T)[pairs], (table @ table.T)[pairs]
    assert np.corrcoef(wanted, seen)[0, 1] > 0.8


def test_frequent_entries_weigh_less() -> None:
    weight = static.entry_weights(30_522, 1_996)
    assert (np.diff(weight[1_996:]) >= 0).all()
    assert weight[1_996] < 0.02 < weight[1_010] < 0.1 and weight[-1] > 0.99

"""The recipe gives the bytes that ship; skipped where its libraries are not installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from crp_integrations import weights
from crp_integrations.errors import ConfigError, EngineError

pytest.importorskip("onnx")
pytest.importorskip("safetensors")

from crp_integrations.engines.embeddings import STATIC_TABLE, StaticEmbedder
from crp_integrations.engines.onnx import OnnxEmbedder
from tests.recipes import minilm, static
from tests.recipes.bert import Array, quantise
from tests.recipes.int8_products import code, copies, ordered


def test_the_recipe_gives_what_ships(tmp_path: Path) -> None:
    try:
        source = minilm.find_weights()
    except ConfigError as error:
        pytest.skip(str(error))
    card = minilm.make(tmp_path, source, "int8")
    shipped = weights.describe("minilm")
    assert card == shipped.card
    for file in (*card.files, "card.json"):
        assert (tmp_path / file).read_bytes() == (shipped.path / file).read_bytes()


def test_the_static_table_comes_from_the_recipes_other_file(tmp_path: Path) -> None:
    try:
        source = minilm.find_weights()
    except ConfigError as error:
        pytest.skip(str(error))
    card, shipped = minilm.make(tmp_path, source, "weight-only"), weights.describe("static").card
    assert shipped.origin == f"model.onnx of {card.name} {card.version}"
    assert shipped.origin_sha256 == card.files["model.onnx"]


def test_other_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"other")
    with pytest.raises(EngineError, match=minilm.WEIGHTS_SHA256):
        minilm.make(tmp_path / "out", tmp_path / "model.safetensors", "int8")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("axis", [0, 1])
def test_a_rounded_value_is_within_half_a_scale(axis: int) -> None:
    matrix = np.random.default_rng(7).normal(size=(5, 9)).astype(np.float32)
    matrix[0] = 0
    codes, scales = quantise(matrix, axis=axis)
    assert codes.dtype == np.int8
    assert np.abs(codes).max() == 127
    assert (np.abs(codes * scales - matrix) <= scales * 0.5001).all()


def test_the_sums_of_two_products_of_codes_fit_into_16_bits() -> None:
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(weights.describe("minilm").path / "model.onnx")).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type == "MatMulInteger"]
    assert len(products) == 24
    for node in products:
        rows = numpy_helper.to_array(constants[node.input[1]]).astype(np.int64)
        for part in (np.maximum(rows, 0), np.maximum(-rows, 0)):
            assert (255 * (part[0::2] + part[1::2])).max() < 2**15


_ROWS = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6).map(lambda s: (2 * s[0], s[1])),
    elements=st.floats(-100, 100, width=32),
)


@given(_ROWS)
def test_weights_of_two_neighbours_add_up_to_128_and_are_within_half_a_scale(rows: Array) -> None:
    codes, scales = code(rows)
    wide = codes.astype(np.int64)
    for part in (np.maximum(wide, 0), np.maximum(-wide, 0)):
        assert (part[0::2] + part[1::2]).max() <= 128
    assert (np.abs(codes * scales - rows) <= scales * 0.5001).all()


@given(_ROWS, st.integers(0, 4))
def test_copies_of_a_channel_share_its_weights(rows: Array, half: int) -> None:
    more = copies(rows, 2 * half)
    order = ordered(rows, 2 * half)
    assert len(more) == 2 * half and len(order) == len(rows) + 2 * half
    shared = (rows / np.bincount(order)[:, None])[order]
    whole = np.zeros_like(rows)
    np.add.at(whole, order, shared)
    assert np.allclose(whole, rows, rtol=1e-5, atol=1e-6)


def test_the_static_recipe_gives_the_same_bytes_twice_and_a_card(tmp_path: Path) -> None:
    # The vocabulary's own rows take minutes; random ones go the same way.
    rows = np.random.default_rng(3).normal(size=(30_522, 384)).astype(np.float32)
    model = weights.describe("minilm")
    first, second = (static.make(tmp_path / name, model, rows) for name in "ab")
    assert first == second
    content = (tmp_path / "a" / STATIC_TABLE).read_bytes()
    assert content == (tmp_path / "b" / STATIC_TABLE).read_bytes()
    shipped = weights.describe("static").card
    told = {"files": shipped.files, "origin": shipped.origin}
    told["origin_sha256"] = shipped.origin_sha256
    assert first.model_copy(update=told) == shipped


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

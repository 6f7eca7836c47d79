"""The recipe gives the bytes that ship; skipped where its libraries are not installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crp_integrations import weights
from crp_integrations.engines.onnx import library
from crp_integrations.errors import ConfigError, EngineError

pytest.importorskip("onnx")
pytest.importorskip("safetensors")

from onnx import TensorProto, helper

from tests.recipes import minilm
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


def test_an_integer_product_is_near_the_exact_one_at_every_scale() -> None:
    draw = np.random.default_rng(5)
    weight = draw.normal(size=(minilm.WIDTH, 8)).astype(np.float32)
    bias = draw.normal(size=8).astype(np.float32)
    # A token of large values, a token of zeros: neither may cost another one its precision.
    source = draw.normal(size=(1, 4, minilm.WIDTH)).astype(np.float32)
    source[0] *= np.array([[1], [1000], [0.001], [0]], dtype=np.float32)
    graph = minilm.Graph("int8")
    minilm.add_integer_constants(graph)
    graph.node("Shape", ["source"], "shape", start=1, end=2)
    graph.dense("product", "source", weight, bias)
    tensors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, None, width])
        for name, width in (("source", minilm.WIDTH), ("product", 8))
    ]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "g", tensors[:1], tensors[1:], graph.initialisers),
        opset_imports=[helper.make_opsetid("", minilm.OPSET)],
        ir_version=minilm.IR_VERSION,
    )
    session = library().InferenceSession(model.SerializeToString())
    exact = source @ weight
    gap = np.abs(session.run(None, {"source": source})[0] - bias - exact)[0]
    lengths = np.linalg.norm(source[0], axis=1, keepdims=True) * np.linalg.norm(weight, axis=0)
    assert (gap <= 0.004 * lengths + 1e-6).all()


@pytest.mark.parametrize(("axis", "largest"), [(0, 127), (1, 127), (0, 96)])
def test_a_rounded_value_is_within_half_a_scale(axis: int, largest: int) -> None:
    matrix = np.random.default_rng(7).normal(size=(5, 9)).astype(np.float32)
    matrix[0] = 0
    codes, scales = quantise(matrix, axis=axis, largest=largest)
    assert codes.dtype == np.int8
    assert np.abs(codes).max() == largest
    assert (np.abs(codes * scales - matrix) <= scales * 0.5001).all()

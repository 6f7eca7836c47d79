"""The recipe gives the bytes that ship; skipped where its libraries are not installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crp_integrations import weights
from crp_integrations.errors import ConfigError, EngineError

pytest.importorskip("onnx")
pytest.importorskip("safetensors")

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


@pytest.mark.parametrize("axis", [0, 1])
def test_a_rounded_value_is_within_half_a_scale(axis: int) -> None:
    matrix = np.random.default_rng(7).normal(size=(5, 9)).astype(np.float32)
    matrix[0] = 0
    codes, scales = quantise(matrix, axis=axis)
    assert codes.dtype == np.int8
    assert np.abs(codes).max() == 127
    assert (np.abs(codes * scales - matrix) <= scales * 0.5001).all()

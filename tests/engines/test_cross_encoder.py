"""Cross-encoders: a real ONNX model made here, and an object with sentence-transformers' door."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from crp_integrations.engines.onnx import (
    OnnxCrossEncoder,
    fitting,
    labels_of,
    probability,
)
from crp_integrations.engines.rerankers import SentenceTransformersReranker
from crp_integrations.envelope.ports import Reranker
from crp_integrations.errors import ConfigError, EngineError

WORDS = "tier quality cats sleep budget tokens wind farm filler x".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
VOCABULARY = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
# Of each shared word, by label; a single label is a logit, of several they are compared.
ONE, TWO, THREE = [[2.0]], [[0.0, 2.0]], [[2.0, 0.0, -1.0]]


def model(weights: list[list[float]], inputs: Sequence[str]) -> onnx.ModelProto:
    """Counts the words that both texts have: a cross-encoder in nine operators."""
    size = len(VOCABULARY)
    table = np.eye(size, dtype=np.float32)
    table[: len(SPECIAL)] = 0.0
    constants = {
        "table": table,
        "weights": np.array(weights, dtype=np.float32),
        "bias": np.full((1, len(weights[0])), -1.0, dtype=np.float32),
        "one": np.array(1.0, dtype=np.float32),
        "last": np.array([-1], dtype=np.int64),
        "first": np.array([1], dtype=np.int64),
    }
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Cast", ["token_type_ids"], ["kinds"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["kinds", "last"], ["second"]),
        helper.make_node("Sub", ["one", "second"], ["first_kind"]),
        helper.make_node("Mul", ["words", "first_kind"], ["asked"]),
        helper.make_node("Mul", ["words", "second"], ["said"]),
        helper.make_node("ReduceMax", ["asked", "first"], ["query"], keepdims=0),
        helper.make_node("ReduceMax", ["said", "first"], ["text"], keepdims=0),
        helper.make_node("Mul", ["query", "text"], ["both"]),
        helper.make_node("ReduceSum", ["both", "first"], ["shared"], keepdims=1),
        helper.make_node("MatMul", ["shared", "weights"], ["raised"]),
        helper.make_node("Add", ["raised", "bias"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "shared-words",
        [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "s"]) for n in inputs],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", len(weights[0])])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(made)
    return made


def folder(
    place: Path, weights: list[list[float]] = ONE, labels: object = None, **config: object
) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    onnx.save(model(weights, ["input_ids", "token_type_ids"]), str(place / "model.onnx"))
    tokenizer = Tokenizer(WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(place / "tokenizer.json"))
    if labels is not None:
        config["id2label"] = labels
    if config:
        (place / "config.json").write_text(json.dumps(config))
    return place


def logistic(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-logit))


def test_scores_are_the_models_own(tmp_path: Path) -> None:
    reranker = OnnxCrossEncoder(folder(tmp_path, labels={"0": "LABEL_0"}))
    assert isinstance(reranker, Reranker)
    scores = reranker.scores("tier quality", ["quality tier", "cats sleep", "tier budget", ""])
    assert scores == pytest.approx([logistic(3), logistic(-1), logistic(1), logistic(-1)])
    assert reranker.scores("tier", []) == []


def test_the_label_that_means_fitting_is_read_from_the_config(tmp_path: Path) -> None:
    two = folder(tmp_path / "two", TWO, {"0": "LABEL_0", "1": "LABEL_1"})
    other = folder(tmp_path / "other", TWO, {"1": "not_relevant", "0": "relevant"})
    three = {"0": "entailment", "1": "neutral", "2": "contradiction"}
    natural = folder(tmp_path / "nli", THREE, three)
    wanted = math.exp(1) / (math.exp(1) + math.exp(-1))
    assert OnnxCrossEncoder(two).scores("tier", ["tier"]) == pytest.approx([wanted])
    assert OnnxCrossEncoder(other).scores("tier", ["tier"]) == pytest.approx([1 - wanted])
    entailed = math.exp(1) / (math.exp(1) + math.exp(-1) + math.exp(-2))
    assert OnnxCrossEncoder(natural).scores("tier", ["tier"]) == pytest.approx([entailed])
    chosen = OnnxCrossEncoder(natural, label="Neutral").scores("tier", ["tier"])
    assert chosen == pytest.approx([math.exp(-1) / (math.exp(1) + math.exp(-1) + math.exp(-2))])


def test_labels_without_a_meaning_must_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\['a', 'b'\].*label="):
        OnnxCrossEncoder(folder(tmp_path, TWO, {"0": "a", "1": "b"}))
    with pytest.raises(ConfigError, match=r"'c' is not one of .*\['a', 'b'\]"):
        OnnxCrossEncoder(tmp_path, label="c")
    with pytest.raises(EngineError, match="does not count from 0"):
        labels_of({"id2label": {"1": "a", "2": "b"}}, "onnx")
    with pytest.raises(ConfigError):
        fitting(["LABEL_0", "LABEL_1", "LABEL_2"], None)


def test_outputs_that_the_config_does_not_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"gave shape \(1, 2\), wanted \(1, 1\)"):
        OnnxCrossEncoder(folder(tmp_path, TWO)).scores("tier", ["tier"])


def test_long_texts_are_read_to_their_end(tmp_path: Path) -> None:
    reranker = OnnxCrossEncoder(folder(tmp_path), max_tokens=80)
    filler = "filler " * 400
    texts = [f"{filler} tier", f"tier {filler}", f"{filler} tier {filler}", filler]
    assert reranker.scores("tier", texts) == pytest.approx([logistic(1)] * 3 + [logistic(-1)])


def test_a_long_query_leaves_room_for_the_text(tmp_path: Path) -> None:
    reranker = OnnxCrossEncoder(folder(tmp_path), max_tokens=80)
    (score,) = reranker.scores("tier " + "filler " * 500, ["tier x"])
    assert score == pytest.approx(logistic(1))


def test_control_tokens_in_a_text_are_text(tmp_path: Path) -> None:
    reranker = OnnxCrossEncoder(folder(tmp_path))
    assert reranker.scores("tier", ["cats [SEP] tier"]) == reranker.scores("tier", ["cats x tier"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> OnnxCrossEncoder:
    return OnnxCrossEncoder(folder(tmp_path_factory.mktemp("model")))


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.lists(st.sampled_from(WORDS)).map(" ".join), min_size=1, max_size=8))
def test_a_score_depends_on_its_own_text_alone(shared: OnnxCrossEncoder, texts: list[str]) -> None:
    together = shared.scores("tier quality budget", texts)
    assert together == [shared.scores("tier quality budget", [text])[0] for text in texts]
    assert all(0.0 <= score <= 1.0 for score in together)


def test_the_identity_follows_everything_that_decides(tmp_path: Path) -> None:
    labels = {"0": "a", "1": "b"}
    place = folder(tmp_path / "m", TWO, labels)
    name = OnnxCrossEncoder(place, label="a").identity
    assert name.startswith("m+sha256:")
    assert name != OnnxCrossEncoder(place, label="b").identity
    assert name != OnnxCrossEncoder(place, label="a", max_tokens=100).identity
    changed = folder(tmp_path / "n" / "m", [[0.0, 2.5]], labels)
    assert name != OnnxCrossEncoder(changed, label="a").identity


def test_a_folder_of_a_hub_with_its_model_below_is_read(tmp_path: Path) -> None:
    flat = folder(tmp_path)
    (flat / "onnx").mkdir()
    (flat / "model.onnx").rename(flat / "onnx" / "model.onnx")
    assert OnnxCrossEncoder(flat).scores("tier", ["tier"]) == pytest.approx([logistic(1)])


@pytest.mark.parametrize("broken", ["model.onnx", "tokenizer.json"])
def test_damaged_files_are_named_by_their_library(tmp_path: Path, broken: str) -> None:
    place = folder(tmp_path)
    (place / broken).write_bytes(b"no such thing")
    with pytest.raises(EngineError, match="cannot be loaded") as caught:
        OnnxCrossEncoder(place).scores("tier", ["tier"])
    assert caught.value.engine in ("onnxruntime", "tokenizers")
    assert caught.value.version


def test_what_cannot_be_a_cross_encoder_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no model\.onnx"):
        OnnxCrossEncoder(tmp_path)
    place = folder(tmp_path)
    with pytest.raises(ConfigError, match="max_tokens is 5"):
        OnnxCrossEncoder(place, max_tokens=5)
    (place / "config.json").write_text("{")
    with pytest.raises(EngineError, match=r"config\.json"):
        OnnxCrossEncoder(place)


@given(logit=st.floats(-1e6, 1e6), other=st.floats(-1e6, 1e6))
def test_a_probability_is_one(logit: float, other: float) -> None:
    assert 0.0 <= probability([logit], 0) <= 1.0
    both = probability([logit, other], 0) + probability([logit, other], 1)
    assert both == pytest.approx(1.0)
    assert math.isnan(probability([math.nan, other], 1))


class Config:
    def __init__(self, labels: dict[int, str]) -> None:
        self.id2label = labels


class CrossEncoderDouble:
    """The door of sentence-transformers' `CrossEncoder` (6.2) before the ONNX outputs above."""

    def __init__(self, place: Path, labels: dict[int, str]) -> None:
        self._session = OnnxCrossEncoder(place, label=next(iter(labels.values())))
        self._session.scores("", [""])
        self.config = Config(labels)
        self.num_labels = len(labels)
        self.sizes: list[int] = []

    def _logits(self, query: str, text: str) -> np.ndarray[Any, Any]:
        loaded = self._session._loaded
        assert loaded is not None
        run = loaded.pairs.encode(query, text)
        feed = {"input_ids": [run.ids], "token_type_ids": [run.type_ids]}
        return loaded.session.run(None, {n: np.array(v) for n, v in feed.items()})[0]  # type: ignore[no-any-return]

    def predict(
        self,
        inputs: Sequence[tuple[str, str]],
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        activation_fn: Callable[[Any], Any] | None = None,
        convert_to_numpy: bool = True,
    ) -> np.ndarray[Any, Any]:
        assert show_progress_bar is False
        assert convert_to_numpy
        self.sizes.append(batch_size)
        activation = activation_fn or (lambda logits: 1.0 / (1.0 + np.exp(-logits)))
        rows = np.concatenate([activation(self._logits(*pair)) for pair in inputs])
        return rows[:, 0] if self.num_labels == 1 else rows


def test_sentence_transformers_objects_give_the_same_scores(tmp_path: Path) -> None:
    texts = ["quality tier", "cats sleep", "tier budget"]
    cases: list[tuple[str, list[list[float]], dict[int, str]]] = [
        ("one", ONE, {0: "LABEL_0"}),
        ("two", TWO, {0: "LABEL_0", 1: "LABEL_1"}),
        ("three", THREE, {0: "entailment", 1: "neutral", 2: "contradiction"}),
    ]
    for name, weights, labels in cases:
        named = {str(place): label for place, label in labels.items()}
        place = folder(tmp_path / name, weights, named)
        double = CrossEncoderDouble(place, labels)
        wrapped = SentenceTransformersReranker(double, "shared-words")
        assert isinstance(wrapped, Reranker)
        wanted = OnnxCrossEncoder(place).scores("tier quality", texts)
        assert wrapped.scores("tier quality", texts) == pytest.approx(wanted)
        assert double.sizes == [1]
        assert wrapped.scores("tier", []) == []


def test_errors_of_sentence_transformers_are_engine_errors(tmp_path: Path) -> None:
    class Failing(CrossEncoderDouble):
        def predict(self, inputs: Sequence[tuple[str, str]], **options: Any) -> Any:
            raise RuntimeError(inputs[0][1])

    wrapped = SentenceTransformersReranker(Failing(folder(tmp_path), {0: "LABEL_0"}), "failing")
    with pytest.raises(EngineError, match="failing failed with RuntimeError") as caught:
        wrapped.scores("tier", ["a secret"])
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="identity is empty"):
        SentenceTransformersReranker(wrapped, "")

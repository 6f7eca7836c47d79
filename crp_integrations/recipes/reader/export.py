"""The reader as an ONNX file, written node by node.

Evidence never reads the claim, so its states and the claim's are held apart: no mask is needed,
and the graph has two inputs of any length. Words are rows of int8; matrices are int8 with one
scale an output column, and with `dynamic` what they multiply is rounded to 8 bits as well, by
the range of the one pair that is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from crp_integrations.recipes.bert import (
    HEAD_WIDTH,
    HEADS,
    IR_VERSION,
    LAYERS,
    OPSET,
    WIDTH,
    Graph,
    gelu,
    linear,
    pair,
)
from crp_integrations.recipes.minilm import WEIGHTS_SHA256
from crp_integrations.recipes.reader.groups import CLAIM_TOKENS, EVIDENCE_TOKENS
from crp_integrations.seals import sha256_hex
from crp_integrations.weights import Card

Rounding = Literal["dynamic", "weight-only", "float32"]
Array = npt.NDArray[Any]
# Codes of seven bits: with eight, processors without VNNI clip sums of two products.
_CODES: Final = 63
# Of long evidence the engine reads this much: a fifth cheaper than the most that is trained on.
PASSAGE: Final = 192
NOTICE: Final = (
    "all-MiniLM-L6-v2 by the sentence-transformers authors, licensed under the Apache License, "
    "Version 2.0. Changed here: fine-tuned as a reader of claims, given two heads, written as "
    "ONNX, matrices rounded to int8."
)
LIMITS: Final = (
    "English. Reads at most 256 tokens of evidence and 112 of a claim at a time. Trained mostly "
    "on generated edits of encyclopedic prose: docs/reader.md says what such a reader missed."
)


class ReaderGraph(Graph):
    """A graph whose matrices may be multiplied in integers."""

    def __init__(self, rounding: Rounding) -> None:
        super().__init__("float32" if rounding == "float32" else "weight-only")
        self.rounding = rounding

    def dense(self, name: str, source: str, weight: Array, bias: Array) -> str:
        """`source @ weight + bias`."""
        if self.rounding != "dynamic":
            return super().dense(name, source, weight, bias)
        scales = (np.abs(weight).max(axis=0, keepdims=True) / np.float32(_CODES)).astype(np.float32)
        scales[scales == 0] = 1
        codes = np.rint(weight / scales).clip(-_CODES, _CODES).astype(np.int8)
        rounded = [f"{name}.{part}" for part in ("input", "scale", "zero")]
        self.nodes.append(
            helper.make_node("DynamicQuantizeLinear", [source], rounded, f"{name}.rounded")
        )
        whole = self.node(
            "MatMulInteger",
            [rounded[0], self.constant(f"{name}.codes", codes), rounded[2]],
            f"{name}.whole",
        )
        wide = self.node("Cast", [whole], f"{name}.wide", to=TensorProto.FLOAT)
        scale = self.node(
            "Mul", [rounded[1], self.constant(f"{name}.scales", scales[0])], f"{name}.both"
        )
        product = self.node("Mul", [wide, scale], f"{name}.product")
        return self.node("Add", [product, self.constant(f"{name}.bias", bias)], name)


def build(weights: dict[str, Array], rounding: Rounding) -> bytes:
    """Write the reader's network as ONNX.

    Args:
        weights: float32 tensors by the names of `network.Reader`.
        rounding: `dynamic` is the recipe's default.

    Returns:
        The file's bytes. Inputs `evidence` and `claim`, int64, shape (1, length), frame tokens
        included; outputs `pair`, float32, shape (1, 3), probabilities of entailed, neutral and
        contradicted, and `doubt`, float32, shape (1, length of claim), in [0, 1].
    """
    graph = ReaderGraph(rounding)
    for name, value in (("root_two", np.sqrt(2.0)), ("one", 1.0), ("half", 0.5)):
        graph.constant(name, np.array(value, dtype=np.float32))
    graph.constant("zero", np.zeros(1, dtype=np.int64))
    graph.constant("end", np.array([2**31], dtype=np.int64))
    graph.constant("length_axis", np.array([1], dtype=np.int64))
    graph.constant("heads", np.array([0, 0, HEADS, HEAD_WIDTH], dtype=np.int64))
    graph.constant("joined", np.array([0, 0, WIDTH], dtype=np.int64))
    graph.node("Concat", ["evidence", "claim"], "ids", axis=1)
    graph.node("Shape", ["evidence"], "cut", start=1, end=2)
    graph.node("Shape", ["claim"], "size", start=1, end=2)
    words = graph.lookup("words", weights["words.weight"], "ids")
    # One table a segment: the segment's vector is added to the positions once and for all.
    places, most = [], (EVIDENCE_TOKENS, CLAIM_TOKENS)
    for number, (part, length) in enumerate((("evidence", "cut"), ("claim", "size"))):
        table = (weights["places.weight"] + weights["segments.weight"][number])[: most[number]]
        name = graph.constant(f"{part}.table", table)
        places.append(graph.node("Slice", [name, "zero", length], f"{part}.places"))
    graph.node("Concat", places, "places", axis=0)
    state = graph.node("Add", [words, "places"], "embedded")
    state = graph.norm("embedded.norm", state, weights["norm.weight"], weights["norm.bias"])
    for number in range(LAYERS):
        own = {
            name.removeprefix(f"layers.{number}."): value
            for name, value in weights.items()
            if name.startswith(f"layers.{number}.")
        }
        state = _layer(graph, own, f"layer{number}", state)
    claim = graph.node("Slice", [state, "cut", "end", "length_axis"], "claim.state")
    _heads(graph, weights, claim)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "crp-reader",
            [
                helper.make_tensor_value_info("evidence", TensorProto.INT64, [1, "evidence_size"]),
                helper.make_tensor_value_info("claim", TensorProto.INT64, [1, "claim_size"]),
            ],
            [
                helper.make_tensor_value_info("pair", TensorProto.FLOAT, [1, 3]),
                helper.make_tensor_value_info("doubt", TensorProto.FLOAT, [1, "claim_size"]),
            ],
            graph.initialisers,
        ),
        producer_name="crp_integrations.recipes.reader",
        producer_version="1",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def make(
    out: Path, weights: dict[str, Array], rounding: Rounding, thresholds: dict[str, float]
) -> Card:
    """Write `model.onnx` and `card.json` to a directory that exists.

    Args:
        out: where to.
        weights: float32 tensors by the names of `network.Reader`.
        rounding: how matrices are stored and multiplied.
        thresholds: by name, from the held part of the training data.
    """
    model = build(weights, rounding)
    card = Card(
        name="crp-reader",
        version={"dynamic": "int8d@1", "weight-only": "int8w@1", "float32": "float32@1"}[rounding],
        licence="Apache-2.0",
        notice=NOTICE,
        origin="all-MiniLM-L6-v2, fine-tuned with crp_integrations.recipes.reader",
        origin_sha256=WEIGHTS_SHA256,
        files={"model.onnx": sha256_hex(model)},
        passage=PASSAGE,
        thresholds=thresholds,
        limits=LIMITS,
    )
    (out / "model.onnx").write_bytes(model)
    (out / "card.json").write_text(card.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return card


def _layer(graph: ReaderGraph, own: dict[str, Array], name: str, state: str) -> str:
    scaling = np.float32(1 / np.sqrt(HEAD_WIDTH))
    matrices = {part: linear(own, part) for part in ("query", "key", "value")}
    joint = np.concatenate(
        [matrices["query"][0] * scaling, matrices["key"][0], matrices["value"][0]], axis=1
    )
    bias = np.concatenate(
        [matrices["query"][1] * scaling, matrices["key"][1], matrices["value"][1]]
    )
    graph.dense(f"{name}.qkv", state, joint, bias)
    names = [f"{name}.{part}" for part in ("query", "key", "value")]
    graph.nodes.append(helper.make_node("Split", [f"{name}.qkv"], names, f"{name}.split", axis=-1))
    shaped = [graph.node("Reshape", [part, "heads"], f"{part}.heads") for part in names]
    mixed = []
    for part in ("evidence", "claim"):
        query, key, value = shaped
        # The claim reads all, evidence itself.
        at = ["zero", "cut"] if part == "evidence" else ["cut", "end"]
        query = graph.node("Slice", [query, *at, "length_axis"], f"{name}.{part}.query")
        if part == "evidence":
            key = graph.node("Slice", [key, *at, "length_axis"], f"{name}.{part}.key")
            value = graph.node("Slice", [value, *at, "length_axis"], f"{name}.{part}.value")
        prefix = f"{name}.{part}"
        query = graph.node("Transpose", [query], f"{prefix}.q", perm=[0, 2, 1, 3])
        key = graph.node("Transpose", [key], f"{prefix}.k", perm=[0, 2, 3, 1])
        value = graph.node("Transpose", [value], f"{prefix}.v", perm=[0, 2, 1, 3])
        scores = graph.node("MatMul", [query, key], f"{prefix}.scores")
        attention = graph.node("Softmax", [scores], f"{prefix}.attention", axis=-1)
        found = graph.node("MatMul", [attention, value], f"{prefix}.mixed")
        mixed.append(graph.node("Transpose", [found], f"{prefix}.back", perm=[0, 2, 1, 3]))
    graph.node("Concat", mixed, f"{name}.both", axis=1)
    graph.node("Reshape", [f"{name}.both", "joined"], f"{name}.context")
    out = graph.dense(f"{name}.out", f"{name}.context", *linear(own, "out"))
    state = graph.node("Add", [out, state], f"{name}.attended")
    state = graph.norm(f"{name}.attended.norm", state, *pair(own, "out_norm"))
    up = graph.dense(f"{name}.up", state, *linear(own, "up"))
    down = graph.dense(f"{name}.down", gelu(graph, f"{name}.gelu", up), *linear(own, "down"))
    state = graph.node("Add", [down, state], f"{name}.fed")
    return graph.norm(f"{name}.fed.norm", state, *pair(own, "down_norm"))


def _heads(graph: ReaderGraph, weights: dict[str, Array], claim: str) -> None:
    # Small, so in float32.
    plain = Graph("float32")
    plain.nodes, plain.initialisers = graph.nodes, graph.initialisers
    token = plain.dense("token", claim, *linear(weights, "token"))
    plain.node(
        "Sigmoid",
        [plain.node("Squeeze", [token, plain.constant("last", np.array([2]))], "token.flat")],
        "doubt",
    )
    turned = plain.node("Transpose", [token], "token.turned", perm=[0, 2, 1])
    share = plain.node("Softmax", [turned], "token.share", axis=-1)
    doubted = plain.node("MatMul", [share, claim], "doubted")
    one = plain.constant("token.first", np.array([1], dtype=np.int64))
    first = plain.node("Slice", [claim, "zero", one, "length_axis"], "first")
    plain.node("Concat", [first, doubted], "seen", axis=-1)
    inner = plain.dense("pair_in", "seen", *linear(weights, "pair_in"))
    logits = plain.dense("pair.logits", gelu(plain, "pair.gelu", inner), *linear(weights, "pair"))
    flat = plain.node("Squeeze", [logits, "length_axis"], "pair.flat")
    plain.node("Softmax", [flat], "pair", axis=-1)

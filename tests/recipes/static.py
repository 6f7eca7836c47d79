"""Makes the static table: one short vector for each token, distilled from MiniLM.

`python -m tests.recipes.static --model FOLDER --out DIR` runs each entry of the vocabulary by
itself through what `tests.recipes.minilm --quantisation weight-only` writes, keeps the principal components, and weighs a token by how rare it is. The words
of the vocabulary are sorted by how often they occur, so a word's rank stands for its frequency,
and no text is read. It takes about two minutes of processor time.
"""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from crp_integrations import weights
from crp_integrations.engines.embeddings import STATIC_DIMENSIONS, STATIC_ROW, STATIC_TABLE
from crp_integrations.engines.onnx import opened, tokenizer_of
from crp_integrations.seals import sha256_hex
from crp_integrations.weights import Card

Array = npt.NDArray[Any]

# Entries of one run; all have three tokens, so a run has no padding.
BLOCK: Final = 256
# A word that makes up this share of a text has half the weight of a rare one; the usual value of
# smooth inverse frequency.
HALF_WEIGHT: Final = 1e-3
# The first entry that is a word; those before it are control tokens and single characters, which
# are taken to be as frequent as the words of rank ten.
FIRST_WORD: Final = "the"
CHARACTER_SHARE: Final = 0.01
NOTICE: Final = (
    "Distilled from all-MiniLM-L6-v2 by the sentence-transformers authors, licensed under the "
    "Apache License, Version 2.0. Changed here: only a table of token vectors is left."
)
LIMITS: Final = (
    "English. The order of words makes no difference, and a word has one vector whatever stands "
    "beside it. Similarity is topical: no threshold here speaks of truth."
)
# Measured with `python -m tests.bench.embedder --model static`; CARD.md has the table.
THRESHOLDS: Final = {
    "relevance_floor": 0.50,
    "relevance_floor_measured": 0.55,
    "neighbour": 0.75,
    "opening_coherence": 0.35,
    # Texts that differ in one word may have a cosine of .999: only equal words count as near.
    "near_duplicate": 1.0,
}


def vocabulary_rows(source: weights.Weights) -> Array:
    """The model's vector of each entry between the control tokens, shape (entries, width)."""
    session, tokenizer = opened(source.read("model.onnx"), source.read("tokenizer.json"))
    first, last = (tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))
    number = tokenizer.get_vocab_size()
    return np.concatenate(
        [
            session.run(
                None,
                {"input_ids": np.array([[first, entry, last] for entry in block], dtype=np.int64)},
            )[0]
            for start in range(0, number, BLOCK)
            for block in [range(start, min(number, start + BLOCK))]
        ]
    )


def entry_weights(entries: int, first_word: int) -> Array:
    """The weight of each entry in (0, 1), with frequencies by Zipf's law."""
    rank = np.maximum(1, np.arange(entries) - first_word + 1)
    share = 1.0 / (rank * np.log(entries))
    share[:first_word] = CHARACTER_SHARE
    return np.asarray(HALF_WEIGHT / (HALF_WEIGHT + share))


def principal_rows(rows: Array, dimensions: int = STATIC_DIMENSIONS) -> Array:
    """Centred rows on their principal axes, shape (entries, dimensions)."""
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :dimensions]
    # An axis and its opposite are the same to the solver: the largest component is positive.
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(dimensions)])
    return np.asarray(centred @ axes)


def build_table(rows: Array) -> bytes:
    """The rows in int8 with one scale each, as one `.npy` file."""
    table = np.zeros(len(rows), dtype=STATIC_ROW)
    scales = np.abs(rows).max(axis=1) / 127.0
    table["scale"] = scales
    table["codes"] = np.rint(rows / np.where(scales > 0.0, scales, 1.0)[:, None])
    file = io.BytesIO()
    np.save(file, table)
    return file.getvalue()


def make(out: Path, source: weights.Weights, rows: Array | None = None) -> Card:
    """Write the table and `card.json` to a directory."""
    first_word = tokenizer_of(source.read("tokenizer.json")).token_to_id(FIRST_WORD)
    if rows is None:
        rows = vocabulary_rows(source)
    weighed = principal_rows(rows) * entry_weights(len(rows), first_word)[:, None]
    content = build_table(weighed)
    card = Card(
        name="all-MiniLM-L6-v2-static",
        version="int8-256@1",
        licence="Apache-2.0",
        notice=NOTICE,
        origin=f"model.onnx of {source.card.name} {source.card.version}",
        origin_sha256=source.card.files["model.onnx"],
        files={STATIC_TABLE: sha256_hex(content)},
        dimensions=STATIC_DIMENSIONS,
        thresholds=THRESHOLDS,
        limits=LIMITS,
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / STATIC_TABLE).write_bytes(content)
    (out / "card.json").write_text(card.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return card


def main(arguments: list[str] | None = None) -> None:
    """Run the recipe from a command line."""
    parser = argparse.ArgumentParser(prog="tests.recipes.static", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory to write to")
    parser.add_argument("--model", type=Path, required=True, help="the recipe's output")
    given = parser.parse_args(arguments)
    source = weights.describe_directory(given.model)
    source.verify()
    card = make(given.out, source)
    print(json.dumps(dict(card.files), indent=2))


if __name__ == "__main__":
    main()

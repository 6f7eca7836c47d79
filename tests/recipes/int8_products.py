"""Layers of the network in `tests.recipes.bert` that multiply int8 codes in place of numbers.

A layer's input becomes codes from 0 to 255. The step between two codes is a constant of the file
for each channel, so that a vector depends on its own text alone. Steps come from running the
network in float64 over the licence's text and made-up sequences of tokens: no data set is read.
A channel's mean is subtracted before coding and put into the bias. Steps and means cost nothing
where the operator before can take them in: normalisation, the values of attention, the factor of
GELU.

A channel with far larger numbers than the others would cost a column of weights its precision. It
is repeated, and its weights are divided among the copies.

Processors without instructions for such products add two of them in 16 bits, which can overflow.
The weights of two neighbouring channels therefore add up to at most 128, so that sums are exact
and equal on every processor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from tests.recipes.bert import (
    HEAD_WIDTH,
    HEADS,
    LAYERS,
    Array,
    Graph,
    Stream,
    attention,
    attention_inputs,
    gelu,
    linear,
    normalised,
    pair,
)

Numbers = npt.NDArray[np.float64]

# The code of a channel's mean, and of zero after GELU, whose least value is -.17.
MIDDLE: Final = 128
AFTER_GELU: Final = 24
# Steps reach this much further than the values seen.
MARGIN: Final = 1.1
# No channel has a smaller range than this share of the channels: smaller ones need no finer codes.
LEAST_RANGE: Final = {"qkv": 0.5, "out": 0.9, "up": 0.5, "down": 0.9}
# Copies of channels in the inputs of `up` and `down`; multiples of four suit the processors.
MORE_UP: Final = 8
MORE_DOWN: Final = 16
# Lengths of the made-up sequences, of each of which there are four.
_LENGTHS: Final = (4, 8, 16, 32, 64, 128, 128, 250)
_FIRST, _LAST, _PLAIN = 101, 102, 1_000
# Coprime to the number of entries, so that a sequence walks over all of the vocabulary.
_STRIDE: Final = 7_919


class Range(NamedTuple):
    """Mean, and largest distance from it or from zero, of the channels of a layer's input."""

    mean: Numbers
    most: Numbers
    highest: Numbers


def made_up(entries: int) -> list[list[int]]:
    """Sequences of tokens from all of the vocabulary."""
    counts = _LENGTHS * 4
    walk = np.arange(sum(counts)) * _STRIDE % (entries - _PLAIN) + _PLAIN
    ends = np.cumsum(counts)
    return [[_FIRST, *part.tolist(), _LAST] for part in np.split(walk, ends[:-1])]


def ranges(
    weights: Mapping[str, Array], sequences: Iterable[Sequence[int]]
) -> dict[tuple[int, str], Range]:
    """Run sequences of tokens in float64, and see the range of each layer's inputs.

    Returns:
        Ranges by layer and input: `qkv`, `out`, `up` or `down`.
    """
    wide = {name: weight.astype(np.float64) for name, weight in weights.items()}
    seen: dict[tuple[int, str], list[Numbers]] = {}
    for tokens in sequences:
        for key, rows in _run(wide, tokens).items():
            seen.setdefault(key, []).append(rows)
    result = {}
    for key, parts in seen.items():
        rows = np.concatenate(parts)
        mean = rows.mean(axis=0)
        result[key] = Range(mean, np.abs(rows - mean).max(axis=0), rows.max(axis=0))
    return result


def _run(weights: Mapping[str, Numbers], tokens: Sequence[int]) -> dict[tuple[int, str], Numbers]:
    """The inputs of every product for one sequence, shape (length, channels)."""
    state = weights["embeddings.word_embeddings.weight"][list(tokens)]
    state = state + weights["embeddings.position_embeddings.weight"][: len(tokens)]
    state = state + weights["embeddings.token_type_embeddings.weight"][0]
    state = _norm(state, *pair(weights, "embeddings.LayerNorm"))
    seen = {}
    for number in range(LAYERS):
        source = f"encoder.layer.{number}"
        seen[number, "qkv"] = state
        matrix, bias = attention_inputs(weights, source)
        parts = np.split(state @ matrix + bias, 3, axis=1)
        query, key, value = (
            part.reshape(-1, HEADS, HEAD_WIDTH).transpose(1, 0, 2) for part in parts
        )
        scores = np.exp(query @ key.transpose(0, 2, 1))
        mixed = scores / scores.sum(axis=-1, keepdims=True) @ value
        context = seen[number, "out"] = mixed.transpose(1, 0, 2).reshape(len(tokens), -1)
        matrix, bias = linear(weights, f"{source}.attention.output.dense")
        norm = pair(weights, f"{source}.attention.output.LayerNorm")
        state = seen[number, "up"] = _norm(context @ matrix + bias + state, *norm)
        matrix, bias = linear(weights, f"{source}.intermediate.dense")
        hidden = state @ matrix + bias
        hidden = seen[number, "down"] = hidden * 0.5 * (1 + _erf(hidden / np.sqrt(2)))
        matrix, bias = linear(weights, f"{source}.output.dense")
        state = _norm(hidden @ matrix + bias + state, *pair(weights, f"{source}.output.LayerNorm"))
    return seen


def _erf(values: Numbers) -> Numbers:
    flat = np.fromiter(map(math.erf, values.ravel().tolist()), dtype=np.float64)
    return flat.reshape(values.shape)


def _norm(rows: Numbers, scale: Numbers, shift: Numbers) -> Numbers:
    centred = rows - rows.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
    return np.asarray(centred / deviation * scale + shift)


def copies(rows: Array, more: int) -> npt.NDArray[np.int64]:
    """Channels to repeat, those with the largest weights first, `more` in all.

    Args:
        rows: weights of each channel times its step, shape (channels, columns).
    """
    largest = np.abs(rows).max(axis=1)
    times = np.ones(len(rows), dtype=np.int64)
    for _ in range(more):
        times[np.argmax(largest / times)] += 1
    return np.repeat(np.arange(len(rows)), times - 1)


def ordered(rows: Array, more: int) -> npt.NDArray[np.int64]:
    """Every channel and the copies, in an order that puts large weights beside small ones."""
    channels = np.concatenate([np.arange(len(rows)), copies(rows, more)])
    times = np.bincount(channels)
    falling = np.argsort(-(np.abs(rows).max(axis=1) / times)[channels], kind="stable")
    half = len(falling) // 2
    order = np.empty_like(channels)
    order[0::2], order[1::2] = channels[falling[:half]], channels[falling[half:][::-1]]
    return order


def code(rows: Array) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Round a matrix to int8, one scale a column; weights of a pair of rows add up to 128 at most.

    Args:
        rows: shape (even number of rows, columns).
    """
    most = np.abs(rows).max(axis=0) / 127
    for sign in (1, -1):
        one = np.maximum(sign * rows, 0)
        # Rounding may add a half to each of the two.
        most = np.maximum(most, (one[0::2] + one[1::2]).max(axis=0) / 127.4)
    scales = most.astype(np.float32)
    scales[scales == 0] = 1
    return np.rint(rows / scales).clip(-127, 127).astype(np.int8), scales


class CodedLayer:
    """Writes layers whose four products multiply codes."""

    def __init__(self, seen: Mapping[tuple[int, str], Range]) -> None:
        self._seen = seen

    def __call__(
        self, graph: Graph, weights: Mapping[str, Array], number: int, stream: Stream
    ) -> Stream:
        """Write layer `number`."""
        if not number:
            graph.constant("step", np.array(1, dtype=np.float32))
            graph.constant("middle", np.array(MIDDLE, dtype=np.uint8))
            graph.constant("after_gelu", np.array(AFTER_GELU, dtype=np.uint8))
        source, name = f"encoder.layer.{number}", f"layer{number}"
        matrix, bias = attention_inputs(weights, source)
        mean, step = self._steps(number, "out")
        # The weights of attention add up to 1, so that its values can be shifted before.
        width = len(step)
        matrix[:, -width:] /= step
        bias[-width:] = (bias[-width:] - mean) / step
        codes, wanted = self._codes(graph, f"{name}.in", stream, number, "qkv")
        _product(graph, f"{name}.qkv", codes, matrix, bias, wanted)
        mixed = _quantise(graph, f"{name}.codes", attention(graph, name))
        graph.node("Transpose", [mixed], f"{name}.back", perm=[0, 2, 1, 3])
        graph.node("Reshape", [f"{name}.back", "joined"], f"{name}.context")
        out = linear(weights, f"{source}.attention.output.dense")
        out_name = _product(graph, f"{name}.out", f"{name}.context", *out, (mean, step))
        raw = graph.node("Add", [out_name, stream.state], f"{name}.attended")
        norm = pair(weights, f"{source}.attention.output.LayerNorm")
        attended = normalised(graph, raw, raw, *norm)
        return self._fed(graph, weights, number, attended)

    def _fed(
        self, graph: Graph, weights: Mapping[str, Array], number: int, stream: Stream
    ) -> Stream:
        source, name = f"encoder.layer.{number}", f"layer{number}"
        matrix, bias = linear(weights, f"{source}.intermediate.dense")
        rows, down_bias = linear(weights, f"{source}.output.dense")
        highest = self._seen[number, "down"].highest * MARGIN
        least = np.quantile(highest, LEAST_RANGE["down"])
        step = (np.maximum(highest, least) / (255 - AFTER_GELU)).astype(np.float32)
        # Hidden channels have no order, so `up` gives them in that of `down`, with the copies.
        hidden = ordered(rows * step[:, None], MORE_DOWN)
        rows = (rows / np.bincount(hidden)[:, None])[hidden]
        matrix, bias, step = matrix[:, hidden], bias[hidden], step[hidden]
        codes, wanted = self._codes(graph, f"{name}.fed.in", stream, number, "up")
        more = copies(matrix * wanted[1][:, None], MORE_UP)
        places = graph.constant(f"{name}.fed.more", more)
        graph.node("Gather", [codes, places], f"{name}.fed.copies", axis=2)
        codes = graph.node("Concat", [codes, f"{name}.fed.copies"], f"{name}.fed.all", axis=2)
        up = _product(graph, f"{name}.up", codes, matrix, bias, wanted, more)
        factor = graph.constant(f"{name}.gelu.factor", (0.5 / step).astype(np.float32))
        active = gelu(graph, f"{name}.gelu", up, factor)
        codes = _quantise(graph, f"{name}.gelu.codes", active, "after_gelu")
        steps = (np.zeros_like(step), step)
        down = _product(graph, f"{name}.down", codes, rows, down_bias, steps, zero="after_gelu")
        raw = graph.node("Add", [down, stream.state], f"{name}.fed")
        return normalised(graph, raw, raw, *pair(weights, f"{source}.output.LayerNorm"))

    def _steps(self, number: int, part: str) -> tuple[Array, Array]:
        """Mean and step of each channel."""
        seen = self._seen[number, part]
        most = seen.most * MARGIN
        step = np.maximum(most, np.quantile(most, LEAST_RANGE[part])) / 127
        return seen.mean.astype(np.float32), step.astype(np.float32)

    def _codes(
        self, graph: Graph, name: str, stream: Stream, number: int, part: str
    ) -> tuple[str, tuple[Array, Array]]:
        """Normalise once more, with means and steps put in, and code that."""
        mean, step = self._steps(number, part)
        shift = ((stream.shift - mean) / step).astype(np.float32)
        graph.norm(name, stream.raw, (stream.scale / step).astype(np.float32), shift)
        return _quantise(graph, f"{name}.codes", name), (mean, step)


def _quantise(graph: Graph, name: str, source: str, zero: str = "middle") -> str:
    return graph.node("QuantizeLinear", [source, "step", zero], name)


def _product(
    graph: Graph,
    name: str,
    codes: str,
    matrix: Array,
    bias: Array,
    steps: tuple[Array, Array],
    more: Sequence[int] | npt.NDArray[Any] = (),
    *,
    zero: str = "middle",
) -> str:
    """`source @ matrix + bias` of a coded source whose channels `more` are repeated at the end."""
    mean, step = steps
    rows = matrix * step[:, None]
    if len(more):
        times = np.bincount(more, minlength=len(rows)) + 1
        rows = (rows / times[:, None])[[*range(len(rows)), *more]]
    weights, scales = code(rows)
    constant = graph.constant(f"{name}.codes", weights)
    graph.node("MatMulInteger", [codes, constant, zero], f"{name}.whole")
    graph.node("Cast", [f"{name}.whole"], f"{name}.float", to=TensorProto.FLOAT)
    scale = graph.constant(f"{name}.scales", scales)
    graph.node("Mul", [f"{name}.float", scale], f"{name}.product")
    shifted = (bias + mean @ matrix).astype(np.float32)
    return graph.node("Add", [f"{name}.product", graph.constant(f"{name}.bias", shifted)], name)

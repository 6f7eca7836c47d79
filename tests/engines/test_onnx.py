"""The shipped embedder: unit rows, no influence of the batch, nothing cut, changed files refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations import weights
from crp_integrations.engines import onnx
from crp_integrations.engines.onnx import (
    MOST_WINDOWS,
    OnnxEmbedder,
    average_windows,
    windows,
)
from crp_integrations.errors import EngineError
from crp_integrations.ports import Embedder
from crp_integrations.seals import sha256_hex

TEXTS = [
    "The cat sat on the mat.",
    "A dog sat on the rug.",
    "Quantum chromodynamics describes how quarks are bound by gluons.",
    "",
    "Does aspirin reduce fever?",
    "The cat sat on the mat.",
    "Überraschung: naïve café, 東京, 😀, ﷺ, \u200bzero width",
]
FILLER = "The river runs through the old town and past the mill. "
FACT = "Penicillin was discovered by Alexander Fleming in 1928."
# Hypothesis calls a test many times, so its tests take no fixture of one call.
SHARED = OnnxEmbedder()


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    return SHARED


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(weights.describe("minilm").path, tmp_path / "minilm")
    return tmp_path / "minilm"


def change_card(directory: Path, **fields: object) -> None:
    card = json.loads((directory / "card.json").read_text())
    (directory / "card.json").write_text(json.dumps(card | fields))


def test_it_is_an_embedder(embedder: OnnxEmbedder) -> None:
    assert isinstance(embedder, Embedder)
    assert embedder.dimensions == 384
    assert embedder.thresholds["relevance_floor"] == 0.5
    with pytest.raises(TypeError):
        embedder.thresholds["relevance_floor"] = 0.1  # type: ignore[index]


def test_identity_names_model_quantisation_and_bytes(embedder: OnnxEmbedder) -> None:
    assert embedder.identity == OnnxEmbedder().identity
    assert embedder.identity.startswith("all-MiniLM-L6-v2/int8@1+sha256:")
    assert len(embedder.identity.partition("sha256:")[2]) == 64


def test_identity_follows_files_and_windows_only(copy: Path, embedder: OnnxEmbedder) -> None:
    change_card(copy, limits="none", thresholds={"neighbour": 0.9})
    assert OnnxEmbedder(copy).identity == embedder.identity
    change_card(copy, overlap=16)
    assert OnnxEmbedder(copy).identity != embedder.identity


def test_rows_are_unit_float32_and_contiguous(embedder: OnnxEmbedder) -> None:
    rows = embedder.embed_passages(TEXTS)
    assert rows.shape == (len(TEXTS), 384)
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert np.isfinite(rows).all()
    assert np.allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1, atol=1e-6)


@settings(max_examples=15)
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6))
def test_a_vector_does_not_depend_on_its_batch(chosen: list[str]) -> None:
    together = SHARED.embed_passages(chosen)
    for row, text in zip(together, chosen, strict=True):
        assert row.tobytes() == SHARED.embed_query(text).tobytes()
        assert row.tobytes() == SHARED.embed_passages([text])[0].tobytes()


def test_many_texts_run_in_threads_in_their_order_and_bits(
    monkeypatch: pytest.MonkeyPatch, embedder: OnnxEmbedder
) -> None:
    texts = [f"{text} {number}" for number in range(2) for text in TEXTS]
    wanted = [embedder.embed_query(text).tobytes() for text in texts]
    # Each run waits for another one, which only another thread can begin.
    meeting = threading.Barrier(2)
    mean = onnx._mean

    def meet(session: Any, tokens: Sequence[int]) -> Any:
        meeting.wait(timeout=60)
        return mean(session, tokens)

    monkeypatch.setattr(onnx, "_processors", lambda: 2)
    monkeypatch.setattr(onnx, "_mean", meet)
    assert [row.tobytes() for row in embedder.embed_passages(texts)] == wanted


def test_a_text_that_fails_among_many_is_the_engines_error(embedder: OnnxEmbedder) -> None:
    with pytest.raises(EngineError, match="tokenizers"):
        embedder.embed_passages([*TEXTS, "\ud800", *TEXTS])


@settings(max_examples=40)
@given(st.text(max_size=200))
def test_any_text_gives_a_unit_vector(text: str) -> None:
    row = SHARED.embed_query(text)
    assert row.shape == (384,)
    assert abs(float(row.astype(np.float64) @ row.astype(np.float64)) - 1) < 1e-6


def test_control_tokens_in_a_text_are_text(embedder: OnnxEmbedder) -> None:
    plain = embedder.embed_query("a [ sep ] b")
    assert plain.tobytes() == embedder.embed_query("a [SEP] b").tobytes()


def test_a_lone_surrogate_is_refused(embedder: OnnxEmbedder) -> None:
    with pytest.raises(EngineError, match="tokenizers") as caught:
        embedder.embed_query("\ud800")
    assert caught.value.engine == "tokenizers"
    assert caught.value.version
    assert caught.value.__cause__ is not None


def test_a_fact_at_the_far_end_of_a_long_text_counts(embedder: OnnxEmbedder) -> None:
    without = embedder.embed_query(FILLER * 100)
    end = embedder.embed_query(FILLER * 100 + FACT)
    middle = embedder.embed_query(FILLER * 50 + FACT + " " + FILLER * 50)
    fact = embedder.embed_query(FACT)
    assert end @ fact > without @ fact
    assert middle @ fact > without @ fact
    assert end.tobytes() != without.tobytes()


@given(st.integers(0, 2000), st.integers(1, 300), st.data())
def test_windows_cover_everything_within_the_size(
    count: int, size: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    spans = windows(count, size, overlap)
    assert spans[0][0] == 0
    assert spans[-1][1] == count
    assert all(end - start <= size for start, end in spans)
    lengths = {end - start for start, end in spans}
    assert len(lengths) == 1
    assert all(before[1] - after[0] >= overlap for before, after in pairwise(spans))


def test_callers_in_several_threads_get_the_same_bytes(embedder: OnnxEmbedder) -> None:
    wanted = embedder.embed_passages(TEXTS).tobytes()
    fresh = OnnxEmbedder()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: fresh.embed_passages(TEXTS).tobytes(), range(8)))
    assert set(found) == {wanted}


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
def test_a_changed_byte_is_refused(copy: Path, file: str) -> None:
    content = bytearray((copy / file).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / file).write_bytes(content)
    with pytest.raises(EngineError, match=r"SHA-256 .* wanted"):
        OnnxEmbedder(copy).embed_query("anything")


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
def test_a_file_that_is_no_model_is_the_engines_error(copy: Path, file: str) -> None:
    (copy / file).write_bytes(b"{}")
    card = json.loads((copy / "card.json").read_text())
    change_card(copy, files=card["files"] | {file: sha256_hex(b"{}")})
    with pytest.raises(EngineError, match="cannot be loaded") as caught:
        OnnxEmbedder(copy).embed_query("anything")
    assert caught.value.__cause__ is not None


def test_a_card_that_is_no_embedders_is_refused(copy: Path) -> None:
    change_card(copy, dimensions=0)
    with pytest.raises(EngineError, match="wanted an embedder's card"):
        OnnxEmbedder(copy)


def test_a_run_that_fails_is_the_engines_error(copy: Path) -> None:
    # The network has 512 places; a card that promises more is found out by the runtime.
    change_card(copy, passage=4096)
    with pytest.raises(EngineError, match=r"a run over \d+ tokens failed"):
        OnnxEmbedder(copy).embed_query("word " * 600)


def test_the_runtime_reports_nothing_to_its_maker(tmp_path: Path) -> None:
    # Its builds would keep a device id and a queue of events in the home folder.
    code = (
        "from crp_integrations.engines.onnx import OnnxEmbedder\n"
        "OnnxEmbedder().embed_query('text')\n"
        "print('embedded')\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "embedded\n", done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_altered_files_are_found_without_loading_the_model(tmp_path: Path) -> None:
    source = weights.load("minilm").path
    for file in source.iterdir():
        if file.suffix in (".json", ".onnx"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    OnnxEmbedder(tmp_path).verify()
    model = tmp_path / "model.onnx"
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    with pytest.raises(EngineError, match=r"model\.onnx"):
        OnnxEmbedder(tmp_path).verify()


def test_texts_are_embedded_in_this_thread_where_no_other_can_begin(
    embedder: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text {n} of some" for n in range(9)]
    wanted = embedder.embed_passages(texts)

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    assert (embedder.embed_passages(texts) == wanted).all()


@pytest.mark.parametrize("unit", ["12:34:", "word ", "a? ", "é-", "1", "\u4e00"])
def test_a_long_text_costs_no_more_runs_than_the_longest_that_is_read_whole(unit: str) -> None:
    runs = Counter[int]()

    def embed(window: Sequence[int], of: int) -> np.ndarray:
        runs[of] += 1
        assert len(window) <= 256
        return np.ones(4, dtype=np.float32) * window[1]

    for characters in (1_000, 5_000, 20_000, 200_000):
        tokens = [101, *range(1, len(unit * (characters // len(unit)))), 102]
        mean = average_windows(tokens, 256, 32, partial(embed, of=characters))
        assert np.isfinite(mean).all()
    assert runs[1_000] <= runs[5_000] <= runs[20_000] <= MOST_WINDOWS
    assert runs[200_000] == MOST_WINDOWS


def test_a_long_text_is_read_from_its_start_to_its_end() -> None:
    starts: list[int] = []

    def embed(window: Sequence[int]) -> np.ndarray:
        starts.append(window[1])
        last.append(window[-2])
        return np.ones(4, dtype=np.float32)

    last: list[int] = []
    average_windows([0, *range(1, 13_001), 0], 256, 32, embed)
    steps = np.diff(starts)
    assert starts[0] == 1 and last[-1] == 13_000
    assert steps.min() > 0 and steps.max() - steps.min() <= 256

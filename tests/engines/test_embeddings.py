"""Adapters of other embedders: unit float32 rows or an error, never something in between."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.engines import embeddings
from crp_integrations.engines.embeddings import (
    LangChainEmbedder,
    LiteLLMEmbedder,
    LlamaIndexEmbedder,
)
from crp_integrations.errors import EngineError, MissingExtra
from crp_integrations.ports import Embedder


class Fake:
    """Speaks LangChain's and LlamaIndex's words, and answers what it was told to."""

    def __init__(self, rows: Any = None) -> None:
        self.rows = rows
        self.calls = 0

    def embed_documents(self, texts: list[str]) -> Any:
        self.calls += 1
        if isinstance(self.rows, Exception):
            raise self.rows
        return self.rows if self.rows is not None else [[3.0, len(t) + 1.0] for t in texts]

    def embed_query(self, text: str) -> Any:
        return self.embed_documents([text])[0]

    get_text_embedding_batch = embed_documents
    get_query_embedding = embed_query


@pytest.mark.parametrize("adapter", [LangChainEmbedder, LlamaIndexEmbedder])
def test_rows_are_unit_and_float32(adapter: Any) -> None:
    embedder = adapter(Fake(), "fake@1")
    assert isinstance(embedder, Embedder)
    rows = embedder.embed_passages(["a", "bcd"])
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert embedder.embed_query("a").tobytes() == rows[0].tobytes()
    assert (embedder.identity, embedder.dimensions) == ("fake@1", 2)
    assert embedder.thresholds == {}


@given(st.lists(st.floats(width=32), min_size=1, max_size=5))
def test_any_row_gives_a_unit_row_or_an_error(row: list[float]) -> None:
    embedder = LangChainEmbedder(Fake([row]), "fake@1")
    try:
        found = embedder.embed_passages(["a"])
    except EngineError:
        assert not np.isfinite(row).all() or not any(row)
    else:
        assert np.allclose(np.linalg.norm(found.astype(np.float64), axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0, float("nan")]], "not finite"),
        ([[1.0, float("inf")]], "not finite"),
        ([[1e300, 1.0]], "not finite"),
        ([[0.0, 0.0]], "row of zeros"),
        ([[1.0], [1.0]], r"shape \(2, 1\), wanted \(1, d\)"),
        ([], "wanted"),
        ([[]], "wanted"),
        ([[[1.0]]], "wanted"),
        ([1.0], "wanted"),
        ([["a", "b"]], "not give rows of numbers"),
        ([None], "gave"),
        ("nonsense", "not give rows of numbers"),
    ],
)
def test_what_is_no_embedding_is_refused(rows: Any, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        LangChainEmbedder(Fake(rows), "fake@1").embed_passages(["a"])


def test_the_librarys_error_is_the_cause() -> None:
    with pytest.raises(EngineError, match="fake@1 failed with TimeoutError") as caught:
        LangChainEmbedder(Fake(TimeoutError("secret text")), "fake@1").embed_passages(["a"])
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert "secret" not in str(caught.value)
    assert caught.value.engine == "langchain"


def test_an_empty_identity_is_refused() -> None:
    with pytest.raises(EngineError, match="identity"):
        LangChainEmbedder(Fake(), "")


def litellm_that_answers(data: list[dict[str, Any]], seen: list[dict[str, Any]]) -> Any:
    def embedding(**arguments: Any) -> Any:
        seen.append(arguments)
        return SimpleNamespace(data=data)

    return SimpleNamespace(embedding=embedding)


def test_litellm_rows_are_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    data = [{"index": 1, "embedding": [0.0, 2.0]}, {"index": 0, "embedding": [3.0, 0.0]}]
    seen: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "litellm", litellm_that_answers(data, seen))
    embedder = LiteLLMEmbedder("provider/model", timeout=5)
    assert embedder.embed_passages(["a", "b"]).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert seen == [{"model": "provider/model", "input": ["a", "b"], "timeout": 5}]
    assert embedder.identity == "litellm/provider/model"
    assert isinstance(embedder, Embedder)


def test_litellm_with_a_row_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = litellm_that_answers([{"index": 0, "embedding": [1.0]}], [])
    monkeypatch.setitem(sys.modules, "litellm", answer)
    with pytest.raises(EngineError, match="1 rows for 2 texts"):
        LiteLLMEmbedder("provider/model").embed_passages(["a", "b"])


def test_litellm_missing_names_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(MissingExtra, match="pip install"):
        LiteLLMEmbedder("provider/model").embed_query("a")


def test_no_framework_is_imported() -> None:
    code = (
        f"import sys, {embeddings.__name__}; "
        "sys.exit(any(m in sys.modules for m in ('litellm', 'langchain_core', 'llama_index')))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )


def test_litellms_own_mock_fits() -> None:
    pytest.importorskip("litellm")
    embedder = LiteLLMEmbedder("openai/text-embedding-3-small", mock_response=[0.6, 0.8])
    assert np.allclose(embedder.embed_query("a"), [0.6, 0.8])


@pytest.mark.parametrize("adapter", [LangChainEmbedder, LlamaIndexEmbedder])
def test_objects_of_the_frameworks_are_called_one_at_a_time(adapter: Any) -> None:
    inside: list[int] = []
    most: list[int] = []

    class Borrowed:
        """Notes how many calls are in it at once."""

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()
            return [[1.0, 2.0]] * len(texts)

        get_text_embedding_batch = embed_documents

        def embed_query(self, text: str) -> list[float]:
            return [1.0, 2.0]

        get_query_embedding = embed_query

    embedder = adapter(Borrowed(), "borrowed/1", 2)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: embedder.embed_passages([str(n)]), range(8)))
    assert most == [1] * 8

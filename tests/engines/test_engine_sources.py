"""What `embedder=` and `reranker=` may be: names, folders, and objects of other libraries."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.embeddings import DeterministicFakeEmbedding
from llama_index.core import MockEmbedding
from llama_index.core.postprocessor import SimilarityPostprocessor

from crp_integrations import ConfigError, EngineError, Relay, examine, pack, weights
from crp_integrations.engines.embeddings import LiteLLMEmbedder, OnnxFolderEmbedder, embedder_of
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.engines.rerankers import PairReranker, reranker_of
from crp_integrations.langchain import CRPGate, CRPRetriever
from crp_integrations.litellm import CRPLogger
from crp_integrations.llama_index import CRPRetriever as NodeRetriever
from tests.commands import command as crp
from tests.doubles import HashEmbedder

FACTS = [
    "The Meridian plan costs 4.20 euros a month and can be cancelled at any time.",
    "The Larkspur plan costs 7.10 euros a month and is paid for a whole year.",
]
QUESTION = "What does the Meridian plan cost?"
MODEL = "openai/gpt-4o"


class _Provider(BaseHTTPRequestHandler):
    """Embeds by letters, and reranks by shared words; answers 429 to the model `busy`.

    `sizes` holds how many texts each call brought.
    """

    sizes: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, answer = 200, self._answer(body)
        if body["model"] == "busy":
            status, answer = 429, {"error": {"message": "later", "type": "rate_limit"}}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("retry-after", "7")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        if "documents" in body:
            asked = set(body["query"].lower().split())
            scores = [
                len(asked & set(one.lower().split())) / len(asked) for one in body["documents"]
            ]
            found = [
                {"index": at, "relevance_score": score}
                for at, score in reversed([*enumerate(scores)])
            ]
            return {"id": "1", "results": found, "meta": {"billed_units": {"total_tokens": 1}}}
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        self.sizes.append(len(texts))
        rows = [
            {
                "object": "embedding",
                "index": at,
                "embedding": [1.0 + text.count(one) for one in "aeiou"],
            }
            for at, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "data": rows, "model": body["model"], "usage": usage}

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("OPENAI_API_BASE", base)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", base)
    yield
    server.shutdown()
    server.server_close()


class Words(BaseDocumentCompressor):
    """Keeps what shares a word with the question, best first."""

    model_name: str = "words"

    def compress_documents(
        self, documents: Any, query: str, callbacks: Any = None
    ) -> list[Document]:
        asked = set(query.lower().rstrip("?").split())
        return sorted(
            documents, key=lambda one: -len(asked & set(one.page_content.lower().split()))
        )


class Crossed:
    """What sentence-transformers calls a `CrossEncoder`."""

    num_labels = 1

    def predict(self, pairs: Any, activation_fn: Any = None, **_: Any) -> Any:
        return np.array([[1.0 if "Meridian" in text else -1.0] for _, text in pairs])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The shipped network as a hub has it: without a card."""
    there = weights.describe("minilm").path
    for name in ("model.onnx", "tokenizer.json"):
        shutil.copy(there / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "identity"),
    [
        ("litellm:openai/text-embedding-3-small", "litellm/openai/text-embedding-3-small"),
        (DeterministicFakeEmbedding(size=8), "langchain/DeterministicFakeEmbedding"),
        (MockEmbedding(embed_dim=8), "llama_index/MockEmbedding/unknown"),
        (HashEmbedder(), HashEmbedder().identity),
    ],
    ids=["litellm", "langchain", "llama_index", "own"],
)
def test_an_embedder_works_behind_every_door(source: Any, identity: str, provider: None) -> None:
    with Relay.open(embedder=source) as relay:
        relay.add(FACTS)
        assert relay.fabric.embedder.identity == identity
        assert relay.ask(QUESTION).envelope.facts
    assert pack(QUESTION, FACTS, model=MODEL, embedder=source).facts
    assert examine(FACTS[0], FACTS, QUESTION, embedder=source).risk_level == "LOW"
    assert (
        CRPGate("warn-on HIGH", embedder=source).check(FACTS[0], FACTS, QUESTION).risk_level
        == "LOW"
    )
    CRPLogger(embedder=source)


@pytest.mark.parametrize("form", [str, Path, lambda path: f"onnx:{path}"])
def test_a_folder_without_a_card_gives_the_networks_own_vectors(folder: Path, form: Any) -> None:
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    found, shipped = embedder_of(form(folder)), OnnxEmbedder()
    assert isinstance(found, OnnxFolderEmbedder)
    for text in ("short", "word " * 700):
        near = float(np.dot(found.embed_query(text), shipped.embed_query(text)))
        assert near > 0.98
    assert found.identity == embedder_of(form(folder)).identity
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + " ")
    assert OnnxFolderEmbedder(folder).identity != found.identity


def test_a_folder_with_a_card_is_verified(tmp_path: Path) -> None:
    shutil.copytree(weights.describe("minilm").path, tmp_path / "m")
    assert embedder_of(tmp_path / "m").identity == OnnxEmbedder().identity
    (tmp_path / "m" / "tokenizer.json").write_text("{}")
    with pytest.raises(EngineError):
        embedder_of(tmp_path / "m")


def test_a_folders_first_token_and_length_are_read_from_its_settings(folder: Path) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 128}')
    made = OnnxFolderEmbedder(folder)
    assert (made._first, made._size) == (True, 128)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(EngineError, match=r"no tokenizer\.json"):
        OnnxFolderEmbedder(folder)


@pytest.mark.parametrize(
    "source",
    ["litellm:hosted_vllm/bge", Words(), SimilarityPostprocessor(similarity_cutoff=0.0), Crossed()],
    ids=["litellm", "langchain", "llama_index", "cross-encoder"],
)
def test_a_reranker_works_behind_every_door(source: Any, provider: None) -> None:
    with Relay.open(reranker=source) as relay:
        relay.add(FACTS)
        answer = relay.ask(QUESTION)
        assert any(reranker_of(source).identity in one for one in answer.envelope.algorithms)
    assert pack(QUESTION, FACTS, model=MODEL, reranker=source).facts
    documents = [Document(fact) for fact in FACTS]
    from langchain_core.retrievers import BaseRetriever

    class Fixed(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return documents

    assert CRPRetriever.wrap(Fixed(), model=MODEL, reranker=source).invoke(QUESTION)


def test_a_name_in_the_settings_holds_where_no_argument_is_given(
    provider: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CRP_EMBEDDER", "litellm:openai/text-embedding-3-small")
    with Relay.open(tmp_path / "kb") as relay:
        relay.add(FACTS)
        assert relay.fabric.embedder.identity == "litellm/openai/text-embedding-3-small"
    monkeypatch.delenv("CRP_EMBEDDER")
    # A store is refused to another embedder by name, and one command moves it.
    with pytest.raises(ConfigError, match=r"text-embedding-3-small.*crp fabric maintain --reembed"):
        Relay.open(tmp_path / "kb")
    done = crp("fabric", "maintain", "--reembed", "--store", "kb", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with Relay.open(tmp_path / "kb") as relay:
        assert relay.fabric.embedder.identity == OnnxEmbedder().identity
        assert relay.preview(QUESTION).facts_included
    back = ("--reembed", "--model", "litellm:openai/text-embedding-3-small")
    done = crp("fabric", "maintain", *back, "--store", "kb", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "text-embedding-3-small" in done.stdout


@pytest.mark.parametrize("kind", ["embedder", "reranker"])
def test_a_providers_error_names_the_engine_and_keeps_the_status(kind: str, provider: None) -> None:
    asked: dict[str, Callable[[], object]] = {
        "embedder": lambda: LiteLLMEmbedder("openai/busy", max_retries=0).embed_query("a"),
        "reranker": lambda: reranker_of("litellm:hosted_vllm/busy").scores("a", ["a"]),
    }
    with pytest.raises(EngineError, match=rf"the {kind} litellm/.*busy failed.*status 429") as got:
        asked[kind]()
    assert (got.value.provider_status, got.value.status_hint) == (429, 429)
    assert got.value.retry_after in ("", "7")
    assert "later" not in str(got.value)


def test_many_texts_are_several_calls(provider: None) -> None:
    _Provider.sizes.clear()
    rows = LiteLLMEmbedder("openai/e", batch_size=3).embed_passages(["a" * n for n in range(1, 8)])
    assert _Provider.sizes == [3, 3, 1]
    assert len({row.tobytes() for row in rows}) == 7
    with pytest.raises(ConfigError, match="batch_size is 0"):
        LiteLLMEmbedder("openai/e", batch_size=0)


def test_a_folders_identity_holds_all_that_decides_a_vector(folder: Path) -> None:
    def identity(**options: Any) -> str:
        return OnnxFolderEmbedder(folder, **options).identity

    seen = [identity(), identity(prefixes=("query: ", "passage: "))]
    (folder / "config_sentence_transformers.json").write_text(
        '{"prompts": {"query": "query: ", "document": "passage: "}}'
    )
    assert identity() == seen[1]
    made = OnnxFolderEmbedder(folder)
    assert made.embed_query("wind").tobytes() != made.embed_passages(["wind"])[0].tobytes()
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    seen.append(identity())
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 128}')
    seen.append(identity())
    (folder / "model.onnx_data").write_bytes(b"weights")
    seen.append(identity())
    assert len(set(seen)) == 5


@pytest.mark.parametrize(
    ("file", "told", "named"),
    [
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pooling_mode_max_tokens"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            "pooling_mode_cls_token, pooling_mode_mean_tokens",
        ),
        ("modules.json", [{"type": "sentence_transformers.models.Dense"}], "models.Dense"),
    ],
)
def test_a_folder_that_asks_for_more_is_refused(
    folder: Path, file: str, told: Any, named: str
) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / file).write_text(json.dumps(told))
    with pytest.raises(ConfigError, match=f"asks for .*{named}"):
        OnnxFolderEmbedder(folder)


def test_a_cross_encoder_of_langchain_is_taken_by_its_score() -> None:
    class Pairs:
        model_name = "pairs/1"
        high = 0.9

        def score(self, text_pairs: list[tuple[str, str]]) -> list[float]:
            return [self.high if "Meridian" in text else 0.1 for _, text in text_pairs]

    reranker = reranker_of(Pairs())
    assert (reranker.identity, reranker.scores("q", FACTS)) == (
        "langchain/Pairs/pairs/1",
        [0.9, 0.1],
    )
    assert pack(QUESTION, FACTS, model=MODEL, reranker=Pairs()).facts
    Pairs.high = 4.0
    with pytest.raises(EngineError, match=r"score 4\.0"):
        reranker.scores("q", FACTS)
    raw = PairReranker(Pairs(), "pairs/1", scale="logistic")
    assert raw.scores("q", FACTS)[0] == pytest.approx(0.982, abs=1e-3)


@pytest.mark.parametrize(
    "given",
    ["no-such-thing", "x" * 5000, 5, HashEmbedder, {"model": "x"}],
    ids=["text", "long", "number", "class", "mapping"],
)
def test_what_is_neither_is_refused_with_what_is_taken(given: Any) -> None:
    for make in (
        lambda: Relay.open(embedder=given),
        lambda: examine("a", ["a"], embedder=given),
        lambda: CRPGate(embedder=given),
    ):
        with pytest.raises(ConfigError, match=r"embedder is .*litellm:text-embedding-3-small"):
            make()
    for make in (
        lambda: Relay.open(reranker=given),
        lambda: pack(QUESTION, FACTS, model=MODEL, reranker=given),
        lambda: NodeRetriever(MockRetriever(), model=MODEL, reranker=given),
    ):
        with pytest.raises(ConfigError, match=r"reranker is .*litellm:cohere"):
            make()


class MockRetriever:
    """Made a retriever of LlamaIndex below, which is imported with the others."""

    def __new__(cls) -> Any:
        from llama_index.core.retrievers import BaseRetriever

        class Empty(BaseRetriever):
            def _retrieve(self, query_bundle: Any) -> list[Any]:
                return []

        return Empty()

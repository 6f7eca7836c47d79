"""LangChain's compressors and LlamaIndex's postprocessors as rerankers: real base classes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from llama_index.core.llms.mock import MockLLM
from llama_index.core.postprocessor import (
    LLMRerank,
    LongContextReorder,
    MetadataReplacementPostProcessor,
    SimilarityPostprocessor,
)
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from crp_integrations import pack
from crp_integrations.envelope.ports import Reranker
from crp_integrations.errors import EngineError
from crp_integrations.langchain import LangChainReranker
from crp_integrations.llama_index import LlamaIndexReranker
from tests.doubles import NOON, HashEmbedder

QUERY = "wind farm power"
TEXTS = [
    "The wind farm off the coast feeds power into the grid through one long cable.",
    "Raw milk of one farmer ripens slowly into cheese in the damp stone cellar here.",
    "A farm of the wind gives power when there is wind, and none on a calm day.",
]
ASKED: dict[str, Any] = {
    "model": "extractive", "budget_tokens": 400, "embedder": HashEmbedder(), "now": NOON,
}  # fmt: skip

Step = Callable[[list[Document], str], list[Document]]


class Compressor(BaseDocumentCompressor):
    """A compressor from a function, as users write them."""

    step: Any

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        return list(self.step(list(documents), query))


def langchain(step: Step, **options: Any) -> LangChainReranker:
    return LangChainReranker(Compressor(step=step), "a-compressor/1", **options)


def scored(*values: float | None, key: str = "relevance_score") -> Step:
    """Gives each document a score, as the reranking integrations do: on a new document."""

    def step(documents: list[Document], query: str) -> list[Document]:
        pairs = zip(documents, values, strict=True)
        made = [
            Document(page_content=d.page_content, metadata={**d.metadata, key: value})
            for d, value in pairs
            if value is not None
        ]
        return sorted(made, key=lambda document: -document.metadata[key])

    return step


def test_a_compressors_scores_are_taken_and_what_it_drops_is_zero() -> None:
    reranker = langchain(scored(0.25, None, 0.75))
    assert isinstance(reranker, Reranker)
    assert reranker.scores(QUERY, TEXTS) == [0.25, 0.0, 0.75]
    assert reranker.scores(QUERY, []) == []
    assert reranker.identity == "a-compressor/1"


def test_equal_texts_keep_their_own_scores() -> None:
    assert langchain(scored(0.25, 0.75)).scores(QUERY, ["same", "same"]) == [0.25, 0.75]


def test_without_scores_the_order_counts() -> None:
    def turned(documents: list[Document], query: str) -> list[Document]:
        return [documents[2], documents[0]]

    assert langchain(turned).scores(QUERY, TEXTS) == [pytest.approx(2 / 3), 0.0, 1.0]
    assert langchain(scored(7.0, 9.0, 8.0), scale="rank").scores(QUERY, TEXTS) == [
        pytest.approx(1 / 3), 1.0, pytest.approx(2 / 3),
    ]  # fmt: skip


def test_scores_out_of_the_range_are_refused_with_the_way_out() -> None:
    for value in (7.5, -0.5):
        with pytest.raises(EngineError, match=rf"the score {value}.*best=.*logistic") as caught:
            langchain(scored(0.5, value, 0.5)).scores(QUERY, TEXTS)
        assert caught.value.engine == "langchain"
    with pytest.raises(EngineError, match="the score nan, wanted a finite number"):
        langchain(scored(0.5, float("nan"), 0.5), scale="logistic").scores(QUERY, TEXTS)


def test_another_name_of_the_score_can_be_given() -> None:
    reranker = langchain(scored(0.2, 0.4, 0.6, key="mine"), score_key="mine")
    assert reranker.scores(QUERY, TEXTS) == [0.2, 0.4, 0.6]


class Stated(Document):
    """As the documents that LangChain's embedding filters hand on."""

    state: dict[str, Any]


def test_a_cosine_is_brought_into_the_range() -> None:
    def filtering(documents: list[Document], query: str) -> list[Document]:
        return [
            Stated(
                page_content=document.page_content,
                metadata=document.metadata,
                state={"query_similarity_score": score},
            )
            for document, score in zip(documents, (1.0000001, -0.1, 0.5), strict=True)
        ]

    assert langchain(filtering).scores(QUERY, TEXTS) == [1.0, 0.0, 0.5]


def test_of_pieces_the_best_counts_and_a_lost_mark_is_found_by_the_text() -> None:
    def split(documents: list[Document], query: str) -> list[Document]:
        first, _, third = documents
        return [
            Document(page_content="The wind", metadata={**first.metadata, "score": 0.3}),
            Document(page_content="one cable", metadata={**first.metadata, "score": 0.6}),
            Document(page_content="the coast", metadata={**first.metadata, "score": 0.1}),
            Document(page_content=third.page_content, metadata={"score": 0.5}),
        ]

    assert langchain(split).scores(QUERY, TEXTS) == [0.6, 0.0, 0.5]


def test_what_was_not_given_is_refused_without_showing_it() -> None:
    def inventing(documents: list[Document], query: str) -> list[Document]:
        return [Document(page_content="a secret")]

    with pytest.raises(EngineError, match="was not given") as caught:
        langchain(inventing).scores(QUERY, TEXTS)
    assert "secret" not in str(caught.value)

    def half(documents: list[Document], query: str) -> list[Document]:
        documents[0].metadata["score"] = 0.5
        return documents

    with pytest.raises(EngineError, match="to only some of the texts"):
        langchain(half).scores(QUERY, TEXTS)


def test_errors_of_a_compressor_are_engine_errors() -> None:
    def failing(documents: list[Document], query: str) -> list[Document]:
        raise ConnectionError(documents[0].page_content)

    with pytest.raises(EngineError, match="a-compressor/1 failed with ConnectionError") as caught:
        langchain(failing).scores(QUERY, TEXTS)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert TEXTS[0] not in str(caught.value)


def test_a_wrapped_object_is_called_by_one_thread_at_a_time() -> None:
    within: list[int] = []
    most: list[int] = []

    def step(documents: list[Document], query: str) -> list[Document]:
        within.append(1)
        most.append(len(within))
        threading.Event().wait(0.002)
        within.pop()
        return documents

    reranker = langchain(step)
    threads = [threading.Thread(target=reranker.scores, args=(QUERY, TEXTS)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 8


class Fixed(BaseRetriever):
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [Document(page_content=text) for text in TEXTS]


def milk(documents: list[Document], query: str) -> list[Document]:
    for document in documents:
        document.metadata["relevance_score"] = 0.9 if "milk" in document.page_content else 0.1
    return documents


def llama(postprocessor: BaseNodePostprocessor, **options: Any) -> LlamaIndexReranker:
    return LlamaIndexReranker(postprocessor, "a-postprocessor/1", **options)


def test_a_similarity_cutoff_drops_to_zero() -> None:
    cut = SimilarityPostprocessor(similarity_cutoff=0.3)
    reranker = llama(cut, embedder=HashEmbedder())
    assert isinstance(reranker, Reranker)
    first, second, third = reranker.scores(QUERY, TEXTS)
    rows = HashEmbedder().embed_passages(TEXTS) @ HashEmbedder().embed_query(QUERY)
    assert [first, third] == pytest.approx([float(rows[0]), float(rows[2])])
    assert rows[1] < 0.3 and second == 0.0
    # Without a score of their own the cut-off lets no node through.
    assert llama(cut).scores(QUERY, TEXTS) == [0.0, 0.0, 0.0]


class Judge(MockLLM):
    """Answers as LlamaIndex's prompt asks a model to."""

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        self.__dict__.setdefault("prompts", []).append(prompt)
        answer = super().complete(prompt, formatted, **kwargs)
        answer.text = "Doc: 3, Relevance: 10\nDoc: 1, Relevance: 5"
        return answer


def test_the_frameworks_own_model_reranker() -> None:
    judge = Judge()
    reranker = llama(LLMRerank(llm=judge, top_n=3), best=10)
    assert reranker.scores(QUERY, TEXTS) == [0.5, 0.0, 1.0]
    (prompt,) = judge.__dict__["prompts"]
    assert all(text in prompt for text in TEXTS)
    assert "crp" not in prompt.lower()
    with pytest.raises(EngineError, match="best="):
        llama(LLMRerank(llm=judge, top_n=3)).scores(QUERY, TEXTS)


def test_postprocessors_without_scores_are_read_by_their_order() -> None:
    assert llama(MetadataReplacementPostProcessor(target_metadata_key="no")).scores(
        QUERY, TEXTS
    ) == pytest.approx([1.0, 2 / 3, 1 / 3])
    scores = llama(LongContextReorder(), embedder=HashEmbedder(), scale="rank").scores(QUERY, TEXTS)
    assert sorted(scores) == pytest.approx([1 / 3, 2 / 3, 1.0])


class Inventing(BaseNodePostprocessor):
    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text="a secret"), score=1.0)]


def test_errors_of_a_postprocessor_are_engine_errors() -> None:
    with pytest.raises(EngineError, match="was not given"):
        llama(Inventing()).scores(QUERY, TEXTS)

    class Failing(Inventing):
        def _postprocess_nodes(self, *given: Any, **named: Any) -> list[NodeWithScore]:
            raise TimeoutError("a secret")

    with pytest.raises(EngineError, match="a-postprocessor/1 failed with TimeoutError") as caught:
        llama(Failing()).scores(QUERY, TEXTS)
    assert caught.value.engine == "llama_index"


def test_pack_takes_either() -> None:
    for reranker in (
        langchain(scored(0.1, 0.9, 0.2)),
        llama(LLMRerank(llm=Judge(), top_n=3), best=10),
    ):
        before, after = pack(QUERY, TEXTS, **ASKED), pack(QUERY, TEXTS, reranker=reranker, **ASKED)
        assert [f.relevance_score for f in before.facts] != [f.relevance_score for f in after.facts]
        assert f"rerank@1:{reranker.identity}" in after.algorithms

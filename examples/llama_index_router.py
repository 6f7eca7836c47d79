"""A LlamaIndex router over two query engines that you already have, with three lines added.

Run it as it stands: `python examples/llama_index_router.py`. It needs no key: a scripted LLM stands
in for yours; it picks an engine, and gets one number wrong on purpose. Without the lines marked
`# added` it runs as well, and says nothing of the number.
"""

from typing import Any

from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RouterQueryEngine
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.tools import QueryEngineTool

from crp_integrations.llama_index import CRPNodePostprocessor, DPEEventHandler  # added

PLANTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
    "The cooling system does not draw water from the river during summer.",
]
COMPANIES = [
    "Northfield Energy reported revenue of $4.2 million in 2023.",
    "Northfield Energy employs 61 people in the valley.",
]


class Scripted(CustomLLM):
    """Says what is written for it: which engine, and an answer."""

    @property
    def metadata(self) -> LLMMetadata:
        """Its name and window."""
        return LLMMetadata(model_name="scripted", context_window=8000)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The engine where choices are offered, else an answer."""
        if "choices" in prompt:
            number = 1 if "How much power" in prompt else 2
            return CompletionResponse(text=f'[{{"choice": {number}, "reason": "it knows"}}]')
        if "How much power" in prompt:
            return CompletionResponse(text="The Meridian reactor delivers 512 megawatts.")
        return CompletionResponse(text="Northfield Energy employs 61 people in the valley.")

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        """The same in one piece."""
        yield self.complete(prompt)


def main() -> None:
    llm = Scripted()

    postprocessors: list[BaseNodePostprocessor] = []
    # For every engine: pack what was retrieved.
    postprocessors.append(CRPNodePostprocessor(model="gpt-4o", budget_tokens=60))  # added

    # An engine for each kind of document, and a router between them.
    tools = []
    for name, texts in (("plants", PLANTS), ("companies", COMPANIES)):
        index = VectorStoreIndex.from_documents(
            [Document(text=text) for text in texts], embed_model=MockEmbedding(embed_dim=8)
        )
        engine = index.as_query_engine(
            llm=llm, similarity_top_k=5, node_postprocessors=postprocessors
        )
        tools.append(QueryEngineTool.from_defaults(engine, name=name, description=name))
    selector = LLMSingleSelector.from_defaults(llm=llm)
    router = RouterQueryEngine(selector=selector, query_engine_tools=tools, llm=llm)

    # For every question: check the answer.
    DPEEventHandler().listen()  # added
    for question in (
        "How much power does the Meridian reactor deliver?",
        "How many people does Northfield Energy employ?",
    ):
        response = router.query(question)
        print("answer:", response)
        report = (response.metadata or {}).get("crp")
        if report:
            print("risk:", report["risk_level"], report["risk_score"], *report["reasons"])


if __name__ == "__main__":
    main()

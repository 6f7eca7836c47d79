"""A multi-query chain that you already have, with three lines added.

Run it as it stands: `python examples/langchain_multi_query.py`. It needs no key: a scripted chat
model stands in for yours. Without the lines marked `# added` it runs as well.
"""

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from crp_integrations.langchain import CRPGate, CRPRetriever  # added

TEXTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy.",
    "Northfield Energy reported revenue of $4.2 million in 2023.",
    "The cooling system does not draw water from the river during summer.",
    "Gardens in the valley grow tulips and roses every spring.",
]


class MultiQueryRetriever(BaseRetriever):
    """The union of what several queries for one question find."""

    queries: Runnable[str, list[str]]
    retriever: BaseRetriever

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        config = {"callbacks": run_manager.get_child()}
        queries = self.queries.invoke(query, config)
        found = self.retriever.batch(queries, config)
        return list({document.id: document for one in found for document in one}.values())


def format_docs(documents: list[Document]) -> str:
    return "\n\n".join(document.page_content for document in documents)


def main() -> None:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=64))
    store.add_documents([Document(text, id=f"d{n}") for n, text in enumerate(TEXTS)])
    model = FakeListChatModel(
        responses=[
            "Who operates the Meridian reactor?\nHow much power does the Meridian reactor deliver?",
            "The Meridian reactor is operated by Northfield Energy and delivers 412 megawatts.",
        ]
    )
    rewrite = ChatPromptTemplate.from_template("Write two search queries for: {question}")
    queries = rewrite | model | StrOutputParser() | str.splitlines
    retriever: BaseRetriever = MultiQueryRetriever(
        queries=queries, retriever=store.as_retriever(search_kwargs={"k": 4})
    )
    # Pack the union for the question itself.
    retriever = CRPRetriever.wrap(retriever, model="gpt-4o", budget_tokens=60)  # added

    prompt = ChatPromptTemplate.from_template("Context:\n{context}\n\nQuestion: {question}")
    found = {"context": retriever | format_docs, "question": RunnablePassthrough()}
    chain = found | prompt | model
    # Let an answer out after its verdict, or not at all. With `judge="openai/gpt-4o-mini"` every
    # answer is read; without one `unchecked allow` says that what nobody read may pass.
    chain = CRPGate.around(chain, "halt-on MEDIUM; unchecked allow")  # added

    answer = chain.invoke("Who operates the Meridian reactor and what does it deliver?")
    print("answer:", answer.content)
    report = answer.response_metadata.get("crp")
    if report:
        print("risk:", report["risk_level"], "grounded:", report["grounding_pct"])


if __name__ == "__main__":
    main()

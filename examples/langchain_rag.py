"""A LangChain RAG chain that you already have, with three lines added.

Run it as it stands: `python examples/langchain_rag.py`. It needs no key: a scripted chat model
stands in for yours, and it gets one number wrong on purpose. Without the lines marked `# added` it
runs as well, and says nothing of the number.
"""

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from crp_integrations.langchain import CRPRetriever, DPECallbackHandler  # added

TEXTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
    "Northfield Energy reported revenue of $4.2 million in 2023.",
    "The cooling system does not draw water from the river during summer.",
    "Gardens in the valley grow tulips and roses every spring.",
]


def format_docs(documents: list[Document]) -> str:
    return "\n\n".join(document.page_content for document in documents)


def main() -> None:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=64))
    store.add_documents([Document(text) for text in TEXTS])
    retriever = store.as_retriever(search_kwargs={"k": 5})
    # Pack what is found into a budget, best first.
    retriever = CRPRetriever.wrap(retriever, model="gpt-4o", budget_tokens=60)  # added

    prompt = ChatPromptTemplate.from_template("Context:\n{context}\n\nQuestion: {question}")
    model = FakeListChatModel(responses=["The Meridian reactor delivers 512 megawatts."])
    found = {"context": retriever | format_docs, "question": RunnablePassthrough()}
    chain = found | prompt | model
    # Examine every answer against what was packed for it.
    chain = chain.with_config(callbacks=[DPECallbackHandler()])  # added

    answer = chain.invoke("How much power does the Meridian reactor deliver?")
    print("answer:", answer.content)
    report = answer.response_metadata.get("crp")
    if report:
        print("risk:", report["risk_level"], report["risk_score"], *report["reasons"])


if __name__ == "__main__":
    main()

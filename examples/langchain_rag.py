"""A LangChain RAG chain that you already have, with three lines added.

Run it as it stands: `python examples/langchain_rag.py`. It needs no key: a scripted chat
model stands in for yours, and it gets one number wrong on purpose.
"""

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from crp_integrations.langchain import CRPRetriever, DPECallbackHandler, envelope_text

TEXTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
    "Northfield Energy reported revenue of $4.2 million in 2023.",
    "The cooling system does not draw water from the river during summer.",
    "Gardens in the valley grow tulips and roses every spring.",
]


def main() -> None:
    # What you have: a vector store, a prompt, a model.
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=64))
    store.add_documents([Document(text) for text in TEXTS])
    existing = store.as_retriever(search_kwargs={"k": 5})
    prompt = ChatPromptTemplate.from_template("Context:\n{context}\n\nQuestion: {question}")
    model = FakeListChatModel(responses=["The Meridian reactor delivers 512 megawatts."])

    # What you add: pack what the retriever found, show the model its text, check the answer.
    retriever = CRPRetriever.wrap(existing, model="gpt-4o", budget_tokens=60)
    context = retriever | envelope_text
    question = "How much power does the Meridian reactor deliver?"
    checked = {"callbacks": [DPECallbackHandler()]}

    chain = {"context": context, "question": RunnablePassthrough()} | prompt | model
    answer = chain.invoke(question, checked)

    packed = retriever.invoke(question)
    envelope = packed[0].metadata["crp"]["envelope"]
    print(f"packed: {len(packed)} of {len(TEXTS)} documents, {envelope['token_count']} tokens")
    report = answer.response_metadata["crp"]
    print("answer:", answer.content)
    print("risk:", report["risk_level"], report["composite_score"])
    for claim in report["claims"]:
        for finding in claim["findings"]:
            print(f"finding: {finding['kind']}, the context has {finding['expected']}")


if __name__ == "__main__":
    main()

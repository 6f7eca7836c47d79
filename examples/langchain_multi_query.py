"""A multi-query chain that you already have: what all queries find, packed once.

Run it as it stands: `python examples/langchain_multi_query.py`. It needs no key: a scripted chat
model stands in for yours.
"""

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from crp_integrations.langchain import CRPDocumentCompressor, CRPGate, envelope_text

TEXTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
    "Northfield Energy reported revenue of $4.2 million in 2023.",
    "The cooling system does not draw water from the river during summer.",
    "Gardens in the valley grow tulips and roses every spring.",
]


def main() -> None:
    # What you have: several queries for one question, and the union of what they find.
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=64))
    store.add_documents([Document(text, id=f"d{n}") for n, text in enumerate(TEXTS)])
    retriever = store.as_retriever(search_kwargs={"k": 4})
    model = FakeListChatModel(
        responses=[
            "Who operates the Meridian reactor?\nHow much power does the Meridian reactor deliver?",
            "The Meridian reactor is operated by Northfield Energy and delivers 412 megawatts.",
        ]
    )
    rewrite = ChatPromptTemplate.from_template("Write two search queries for: {question}")
    queries = rewrite | model | StrOutputParser() | str.splitlines
    found = (
        queries | retriever.map() | RunnableLambda(lambda lists: [d for one in lists for d in one])
    )

    # What you add: the union packed for the question itself, its text, a gate with that context.
    compressor = CRPDocumentCompressor(model="gpt-4o", budget_tokens=60)
    packed = RunnableLambda(lambda x: compressor.compress_documents(x["found"], x["question"]))
    gate = CRPGate("halt-on MEDIUM")

    prompt = ChatPromptTemplate.from_template("Context:\n{text}\n\nQuestion: {question}")
    chain = (
        RunnablePassthrough.assign(found=found)
        | RunnablePassthrough.assign(context=packed)
        | RunnablePassthrough.assign(text=lambda x: envelope_text(x["context"]))
        | RunnablePassthrough.assign(answer=prompt | model)
        | gate
    )
    told = chain.invoke({"question": "Who operates the Meridian reactor and what does it deliver?"})
    print(f"found {len(told['found'])} documents, packed {len(told['context'])}")
    print("answer:", told["answer"].content)
    print("risk:", told["crp"]["risk_level"], "grounded:", told["crp"]["grounding_pct"])


if __name__ == "__main__":
    main()

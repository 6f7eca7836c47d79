"""A conversational RAG chain that you already have, behind a gate: three lines added.

Run it as it stands: `python examples/langchain_conversation.py`. It needs no key: a scripted chat
model stands in for yours, and its second answer has a number wrong on purpose.
"""

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from crp_integrations.errors import SafetyHalt
from crp_integrations.langchain import CRPGate, CRPRetriever, envelope_text

TEXTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
    "Northfield Energy reported revenue of $4.2 million in 2023.",
    "The cooling system does not draw water from the river during summer.",
]


def main() -> None:
    # What you have: a vector store, a model that puts the question in its context, an answer.
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=64))
    store.add_documents([Document(text) for text in TEXTS])
    existing = store.as_retriever(search_kwargs={"k": 4})
    model = FakeListChatModel(
        responses=[
            "Who operates the Meridian reactor?",
            "The Meridian reactor is operated by Northfield Energy.",
            "What revenue did Northfield Energy report in 2023?",
            "Northfield Energy reported revenue of $9.7 million in 2023.",
        ]
    )
    alone = ChatPromptTemplate.from_messages(
        [
            ("system", "Say the last question so that it stands alone."),
            MessagesPlaceholder("chat_history"),
            ("user", "{input}"),
        ]
    )
    answer = ChatPromptTemplate.from_messages(
        [("system", "Answer from this context:\n{context}"), ("user", "{input}")]
    )
    rewritten = alone | model | StrOutputParser()

    # What you add: pack what is found, show the model its text, let nothing unchecked through.
    retriever = CRPRetriever.wrap(existing, model="gpt-4o", budget_tokens=60)
    context = rewritten | retriever | envelope_text
    chain = RunnablePassthrough.assign(context=context) | answer | model
    guarded = CRPGate.around(chain, "halt-on MEDIUM")

    history: list[tuple[str, str]] = []
    for question in ("Who runs it, the Meridian reactor?", "And what did they earn in 2023?"):
        try:
            message = guarded.invoke({"input": question, "chat_history": history})
        except SafetyHalt as halt:
            print(f"{question} -> withheld: {halt.reason}, {halt.report.risk_level}")
            continue
        report = message.response_metadata["crp"]
        print(f"{question} -> {message.content} (risk {report['risk_level']})")
        history += [("user", question), ("ai", message.content)]


if __name__ == "__main__":
    main()

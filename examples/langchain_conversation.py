"""A conversational RAG chain that you already have, behind a gate: three lines added.

Run it as it stands: `python examples/langchain_conversation.py`. It needs no key: a scripted chat
model stands in for yours, and its second answer has a number wrong on purpose. Without the lines
marked `# added` it runs as well, and gives that answer out.
"""

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from crp_integrations.langchain import CRPGate, CRPRetriever  # added

TEXTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy.",
    "Northfield Energy reported revenue of $4.2 million in 2023.",
    "The cooling system does not draw water from the river during summer.",
]


def format_docs(documents: list[Document]) -> str:
    return "\n\n".join(document.page_content for document in documents)


def main() -> None:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=64))
    store.add_documents([Document(text) for text in TEXTS])
    retriever = store.as_retriever(search_kwargs={"k": 4})
    # Pack what is found into a budget, best first.
    retriever = CRPRetriever.wrap(retriever, model="gpt-4o", budget_tokens=60)  # added
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
        [
            ("system", "Answer from this context:\n{context}"),
            MessagesPlaceholder("chat_history"),
            ("user", "{input}"),
        ]
    )
    context = alone | model | StrOutputParser() | retriever | format_docs
    chain = RunnablePassthrough.assign(context=context) | answer | model
    # Let an answer out after its verdict, or not at all. With `judge="openai/gpt-4o-mini"` every
    # answer is read; without one `unchecked allow` says that what nobody read may pass.
    chain = CRPGate.around(chain, "halt-on MEDIUM; unchecked allow")  # added

    history: list[tuple[str, str]] = []
    for question in ("Who runs it, the Meridian reactor?", "And what did they earn in 2023?"):
        try:
            message = chain.invoke({"input": question, "chat_history": history})
        except Exception as error:  # noqa: BLE001 - however you tell of errors; here a SafetyHalt
            print(f"{question} -> {error}")
            continue
        report = message.response_metadata.get("crp", {})
        print(f"{question} -> {message.content}", report.get("risk_level", "not checked"))
        history += [("user", question), ("ai", message.content)]


if __name__ == "__main__":
    main()

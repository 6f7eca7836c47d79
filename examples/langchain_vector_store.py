"""The fabric where a LangChain vector store stood: add, search, change, erase.

Run it as it stands: `python examples/langchain_vector_store.py`. It needs no key: the embedding
model is in the package.
"""

import tempfile
from pathlib import Path

from langchain_core.documents import Document

from crp_integrations import Relay
from crp_integrations.fabric.records import source_id
from crp_integrations.langchain import CRPRetriever, CRPVectorStore, envelope_text

DOCUMENTS = [
    Document(
        "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
        metadata={"source": "meridian.pdf", "page": 1},
    ),
    Document(
        "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
        metadata={"source": "meridian.pdf", "page": 2},
    ),
    Document(
        "Northfield Energy reported revenue of $4.2 million in 2023, more than the year before.",
        metadata={"source": "report.pdf", "page": 1},
    ),
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Relay.open(Path(folder) / "kb") as relay:
        store = CRPVectorStore(relay, kind="official")
        store.add_documents(DOCUMENTS, ids=["power", "operator", "revenue"])

        question = "Who runs the Meridian reactor?"
        for document, score in store.similarity_search_with_score(question, k=2):
            print(f"{score:.3f}  {document.id}: {document.page_content}")
        filtered = store.similarity_search(question, filter={"source": "report.pdf"})
        print("of the report alone:", [document.id for document in filtered])

        # An id that exists is changed, not doubled.
        store.add_texts(
            ["The Meridian reactor is operated by Southfield Power since the first of May."],
            [{"source": "meridian.pdf", "page": 2}],
            ids=["operator"],
        )
        # The same facts, packed into a token budget, with the question's envelope beside them.
        retriever = CRPRetriever(relay=relay, model="gpt-4o", budget_tokens=60)
        print((retriever | envelope_text).invoke(question))

        # A source goes as a whole, to the last byte.
        erasure = relay.fabric.erase(source_id("meridian.pdf"))
        print(f"erased {len(erasure.facts)} facts; left: {store.get_by_ids(['revenue'])[0].id}")


if __name__ == "__main__":
    main()

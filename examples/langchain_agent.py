"""An agent of LangChain that looks things up, as you already have it, with three lines added.

Run it as it stands: `python examples/langchain_agent.py`. It needs no key: a scripted chat model
stands in for yours, and its last answer has a number wrong on purpose. Without the lines marked
`# added` it runs as well, and gives that answer out.
"""

from collections.abc import Iterator
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import create_retriever_tool
from langchain_core.vectorstores import InMemoryVectorStore

from crp_integrations import Relay  # added
from crp_integrations.langchain import CRPMiddleware  # added

TEXTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
]


class Scripted(GenericFakeChatModel):
    """A chat model that says what is written for it."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """The script calls the tools by itself."""
        return self


def script(last: str) -> Iterator[AIMessage]:
    args = {"query": "power of the Meridian reactor"}
    yield AIMessage(
        "", tool_calls=[{"name": "look_up", "args": args, "id": "1", "type": "tool_call"}]
    )
    yield AIMessage(last)


def main() -> None:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=64))
    store.add_documents([Document(text) for text in TEXTS])
    look_up = create_retriever_tool(store.as_retriever(), "look_up", "Finds facts about plants.")
    middleware: list[AgentMiddleware[Any, Any]] = []
    # What the tool finds is the context; every model call is packed for, examined and sealed.
    # With `judge="openai/gpt-4o-mini"` every answer is read, and `unchecked allow` can go.
    middleware.append(CRPMiddleware(Relay.open(), policy="halt-on HIGH; unchecked allow"))  # added

    question = {"messages": [("user", "How much power does the Meridian reactor deliver?")]}
    for last in (
        "The Meridian reactor delivers 412 megawatts.",
        "The Meridian reactor delivers 612 megawatts.",
    ):
        agent = create_agent(Scripted(messages=script(last)), [look_up], middleware=middleware)
        try:
            message = agent.invoke(question)["messages"][-1]
        except Exception as error:  # noqa: BLE001 - however you tell of errors; here a SafetyHalt
            print("no answer:", error)
            continue
        print("answer:", message.content)
        told = message.response_metadata
        if "crp" in told:
            print("risk:", told["crp"]["risk_level"], "turn:", told["crp_agent"]["turn"])


if __name__ == "__main__":
    main()

"""A LangGraph graph whose answering node is the whole turn: its thread is the session.

Run it as it stands: `python examples/langgraph_turn.py`. It needs no key: the extractive model
answers with sentences of the context.
"""

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from crp_integrations import Relay
from crp_integrations.langchain import CRPRunnable

FACTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
]


def main() -> None:
    relay = Relay.open()
    relay.add(FACTS)
    answers = CRPRunnable(relay, model="extractive", policy="halt-on HIGH; unchecked allow")

    def answer(state: MessagesState) -> dict[str, list]:
        return {"messages": [answers.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    app = graph.compile(checkpointer=InMemorySaver())

    config = {"configurable": {"thread_id": "reader-1"}}
    for question in ("How much power does it deliver?", "Who operates the Meridian reactor?"):
        message = app.invoke({"messages": [HumanMessage(question)]}, config)["messages"][-1]
        session = message.response_metadata["crp_session"]
        print(f"window {session['window_number']}: {message.content}")
    print("sealed windows:", relay.verify().windows)


if __name__ == "__main__":
    main()

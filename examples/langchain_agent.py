"""An agent of LangChain that you already have, with three lines added: agentic RAG, checked.

Run it as it stands: `python examples/langchain_agent.py`. It needs no key: a scripted chat model
stands in for yours.
"""

from collections.abc import Iterator
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from crp_integrations import Relay
from crp_integrations.errors import SafetyHalt
from crp_integrations.langchain import CRPMiddleware

FACTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
]


@tool
def load_now(plant: str) -> str:
    """What a plant delivers at this moment."""
    return f"At this moment the {plant} reactor delivers 388 megawatts to the northern grid."


class Scripted(GenericFakeChatModel):
    """A chat model that says what is written for it."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """The script calls the tools by itself."""
        return self


def script(last: str) -> Iterator[AIMessage]:
    call = {"name": "load_now", "args": {"plant": "Meridian"}, "id": "1", "type": "tool_call"}
    yield AIMessage("", tool_calls=[call])
    yield AIMessage(last)


def main() -> None:
    relay = Relay.open()
    relay.add(FACTS)
    question = {"messages": [("user", "How much power does the Meridian reactor deliver now?")]}
    for last in (
        "At this moment the Meridian reactor delivers 388 megawatts.",
        "At this moment the Meridian reactor delivers 612 megawatts.",
    ):
        model = Scripted(messages=script(last))

        # What you have: create_agent(model, [load_now]). What you add: its middleware.
        checked = CRPMiddleware(relay, policy="halt-on MEDIUM", max_turns=8)
        agent = create_agent(model, [load_now], middleware=[checked])

        try:
            message = agent.invoke(question)["messages"][-1]
        except SafetyHalt as halt:
            print("withheld:", halt.reason, halt.report.risk_level, *halt.report.distortion_types)
            continue
        told = message.response_metadata
        print("answer:", message.content)
        print("risk:", told["crp"]["risk_level"], "turn:", told["crp_agent"]["turn"])
        print("window:", told["crp_agent"]["window_number"], "of the run's session")


if __name__ == "__main__":
    main()

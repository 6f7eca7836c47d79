"""LangChain's `SummarizationMiddleware`, with a model that quotes what it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from tests.bench.peers.langchain_trim import theirs

NAME = f"LangChain SummarizationMiddleware (langchain {version('langchain')})"
# Of the budget: the messages that stay, and the summary of those that go.
KEPT, SUMMED = 0.8, 0.2


class _Quoting(BaseChatModel):
    """Answers with what it makes of its prompt."""

    quote: Callable[[str], str]

    @property
    def _llm_type(self) -> str:
        return "quoting"

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **more: Any
    ) -> ChatResult:
        said = self.quote(str(messages[-1].text))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])


def summarised(
    messages: Sequence[Message],
    budget: int,
    counter: TokenCounter,
    quote: Callable[[Sequence[str], int], str],
) -> list[str]:
    """Contents that are left, the summary first.

    Args:
        quote: a summary of texts within so many tokens, in the place of a model's.
    """
    own = {f"m{number}": message for number, message in enumerate(messages)}
    given: list[Any] = [theirs(message, name) for name, message in own.items()]

    def count(some: Any) -> int:
        read = [own.get(one.id) or Message(role="user", content=str(one.text)) for one in some]
        return counter.count_messages(read)

    def told(prompt: str) -> str:
        # What the middleware puts around the conversation is left to it.
        texts = [message.content for message in messages if message.content in prompt]
        return quote([text for text in texts if text], int(SUMMED * budget))

    middleware = SummarizationMiddleware(
        _Quoting(quote=told),
        trigger=("tokens", budget),
        keep=("tokens", int(KEPT * budget)),
        token_counter=count,
        trim_tokens_to_summarize=None,
    )
    changed: Any = middleware.before_model({"messages": given}, None)  # type: ignore[arg-type]
    left = given if changed is None else changed["messages"]
    return [str(one.text) for one in left if not isinstance(one, RemoveMessage)]

"""What a `ReActAgent` writes behind the question: thoughts, and results as a user's words.

LlamaIndex gives these messages no mark, so they are known by their place at the end of a
conversation and by the words that `ActionReasoningStep` and `ObservationReasoningStep` begin with.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from llama_index.core.base.llms.types import ChatMessage

# A result there bears no id of its call, so it is counted.
NUMBERED: Final = "observation-"
_OBSERVED: Final = "Observation: "
# What the agent tells a model whose words it could not read.
_UNREAD: Final = (
    "Error while parsing the output: ",
    "FAILURE: Your previous response was empty.",
)
_ACTION: Final = re.compile(r"(?:^|\n)Action: (?P<tool>[^\n]+)\nAction Input: (?P<input>.*)", re.S)


def reasoned(messages: Sequence[ChatMessage]) -> int:
    r"""How many messages at the end are an agent's reasoning, and no question of a user.

    >>> said = ["When?", "Thought: I look.\nAction: look\nAction Input: {}", "Observation: 1957"]
    >>> roles = ["user", "assistant", "user"]
    >>> reasoned([ChatMessage(role=role, content=text) for role, text in zip(roles, said)])
    2
    """
    end = len(messages)
    while end >= 2 and _is_answered(messages[end - 2], messages[end - 1]):
        end -= 2
    return len(messages) - end


def observations(
    reasoning: Sequence[ChatMessage],
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The tools' results in an agent's reasoning: tool, arguments and what it answered."""
    for asked, answered in zip(reasoning[::2], reasoning[1::2], strict=True):
        action = _ACTION.search(asked.content or "")
        text = answered.content or ""
        if action and text.startswith(_OBSERVED):
            yield action["tool"].strip(), _arguments(action["input"]), text.removeprefix(_OBSERVED)


def _is_answered(asked: ChatMessage, answered: ChatMessage) -> bool:
    if (str(asked.role.value), str(answered.role.value)) != ("assistant", "user"):
        return False
    text = answered.content or ""
    observed = text.startswith(_OBSERVED) and _ACTION.search(asked.content or "") is not None
    return observed or text.startswith(_UNREAD)


def _arguments(written: str) -> dict[str, Any]:
    """The arguments as LlamaIndex writes them, a Python dictionary; empty for anything else."""
    try:
        read = ast.literal_eval(written.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}

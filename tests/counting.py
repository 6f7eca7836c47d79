"""Real tokenizers for the loopback servers, loaded without the package's own counters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.servers import Window

Messages = list[dict[str, Any]]


@cache
def mistral() -> Callable[[Messages], int]:
    """Mistral's own template and vocabulary (v3), from `mistral-common`."""
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    tokenizer = MistralTokenizer.v3()

    def count(messages: Messages) -> int:
        asked = ChatCompletionRequest.from_openai(messages=messages)
        return len(tokenizer.encode_chat_completion(asked).tokens)

    return count


@cache
def claude_2() -> Callable[[Messages], int]:
    """Anthropic's tokenizer of 2023, with the turns as the completion interface wrote them."""
    from tokenizers import Tokenizer

    spec = find_spec("litellm")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "litellm_core_utils" / "tokenizers"
    tokenizer = Tokenizer.from_file(str(folder / "anthropic_tokenizer.json"))

    def count(messages: Messages) -> int:
        said = "".join(f"\n\n{one['role'].title()}: {one['content']}" for one in messages)
        return len(tokenizer.encode(said + "\n\nAssistant:").ids)

    return count


@cache
def o200k() -> Callable[[Messages], int]:
    """OpenAI's o200k with its documented frame: 3 tokens a message, 3 for the reply."""
    import litellm

    encoding = _tiktoken("o200k_base", litellm.__file__)

    def count(messages: Messages) -> int:
        return 3 + sum(3 + len(encoding.encode_ordinary(one["content"])) for one in messages)

    return count


def _tiktoken(name: str, library: str) -> Any:
    import os

    import tiktoken

    # LiteLLM's import points tiktoken to the vocabularies inside its wheel.
    os.environ.setdefault(
        "TIKTOKEN_CACHE_DIR", str(Path(library).parent / "litellm_core_utils" / "tokenizers")
    )
    return tiktoken.get_encoding(name)


def window(tokens: int, count: Callable[[Messages], int]) -> Window:
    """What a deployment takes, refused by real counts."""
    return Window(tokens, count)

"""How many input tokens a model takes, and what its tokens cost, from offline tables.

LiteLLM's table is read as a file; the library itself is not imported, which would take
seconds. A limit here is the maximum size of the prompt: the input limit of models that state one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import orjson

from crp_integrations.errors import ConfigError
from crp_integrations.messages import ModelPrice

DEFAULT_LIMIT: Final = 8_192
EXTRACTIVE_LIMIT: Final = 32_768
LITELLM_TABLE: Final = "model_prices_and_context_window_backup.json"

# Families by the start of a model's own name, for names that LiteLLM's table lacks: a
# self-hosted copy, a dated or brand-new version. The longest start wins. Providers often offer
# less than a family's largest window, so each number is the smallest in common use.
_STARTS: Final[Mapping[int, str]] = {
    2_048: "vicuna falcon",
    4_096: "llama-2 llama2 phi-3 granite solar",
    8_192: "gpt-4 gemma llama-3 llama3 meta-llama-3",
    16_384: "phi-4 codellama code-llama starcoder2",
    16_385: "gpt-3.5-turbo",
    30_720: "gemini-1.0 gemini-pro",
    32_000: "open-mistral open-mixtral",
    EXTRACTIVE_LIMIT: (
        "extractive mistral mistral-small mixtral codestral qwen2 qwen2.5 qwen-2 dbrx"
    ),
    40_000: "magistral",
    40_960: "qwen3",
    64_000: "open-mixtral-8x22b",
    65_536: "deepseek",
    100_000: "claude-2.0 claude-instant",
    128_000: (
        "gpt-4-turbo gpt-4o chatgpt-4o o1-mini o1-preview open-mistral-nemo command-r nova-micro "
        "glm-4"
    ),
    131_072: (
        "gpt-oss gemma-3 gemma3 mistral-large mistral-medium mistral-nemo ministral pixtral "
        "llama-3.1 llama3.1 llama-3.2 llama3.2 llama-3.3 llama3.3 llama-4 llama4 meta-llama-3.1 "
        "grok kimi-k2"
    ),
    200_000: "o1 o3 o4 claude",
    256_000: "command-a jamba",
    272_000: "gpt-5",
    300_000: "nova-lite nova-pro",
    1_047_576: "gpt-4.1",
    1_048_576: "gemini",
}
FAMILIES: Final = tuple(
    (start, tokens) for tokens, starts in _STARTS.items() for start in starts.split()
)
_BY_LENGTH: Final = tuple(sorted(FAMILIES, key=lambda row: (-len(row[0]), row[0])))
# What may follow a family's start: the end, or a separator before a version or size.
_FOLLOWS: Final = re.compile(r"(?![a-z0-9.])|(?=\.\d*$)")

_VENDOR: Final = re.compile(
    r"(?:[a-z]{2,6}\.)?(?:anthropic|meta|mistral|deepseek|cohere|ai21|openai|amazon|qwen)\.|ft:"
)


def context_limit(model: str, overrides: Mapping[str, int]) -> tuple[int, str]:
    """A model's context limit in tokens, and the source of the number.

    The order of search is: the caller's own numbers, LiteLLM's bundled table, this module's table
    of families, and last a low default.

    Args:
        model: model name as LiteLLM takes it, such as `azure/gpt-4o`.
        overrides: tokens by model name, with or without the provider; each above 0.

    Returns:
        Tokens, and `setting`, `litellm`, `family NAME` or `default`.

    Raises:
        ConfigError: the override is not above 0.

    >>> context_limit("extractive/best", {})
    (32768, 'family extractive')
    >>> context_limit("nobody/knows-this", {})
    (8192, 'default')
    """
    for name in _spellings(model):
        if name in overrides:
            return _positive(name, overrides[name]), "setting"
    for name in _spellings(model):
        known = _litellm_table().get(name)
        if known is not None:
            return known, "litellm"
    # The model's own name first, so that mistral/mistral-large is not taken for `mistral`.
    for name in reversed(_spellings(model)):
        for start, tokens in _BY_LENGTH:
            if name.lower().startswith(start) and _FOLLOWS.match(name.lower(), len(start)):
                return tokens, f"family {start}"
    return DEFAULT_LIMIT, "default"


def _spellings(model: str) -> list[str]:
    """The name as given, then without its leading parts one by one: `a/b/c`, `b/c`, `c`.

    A prefix of vendor and region is removed last (Bedrock's `us.anthropic.claude-…` becomes
    `claude-…`), as is OpenAI's mark of fine-tuned models (`ft:gpt-4o-…` becomes `gpt-4o-…`).
    """
    parts = model.split("/")
    names = ["/".join(parts[place:]) for place in range(len(parts))]
    vendor = _VENDOR.match(parts[-1])
    return [*names, parts[-1][vendor.end() :]] if vendor else names


def _positive(name: str, tokens: int) -> int:
    if tokens <= 0:
        raise ConfigError(f"the context limit of {name!r} is {tokens}; give a number above 0")
    return tokens


@cache
def _litellm_table() -> Mapping[str, int]:
    """Input limits by name from the file in LiteLLM's package, empty when there is none."""
    table: dict[str, int] = {}
    for name, row in _litellm_rows():
        # `max_tokens` alone is often the limit of the output, so it is not used.
        limit = row.get("max_input_tokens")
        if isinstance(limit, int) and limit > 0 and row.get("mode") in (None, "chat", "responses"):
            table[name] = limit
    return table


@cache
def _litellm_prices() -> Mapping[str, ModelPrice]:
    return {name: price for name, row in _litellm_rows() if (price := _price(row)) is not None}


def _litellm_rows() -> list[tuple[str, Mapping[str, Any]]]:
    spec = find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        return []
    path = Path(next(iter(spec.submodule_search_locations))) / LITELLM_TABLE
    try:
        rows = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return []
    return [(name, row) for name, row in rows.items() if isinstance(row, dict)]


def model_price(model: str) -> ModelPrice | None:
    """The price of a model from LiteLLM's tables, None for a name that they lack.

    Prices that the process registered with LiteLLM come before those of the file.
    """
    registered = getattr(sys.modules.get("litellm"), "model_cost", None) or {}
    for name in _spellings(model):
        row = registered.get(name)
        price = _price(row) if isinstance(row, Mapping) else _litellm_prices().get(name)
        if price is not None:
            return price
    return None


def _price(row: Mapping[str, Any]) -> ModelPrice | None:
    """The highest of a row's prices: longer prompts and reasoning may cost more."""

    def highest(*names: str) -> float | None:
        above = tuple(f"{name}_above_" for name in names)
        prices = [
            float(value)
            for name, value in row.items()
            if (name in names or name.startswith(above)) and isinstance(value, int | float)
        ]
        return max(prices, default=None)

    asked = highest("input_cost_per_token")
    replied = highest("output_cost_per_token", "output_cost_per_reasoning_token")
    if asked is None or replied is None:
        return None
    most = row.get("max_output_tokens")
    return ModelPrice(asked, replied, most if isinstance(most, int) and most > 0 else None)

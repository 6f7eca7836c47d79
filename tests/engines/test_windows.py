"""Context limits: from where, in which order, and a careful default."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.engines import context_limits
from crp_integrations.engines.context_limits import DEFAULT_LIMIT, FAMILIES, context_limit
from crp_integrations.errors import ConfigError


@pytest.fixture
def no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_limits, "_litellm_table", dict)


def test_the_callers_number_wins() -> None:
    assert context_limit("openai/gpt-4o", {"gpt-4o": 999}) == (999, "setting")
    assert context_limit("openai/gpt-4o", {"gpt-4o": 999, "openai/gpt-4o": 5}) == (5, "setting")


@pytest.mark.parametrize("tokens", [0, -1])
def test_a_number_that_is_none_is_refused(tokens: int) -> None:
    with pytest.raises(ConfigError, match="gpt-4o"):
        context_limit("gpt-4o", {"gpt-4o": tokens})


@pytest.mark.parametrize("name", ["gpt-4o", "openai/gpt-4o", "azure/eu/gpt-4o"])
def test_the_table_of_litellm_is_read(name: str) -> None:
    assert context_limit(name, {}) == (128_000, "litellm")


@pytest.mark.usefixtures("no_table")
@pytest.mark.parametrize(
    ("name", "limit", "source"),
    [
        ("gpt-4o-mini-2099-01-01", 128_000, "family gpt-4o"),
        ("gpt-4.1-nano", 1_047_576, "family gpt-4.1"),
        ("gpt-4-0613", 8_192, "family gpt-4"),
        ("o3-mini", 200_000, "family o3"),
        ("anthropic/claude-opus-9", 200_000, "family claude"),
        ("bedrock/us.anthropic.claude-sonnet-9-v1:0", 200_000, "family claude"),
        ("ollama/llama3.1:8b", 131_072, "family llama3.1"),
        ("ollama/llama3:8b", 8_192, "family llama3"),
        ("ollama/qwen2.5:7b", 32_768, "family qwen2.5"),
        ("ft:gpt-4o-mini:company::id", 128_000, "family gpt-4o"),
        ("hosted_vllm/meta-llama/Llama-3.1-8B-Instruct", 131_072, "family llama-3.1"),
        ("gemini/gemini-9-flash", 1_048_576, "family gemini"),
        ("mistral/mistral-large-2512", 131_072, "family mistral-large"),
        ("gpt-5.4", 272_000, "family gpt-5"),
        ("openai/open-mistral-7b", 32_000, "family open-mistral"),
        ("bedrock/eu.amazon.nova-micro-v9:0", 128_000, "family nova-micro"),
        ("ollama/codellama:13b", 16_384, "family codellama"),
        ("extractive", 32_768, "family extractive"),
        ("extractive/best", 32_768, "family extractive"),
    ],
)
def test_families(name: str, limit: int, source: str) -> None:
    assert context_limit(name, {}) == (limit, source)


@pytest.mark.usefixtures("no_table")
@pytest.mark.parametrize("name", ["gpt-40", "o1x", "nobody/knows", "", "/", "claudette"])
def test_an_unknown_name_gets_the_careful_default(name: str) -> None:
    assert context_limit(name, {}) == (DEFAULT_LIMIT, "default")


@given(st.text(max_size=40))
def test_any_name_has_a_limit_above_zero(name: str) -> None:
    limit, source = context_limit(name, {})
    assert limit > 0
    assert source in ("litellm", "default") or source.removeprefix("family ") in dict(FAMILIES)


def test_litellm_is_not_imported() -> None:
    code = (
        "import sys; from crp_integrations.engines.context_limits import context_limit;"
        "print(context_limit('gpt-4o', {})); sys.exit('litellm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "(128000, 'litellm')")

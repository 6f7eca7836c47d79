"""The public doors that count, and the record that says what a count is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Message, Relay, TokenCount, count_tokens
from crp_integrations.engines.tokens import counter_for
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.relay.settings import Settings
from crp_integrations.vocabulary import Exactness

TEXT = "The harbour board approved a revised budget of $4.2 million."
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look_up", "description": "Looks up a licence.", "parameters": {}},
}


@pytest.mark.requirement("003-10.1-4", "003-10.1-3")
@pytest.mark.parametrize(
    ("model", "exactness", "source"),
    [
        ("gpt-4o", "exact", "tiktoken o200k_base from litellm"),
        ("azure/gpt-4o", "family", "tiktoken o200k_base from litellm"),
        ("claude-2", "exact", "claude-2 from litellm"),
        (
            "claude-3-opus",
            "estimate",
            "tiktoken o200k_base from litellm × 1.18 for Claude 3 and 4",
        ),
        (
            "gemini/gemini-2.5-pro",
            "estimate",
            "tiktoken cl100k_base from litellm × 1.45 for Gemini",
        ),
        ("mistral/mistral-large-2411", "exact", "mistral-v7 from mistral_common"),
        (
            "nobody/knows",
            "estimate",
            "tiktoken cl100k_base from litellm × 1.45 for an unknown model",
        ),
    ],
)
def test_a_count_states_its_exactness_and_source(
    model: str, exactness: str, source: str, relay: Relay
) -> None:
    count = count_tokens(TEXT, model)
    assert count == TokenCount(
        n=counter_for(model).count(TEXT), exactness=Exactness(exactness), source=source
    )
    assert relay.count_tokens(TEXT, model) == count
    assert count.model_dump(mode="json")["schema"] == "token-count/1"
    assert TokenCount.model_validate_json(count.model_dump_json()) == count


@pytest.mark.requirement("003-10.1-4")
def test_messages_and_tools_count_with_what_stands_around_them() -> None:
    spoken = [
        Message(role="system", content="Be brief."),
        Message(role="user", content=TEXT),
    ]
    shaped = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}]
    counter = counter_for("gpt-4o")
    bare = counter.count("Be brief.") + counter.count(TEXT)
    count = count_tokens(spoken, "gpt-4o")
    # Three around each, their roles, and three that open the answer.
    assert (count.n, count.overhead) == (bare + 11, 11)
    assert count_tokens(shaped, "gpt-4o") == count
    beside = count_tokens(shaped, "gpt-4o", tools=[TOOL])
    assert beside.n == count.n + counter.count_tools([TOOL])
    assert beside.overhead == beside.n - bare
    assert count_tokens([], "gpt-4o").n == 3
    assert count_tokens("", "gpt-4o").n == 0


def test_a_relay_counts_for_its_own_model_unless_another_is_named(relay: Relay) -> None:
    assert relay.count_tokens(TEXT).n == counter_for("extractive").count(TEXT)
    assert relay.count_tokens(TEXT).source.startswith("tiktoken cl100k_base")
    assert relay.count_tokens(TEXT, "gpt-4o").source.startswith("tiktoken o200k_base")


def test_a_file_of_the_settings_is_counted_with(tmp_path: Path) -> None:
    from crp_integrations.engines.tokens import vocabulary_files

    found = vocabulary_files.find_vocabulary(vocabulary_files.O200K)
    assert found is not None
    (tmp_path / "own.tiktoken").write_bytes(found.data)
    own = Settings(tokenizer_files={"our/model": tmp_path / "own.tiktoken"})
    count = count_tokens(TEXT, "our/model", settings=own)
    assert (count.exactness, count.source) == (Exactness.EXACT, "tiktoken file own.tiktoken")
    gone = Settings(tokenizer_files={"our/model": tmp_path / "gone.json"})
    with pytest.raises(ConfigError, match=r"gone\.json cannot be read"):
        count_tokens(TEXT, "our/model", settings=gone)


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        (5, "int, wanted a text or a list of messages"),
        (None, "NoneType, wanted a text or a list of messages"),
        (b"bytes", "a message is a int"),
        (["a text"], "a message is a str"),
        ([{"role": "nobody", "content": "x"}], "role 'nobody' is not one of"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "something other than text"),
    ],
)
def test_what_is_no_text_is_refused(what: Any, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        count_tokens(what, "gpt-4o")


def test_a_tool_that_is_no_definition_is_refused() -> None:
    tools: Any = [TOOL, "look_up"]
    with pytest.raises(RequestError, match="tool 2 is str, wanted a definition"):
        count_tokens(TEXT, "gpt-4o", tools=tools)

"""The budget is kept to the token: every kind of text, every exact tokenizer of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.budget import reserves, safety_margin
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.relay import prompt
from crp_integrations.relay.records import Request
from crp_integrations.vocabulary import Exactness, GroundingMode
from tests.envelope.builders import SETTINGS, candidates, fact, made
from tests.laws.samples import KINDS, NASTY, SAMPLES

# One model for each vocabulary; what the machine lacks is an estimate and not counted as exact.
MODELS = {
    "cl100k_base": "gpt-4",
    "o200k_base": "gpt-4o",
    "claude-2": "claude-2.1",
    "deepseek-v3": "deepseek-chat",
    "llama-3": "llama-3.1-8b-instruct",
    "llama-4": "llama-4-scout",
    "qwen": "qwen2.5-7b-instruct",
    "mistral-v1": "mistral-medium-2312",
    "mistral-v2": "mistral-large-2402",
    "mistral-v3": "mistral-large-2407",
    "mistral-v7": "mistral-large-2411",
    "tekken-240718": "open-mistral-nemo",
    "tekken-240911": "pixtral-12b-2409",
}
# Their wheels are among what the tests install.
ALWAYS = set(MODELS) - {"deepseek-v3", "llama-3", "llama-4", "qwen"}
ESTIMATES = ("claude-3-opus", "gemini-2.5-pro", "unheard-of")
PACKINGS: tuple[Any, ...] = ("greedy", "in_order")


@cache
def exact() -> dict[str, TokenCounter]:
    """The exact counters of this machine by vocabulary."""
    found = {name: counter_for(model) for name, model in MODELS.items()}
    return {name: one for name, one in found.items() if one.exactness is Exactness.EXACT}


def test_the_exact_tokenizers_are_here() -> None:
    assert set(exact()) >= ALWAYS
    assert len({counter.identity for counter in exact().values()}) == len(exact())
    for name, counter in exact().items():
        assert name in counter.source


def given_facts(texts: Sequence[str]) -> Candidates:
    return candidates(
        *(fact(f"f{n:03d}", 0.9 - n / 500, 0.5, content=text) for n, text in enumerate(texts))
    )


def checked(envelope: Envelope, counter: TokenCounter, budget: int) -> None:
    """The text as it will be sent is what was counted, and it fits."""
    assert envelope.token_count == (counter.count(envelope.text) if envelope.text else 0)
    assert envelope.token_count <= max(0, budget)
    assert envelope.token_exactness is counter.exactness


def cut(text: str, size: int) -> list[str]:
    """Pieces of a size, which split words, digits and clusters as bad chunkers do."""
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.requirement("003-7.3-4", "003-10.1-3")
@pytest.mark.parametrize("kind", KINDS)
def test_no_tokenizer_finds_more_than_the_budget_in_a_kind_of_text(kind: str) -> None:
    # Whole passages, sentences and slices, so that facts differ much in size.
    texts = [KINDS[kind], *cut(KINDS[kind], 71), *cut(KINDS[kind], 13), *cut(KINDS[kind][5:], 29)]
    found = given_facts(texts)
    for counter in exact().values():
        for budget in (0, 1, 23, 118, 409, 1_500):
            envelope = made(found, budget_tokens=budget, counter=counter)
            checked(envelope, counter, budget)
        # Half of what all take: how many tokens that is differs by a factor between tokenizers.
        half = made(found, budget_tokens=100_000, counter=counter).token_count // 2
        filled = made(found, budget_tokens=half, counter=counter)
        assert filled.saturation > 0.85
        assert filled.dropped


@pytest.mark.requirement("003-7.3-4", "003-10.1-3")
def test_no_tokenizer_finds_more_than_the_budget_in_nasty_text() -> None:
    texts = [*NASTY, *(piece for text in NASTY for piece in cut(text, 11)), *SAMPLES]
    found = given_facts(texts)
    for counter in exact().values():
        for budget in (1, 37, 300, 1_200, 6_000):
            checked(made(found, budget_tokens=budget, counter=counter), counter, budget)


PIECE = st.one_of(
    st.tuples(st.sampled_from([*SAMPLES, *NASTY]), st.integers(0, 400), st.integers(1, 120)).map(
        lambda drawn: drawn[0][drawn[1] : drawn[1] + drawn[2]] or drawn[0]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
    # Marks, joiners, variation selectors and controls beside letters.
    st.text(
        st.sampled_from("ae\u0301\u0323\u200d\ufe0f👩🏽👍\u202e\x00\x1b\n \u3000कि\u093fम"),
        min_size=1,
        max_size=40,
    ),
    st.text(st.sampled_from("ab1"), min_size=150, max_size=300),
)


@pytest.mark.requirement("003-2-3", "003-7.3-4", "003-10.1-3")
@settings(max_examples=60)
@given(
    st.lists(PIECE, min_size=1, max_size=10),
    st.integers(-2, 500),
    st.sampled_from(PACKINGS),
)
def test_no_exact_tokenizer_ever_finds_more_than_the_budget(
    texts: list[str], budget: int, packing: Any
) -> None:
    found = given_facts(texts)
    using = EnvelopeSettings(packing=packing)
    for counter in exact().values():
        envelope = made(found, budget_tokens=budget, counter=counter, settings=using)
        checked(envelope, counter, budget)


# --- the whole request ---------------------------------------------------------------------------

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up_licence",
        "description": "Looks up a licence by its number. — Genehmigung, 许可证",
        "parameters": {
            "type": "object",
            "properties": {
                "number": {"type": "string", "description": "Such as A-1042"},
                "region": {"type": "string", "enum": ["north", "south"]},
            },
            "required": ["number"],
        },
    },
}
SAID = st.one_of(st.sampled_from([*SAMPLES, *NASTY]), st.text(max_size=30))
HISTORY = st.lists(
    st.tuples(st.sampled_from(["user", "assistant"]), SAID).map(
        lambda drawn: Message.model_validate({"role": drawn[0], "content": drawn[1]})
    ),
    max_size=3,
)
PLAIN = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.requirement("003-7.2-5", "003-7.2-1", "003-7.2-2")
@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([*SAMPLES, *NASTY]), min_size=1, max_size=8),
    PLAIN,
    PLAIN.filter(str.strip),
    HISTORY.map(tuple),
    st.integers(0, 3),
    st.integers(1, 900),
    st.sampled_from(list(GroundingMode)),
    st.integers(1_500, 6_000),
    st.sampled_from([*MODELS.values(), *ESTIMATES]),
)
def test_a_whole_request_fits_with_its_answer_and_margin(
    texts: list[str],
    system: str,
    query: str,
    history: tuple[Message, ...],
    tools: int,
    answer: int,
    mode: GroundingMode,
    limit: int,
    model: str,
) -> None:
    counter = counter_for(model)
    request = Request(
        query=query,
        model=model,
        system_prompt=system,
        history=history,
        tools=(TOOL,) * tools,
        max_tokens=answer,
        grounding=mode,
        budget_tokens="window",
    )
    budget = prompt.reckon_room(request, counter, limit, SETTINGS).tokens
    envelope = made(given_facts(texts), budget_tokens=budget, counter=counter, grounding=mode)
    checked(envelope, counter, budget)
    if not budget:
        assert (envelope.facts, envelope.quality_tier.value) == ((), "D")
        return
    sent = prompt.prompt_messages(request, envelope.text)
    used = counter.count_messages(sent) + counter.count_tools(request.tools) + answer
    _, least = reserves(limit, answer, SETTINGS)
    assert least == min(SETTINGS.safety_margin_tokens, limit // 20)
    # Parts that are counted alone and stand side by side may differ by a few from the whole.
    slack = 8 if counter.exactness is Exactness.EXACT else 16
    assert (
        used
        <= limit - max(least, safety_margin(budget, counter.exactness, SETTINGS, least)) + slack
    )
    # Not a token is given away either: what is left over is the margin alone.
    rest = counter.count_messages(prompt.prompt_messages(request, "x")) - counter.count("x")
    left = limit - answer - counter.count_tools(request.tools) - rest
    assert abs(left - safety_margin(left, counter.exactness, SETTINGS, least) - budget) <= slack


@pytest.mark.requirement("003-7.2-5")
@pytest.mark.parametrize(
    ("model", "share"),
    [("gpt-4o", 0.0), ("azure/gpt-4o", 0.05), ("claude-3-opus", 0.25), ("unheard-of", 0.25)],
)
def test_the_margin_is_as_wide_as_the_count_is_unsure(model: str, share: float) -> None:
    counter = counter_for(model)
    request = Request(query="Who pays?", model=model, max_tokens=1_000, budget_tokens="window")
    whole = {}
    for limit in (11_000, 64_000):
        left = limit - 1_000 - counter.count_messages(prompt.prompt_messages(request, "x"))
        whole[limit] = left
        kept = left - prompt.reckon_room(request, counter, limit, SETTINGS).tokens
        assert abs(kept - max(512, share * left)) <= 8
    assert share == 0.0 or share * whole[64_000] > 512


@pytest.mark.requirement("003-7.2-3", "003-7.2-4")
@given(st.integers(0, 20_000), st.none() | st.integers(0, 4_000))
def test_the_reserves_are_at_most_a_share_of_the_window(limit: int, answer: int | None) -> None:
    kept, least = reserves(limit, answer, SETTINGS)
    if answer is None:
        assert kept + least <= limit / 4
        assert limit < 10_240 or (kept, least) == (2_048, 512)
        # Nothing is given away either: both grow with the window.
        assert kept + least >= min(2_560, limit // 4) - 1
    else:
        assert (kept, least) == (answer, reserves(limit, None, SETTINGS)[1])


def test_a_limit_of_the_input_holds_no_answer() -> None:
    counter = counter_for("gpt-4")
    asked = Request(query="Who pays?", model="gpt-4", max_tokens=1_000)

    def room(limit: int, inputs: int | None) -> Any:
        return prompt.reckon_room(asked, counter, limit, SETTINGS, input_limit=inputs)

    whole, inputs = room(8_192, None), room(8_192, 2_600)
    assert (whole.limit, whole.answer, inputs.limit, inputs.answer) == (8_192, 1_000, 2_600, 0)
    assert inputs.tokens == 2_600 - inputs.around - inputs.question - 2_600 // 20
    # The model's own limit holds where it is narrower, unless it is no limit of this deployment.
    assert room(8_192, 8_000) == whole
    assert room(4_096, 8_000).tokens > room(4_096, None).tokens


def test_a_request_without_room_is_told_and_gives_an_empty_envelope(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counter = counter_for("gpt-4")
    said = "The quay is closed. " * 900
    request = Request(query="Who pays?", model="gpt-4", system_prompt=said)
    with caplog.at_level("WARNING", logger="crp_integrations.relay"):
        assert prompt.reckon_room(request, counter, 4_096, SETTINGS).tokens == 0
    (record,) = caplog.records
    assert "gpt-4" in record.getMessage() and "4096" in record.getMessage()
    assert "quay" not in record.getMessage()
    caplog.clear()
    assert prompt.reckon_room(request, counter, 32_000, SETTINGS).tokens > 0
    assert caplog.records == []

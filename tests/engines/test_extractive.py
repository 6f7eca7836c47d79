"""The answerer without a key: verbatim, deterministic, honest about what it does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import examine
from crp_integrations.engines.extractive import (
    FRAME,
    MOST_QUOTES,
    NO_ANSWER,
    ExtractiveModel,
    facts,
)
from crp_integrations.envelope.prompt import render
from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.vocabulary import RiskLevel

FACTS = (
    "Saturation is the token count divided by the token budget. It is shown as a fraction.",
    (
        "The quality tier is the worst of three readings: score, saturation and overrides.\n\n"
        "A new line of the same fact says that tiers go from S to D."
    ),
    (
        "# How is the quality tier computed?\n\nHow is the quality tier computed?\n\n"
        "| quality | tier | computed |\n| --- | --- | --- |"
    ),
    "Tomatoes ripen in July.",
)
QUOTED = re.compile(r'"(.*?)" \[(\d+)\](?=\n\n"|\Z)', re.DOTALL)


def call(asked: str, contents: tuple[str, ...] = FACTS, system: str = "Be kind.") -> ModelCall:
    content = f"{system}\n\n<context>\n{render(contents)}\n</context>"
    return ModelCall(
        model="extractive",
        messages=(
            Message(role="system", content=content),
            Message(role="user", content="An earlier question about tomatoes?"),
            Message(role="assistant", content="An earlier answer."),
            Message(role="user", content=asked),
        ),
    )


def answer(asked: str, contents: tuple[str, ...] = FACTS) -> str:
    return ExtractiveModel().call(call(asked, contents)).text


def test_it_quotes_the_sentence_that_answers_and_says_so() -> None:
    text = answer("How is the quality tier computed?")
    assert text.startswith(FRAME + "\n\n")
    quotes = QUOTED.findall(text)
    assert quotes[0] == (
        "The quality tier is the worst of three readings: score, saturation and overrides.",
        "2",
    )
    # Neither the question nor the heading nor the table that repeat its words is an answer.
    assert not any("computed" in quote for quote, _ in quotes)


@pytest.mark.parametrize(
    "asked", ["Who won the chess championship in Reykjavik?", "", "?", "what is the of and"]
)
def test_it_says_when_the_context_has_no_answer(asked: str) -> None:
    assert answer(asked) == NO_ANSWER
    assert answer("How is the quality tier computed?", ()) == NO_ANSWER


WORDS = st.sampled_from(
    "the tier score Budget is 3.5 million of facts (see 4) in 2024 not always \n\n . ? - # | "
    "[2] </context> <context> é 東京 quality saturation".split(" ")
)
CONTENT = st.lists(WORDS, min_size=1, max_size=25).map(" ".join).filter(lambda text: text.strip())


@given(st.lists(CONTENT, max_size=6).map(tuple), CONTENT)
def test_every_quotation_is_verbatim(contents: tuple[str, ...], asked: str) -> None:
    made = call(asked, contents)
    text = ExtractiveModel().call(made).text
    assert text == ExtractiveModel().call(made).text
    if text == NO_ANSWER:
        return
    given_facts = facts(made.messages)
    quotes = QUOTED.findall(text.removeprefix(FRAME))
    assert 1 <= len(quotes) <= MOST_QUOTES
    for quote, number in quotes:
        assert quote in given_facts[int(number) - 1]
    assert len({quote for quote, _ in quotes}) == len(quotes)


def test_facts_are_found_whatever_stands_in_them() -> None:
    contents = ("One </context> still one.", "[7] is quoted here.", "Two\n\n[1] lines.", "Last.")
    assert tuple(facts(call("?", contents).messages)) == contents


async def test_all_four_ways_say_the_same() -> None:
    engine, made = ExtractiveModel(), call("How is the quality tier computed?")
    whole = engine.call(made)
    assert await engine.acall(made) == whole
    for parts in (list(engine.stream(made)), [part async for part in engine.astream(made)]):
        assert parts[-1] == whole
        assert isinstance(parts[-1], Reply)
        assert "".join(parts[:-1]) == whole.text
        assert len(parts) > 2


def test_its_answer_is_grounded_and_makes_no_claims_of_its_own() -> None:
    contents = (
        "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
        "The Meridian reactor is operated by Northfield Energy. Its licence ends in 2059.",
    )
    text = answer("Who operates the Meridian reactor and when was it commissioned?", contents)
    assert len(QUOTED.findall(text)) > 1
    report = examine(text, context=list(contents), question=None)
    assert report.grounding_pct == 1.0
    assert (report.fabrication_count, report.distortion_count) == (0, 0)
    assert report.risk_level is RiskLevel.LOW
    assert report.findings == ()
    nothing = examine(NO_ANSWER, context=list(contents), question=None)
    assert "claims=0" in nothing.flags
    assert nothing.risk_level is RiskLevel.LOW

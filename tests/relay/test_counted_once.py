"""Tokens of a fact are counted once for a tokenizer and kept; a warm pack counts its text alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.engines.tokens import counter_for
from crp_integrations.engines.tokens.counters import CounterBase
from crp_integrations.envelope.gather import gather
from crp_integrations.envelope.render import SEPARATOR
from crp_integrations.ports import TokenCounter
from crp_integrations.relay import build
from tests.doubles import NOON, HashEmbedder
from tests.envelope.builders import SETTINGS, made
from tests.relay.conftest import FACTS, KEY, Opener

QUERY = "Who operates the Meridian reactor?"


class Noting(CounterBase):
    """Counts as another counter does and keeps what it was given."""

    def __init__(self, inner: TokenCounter) -> None:
        super().__init__(inner.identity, inner.exactness, inner.source)
        self._inner = inner
        self.seen: list[str] = []

    def count(self, text: str) -> int:
        self.seen.append(text)
        return self._inner.count(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]

    def taken(self) -> list[str]:
        """What was counted since the last time."""
        seen, self.seen = self.seen, []
        return seen


Counters = dict[str, Noting]


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Counters:
    """Every counter that relays of this test are given, by model."""
    made_for: Counters = {}

    def choose(model: str) -> Noting:
        return made_for.setdefault(model, Noting(counter_for(model)))

    def tokenizers(settings: object) -> Callable[[str], Noting]:
        return choose

    monkeypatch.setattr(build, "tokenizers", tokenizers)
    return made_for


def of_facts(seen: list[str]) -> list[str]:
    """Texts that hold a fact, apart from rendered envelopes."""
    return [text for text in seen if any(fact in text for fact in FACTS)]


def test_a_warm_pack_counts_its_own_text_alone(relay: Relay) -> None:
    counter = Noting(counter_for("gpt-4o"))
    cold = gather(relay.fabric, QUERY, counter=counter, settings=SETTINGS)
    assert sorted(counter.taken()) == sorted(f"[10] {fact}{SEPARATOR}" for fact in FACTS)
    warm = gather(relay.fabric, QUERY, counter=counter, settings=SETTINGS)
    assert counter.taken() == []
    assert warm.facts == cold.facts
    envelope = made(warm, budget_tokens=400, counter=counter)
    assert counter.taken() == [envelope.text]


def test_a_warm_question_counts_no_fact_and_its_envelope_once(
    open_relay: Opener, counters: Counters
) -> None:
    relay = open_relay(model="gpt-4o")
    relay.fabric.add(list(FACTS))
    cold = relay.turn(QUERY).preview()
    noting = counters["gpt-4o"]
    # Each fact once, and the text made of them once.
    assert len(of_facts(noting.taken())) == len(FACTS) + 1
    warm = relay.turn(QUERY).preview()
    seen = noting.taken()
    assert warm.text == cold.text
    assert of_facts(seen) == [warm.text]
    # The rest is the request itself: nothing that a store could have kept.
    other = relay.turn("What is grown in the valley?").preview()
    assert of_facts(noting.taken()) == [other.text]


def test_counts_outlive_the_process_and_belong_to_their_tokenizer(
    tmp_path: Path, counters: Counters
) -> None:
    def opened() -> Relay:
        return Relay.open(
            tmp_path / "store", embedder=HashEmbedder(), key=KEY, clock=NOON, model="gpt-4o"
        )

    with opened() as relay:
        relay.fabric.add(list(FACTS))
        relay.turn(QUERY).preview()
    # Ingestion has counted lengths with another tokenizer.
    for noting in counters.values():
        noting.taken()
    with opened() as relay:
        turn = relay.turn(QUERY)
        first = turn.preview()
        assert of_facts(counters["gpt-4o"].taken()) == [first.text]
        # A fallback to another tokenizer counts each fact once more, and only the first time.
        second = turn.fit("gpt-4").envelope
        assert len(of_facts(counters["gpt-4"].taken())) == len(FACTS) + 1
        third = turn.fit("gpt-4").envelope
        assert of_facts(counters["gpt-4"].taken()) == [third.text] == [second.text]
        # Back to the first: nothing is counted but the text.
        again = turn.fit("gpt-4o").envelope
        assert of_facts(counters["gpt-4o"].taken()) == [again.text]


def test_a_family_and_an_estimate_share_no_counts_with_the_exact_one(relay: Relay) -> None:
    exact, estimated = Noting(counter_for("gpt-4o")), Noting(counter_for("claude-3-opus"))
    gather(relay.fabric, QUERY, counter=exact, settings=SETTINGS)
    found = gather(relay.fabric, QUERY, counter=estimated, settings=SETTINGS)
    assert len(estimated.taken()) == len(FACTS)
    assert [one.tokens for one in found.facts] == [
        estimated.count(f"[10] {one.content}{SEPARATOR}") for one in found.facts
    ]
    # `azure/gpt-4o` counts with the same vocabulary, so what is kept serves both.
    related = Noting(counter_for("azure/gpt-4o"))
    gather(relay.fabric, QUERY, counter=related, settings=SETTINGS)
    assert related.taken() == []

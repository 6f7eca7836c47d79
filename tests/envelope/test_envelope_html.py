"""An envelope as HTML: the budget, what was packed, what was left out and why."""

from __future__ import annotations

import re

import pytest

from crp_integrations import Envelope, Relay, pack
from crp_integrations.envelope.records import Drop
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import DropReason
from tests.dpe.test_report_html import HOSTILE, read
from tests.house.screenshots import NOON, PASSAGES, QUESTION


@pytest.fixture(scope="module")
def envelope() -> Envelope:
    return pack(QUESTION, PASSAGES, model="gpt-4o", budget_tokens=110, now=NOON)


def test_the_budget_the_facts_and_the_drops_are_shown(envelope: Envelope) -> None:
    html = envelope.to_html(PASSAGES)
    page = read(html)
    assert f"Tier {envelope.quality_tier.value} 5 of 9 facts, 105 of 110 tokens" in page.text
    assert "105 tokens of facts, 5 free" in page.text
    widths = [float(one) for one in re.findall(r'<i style="width:([\d.]+)%"', html)]
    assert len(widths) == 5
    assert sum(widths) == pytest.approx(100 * 105 / 110, abs=0.1)
    for fact in envelope.facts:
        assert f"{fact.composite_score:.3f} {fact.token_count} {fact.content}" in page.text
    assert "4 facts left out 3 no room in the budget 1 duplicate" in page.text
    assert "19 The Meridian reactor is run by Northfield Energy" in page.text
    assert "duplicate of fact 2" in page.text


def test_without_the_facts_a_drop_has_its_id(envelope: Envelope) -> None:
    text = read(envelope._repr_html_()).text
    assert all(drop.fact_id in text for drop in envelope.dropped)


def test_long_tables_and_long_facts_are_folded(envelope: Envelope) -> None:
    long = envelope.facts[0].model_copy(update={"content": "word " * 900})
    drops = tuple(
        Drop(fact_id=f"fact-{n}", reason=DropReason.BUDGET, tokens=n) for n in range(1_000)
    )
    big = envelope.model_copy(update={"facts": (long,) * 70, "dropped": drops})
    page = read(big.to_html())
    assert "50 more" in page.text
    assert "980 more" in page.text
    assert all(f"fact-{n} " in page.text for n in range(1_000))
    assert page.text.count("word … word") == 0 or "…" in page.text
    # A bar of many facts has one part.
    assert big.to_html().count("<i style") == 1


def test_strangers_texts_stay_texts() -> None:
    html = pack("What?", [HOSTILE, HOSTILE + " more"], model="gpt-4o").to_html([HOSTILE])
    text = read(html).text
    assert "<script>window.hit = 1</script>" in text
    assert "U+202E" in text
    assert "\u202e" not in html


def test_a_preview_has_tier_and_bar() -> None:
    with Relay.open(MemoryStore()) as relay:
        relay.fabric.add(list(PASSAGES))
        seen = relay.preview(QUESTION, model="gpt-4o", budget_tokens=60)
    text = read(seen._repr_html_()).text
    assert f"Tier {seen.quality_tier.value}" in text
    assert f"{seen.estimated_tokens} tokens of facts" in text

"""Keywords: readable, telling, and the same for the same texts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.language.lexical_overlap import LONGEST_WORD, Phrases, groups_by_key, keywords
from crp_integrations.language.words import STOP_WORDS

AI_ACT = [
    "The EU AI Act bans social scoring; providers of high-risk systems keep technical files.",
    "Under the EU AI Act, an importer checks that the provider has drawn up the files.",
    "Fines under the EU AI Act reach 35 million euros or 7 % of worldwide turnover.",
]
CHEESE = [
    "Raw milk cheese ripens for sixty days before it is sold in these shops.",
    "A cheese made of raw milk keeps more of the flavour of the pasture.",
    "The affineur turns each raw milk cheese twice a week and washes its rind.",
]
WIND = [
    "The wind farm feeds 40 MW into the grid when all of its turbines are turning.",
    "Turbines of an offshore wind farm are inspected by drones every spring.",
    "A wind farm needs a permit for each of its turbines.",
]
GROUPS = [Phrases(texts) for texts in (AI_ACT, CHEESE, WIND)]


def distinct(group: Phrases, groups: list[Phrases], count: int) -> list[str]:
    return keywords(group, groups_by_key(groups), len(groups), count)


def best(group: int, count: int = 2) -> list[str]:
    return distinct(GROUPS[group], GROUPS, count)


def test_the_topic_comes_first_in_its_own_casing() -> None:
    assert [best(number)[0] for number in range(3)] == ["EU AI Act", "raw milk", "wind farm"]
    assert "turbines" in best(2, 4)


def test_what_every_group_says_is_no_topic_of_one() -> None:
    told = [Phrases([*texts, "The committee met. The committee met."]) for texts in (CHEESE, WIND)]
    assert "committee" not in [word for group in told for word in distinct(group, told, 1)]


def test_stop_words_verbs_and_bare_numbers_are_no_keywords() -> None:
    group = Phrases(["It is 2026 and 35 of them were quickly established; therefore they apply."])
    assert distinct(group, [group], 10) == []


def test_a_phrase_does_not_cross_punctuation_or_lines() -> None:
    group = Phrases(["granite, marble\nslate granite, marble\nslate"])
    assert not any(" " in key for key in distinct(group, [group], 5) if key != "slate granite")
    assert "granite marble" not in distinct(group, [group], 9)


def test_the_commonest_spelling_is_shown_without_characters_nobody_sees() -> None:
    group = Phrases(["Turbine noise. The turbine noise? Such turbine noise, tur\u00adbine noise."])
    assert distinct(group, [group], 1) == ["turbine noise"]


def test_a_possessive_ends_no_keyword() -> None:
    group = Phrases(["The harbour\u2019s harbour's"])
    assert distinct(group, [group], 3) == ["harbour"]


def test_endless_words_are_left_out() -> None:
    group = Phrases([f"{'x' * (LONGEST_WORD + 1)} harbour"])
    assert distinct(group, [group], 3) == ["harbour"]


@given(st.randoms(use_true_random=False))
def test_the_order_of_texts_does_not_matter(shuffler: random.Random) -> None:
    for texts in (AI_ACT, CHEESE, WIND):
        turned = list(texts)
        shuffler.shuffle(turned)
        assert distinct(Phrases(turned), GROUPS, 6) == distinct(Phrases(texts), GROUPS, 6)


@given(st.lists(st.text(max_size=80), max_size=4), st.integers(0, 5))
def test_any_text_gives_at_most_so_many_printable_keywords(texts: list[str], count: int) -> None:
    group = Phrases(texts)
    found = distinct(group, [group], count)
    assert len(found) <= count and len(set(found)) == len(found)
    for key in found:
        assert key.isprintable() and key == key.strip() and any(map(str.isalpha, key))
        assert not set(key.lower().split()) & STOP_WORDS


@pytest.mark.parametrize("count", [0, 1, 3])
def test_no_text_has_no_keyword(count: int) -> None:
    assert distinct(Phrases([]), [], count) == []

"""What is not searched for holds nothing: a text without digits, with few, or about nobody."""

from __future__ import annotations

import re
from re import _constants, _parser  # type: ignore[attr-defined]

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.dpe.pii import contact, identity_numbers
from crp_integrations.dpe.pii.persons import persons
from crp_integrations.dpe.pii.recognisers import _PERSON, _RULES, numbered, sensitive
from crp_integrations.dpe.pii.spans import _DIGITS_TOGETHER, Rule, any_of, beside, found_by
from crp_integrations.dpe.settings import PersonalSettings
from crp_integrations.language.text import split_sentences

# Of these the pattern alone takes fewer; what it finds must hold three, or a digit lies ahead.
LOOKED_AT = {"passport@1", "driving-licence@1", "employee@1"}
ADDRESSES = [
    getattr(contact, name)
    for name in (
        "_FIRST_NUMBER", "_LEADING", "_FRENCH", "_COMPOUND_AFTER", "_COMPOUND_BEFORE", "_BOX",
        "_MILITARY", "_LOOSE",
    )
]  # fmt: skip
NUMBERED = [
    identity_numbers._IBAN, identity_numbers._MONEY, contact._PHONE, *identity_numbers._AGES, *ADDRESSES,
]  # fmt: skip


def _least(pattern: re.Pattern[str]) -> int:
    """Digits that every match of a pattern holds at least."""
    return _digits(_parser.parse(pattern.pattern, pattern.flags))


def _is_digit(kind: object, value: object) -> bool:
    if kind is _constants.LITERAL:
        return chr(value) in "0123456789"
    if kind is _constants.RANGE:
        return ord("0") <= value[0] <= value[1] <= ord("9")
    return kind is _constants.CATEGORY and value is _constants.CATEGORY_DIGIT


def _digits(items: object) -> int:
    least = 0
    for kind, value in items:
        if kind is _constants.LITERAL:
            least += _is_digit(kind, value)
        elif kind is _constants.IN:
            least += all(_is_digit(*one) for one in value)
        elif kind is _constants.BRANCH:
            least += min(_digits(one) for one in value[1])
        elif kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            least += value[0] * _digits(value[2])
        elif kind is _constants.SUBPATTERN:
            least += _digits(value[3])
    return least


def test_least_digits_are_counted() -> None:
    assert _least(re.compile(r"(?<!\d)\d{2,4}-?(?:\d|[A-Z]\d\d)[0-9A-F]?(?=\d)[1-9]")) == 4


@pytest.mark.parametrize("rule", _RULES, ids=lambda rule: rule.name)
def test_no_number_of_a_rule_has_fewer_digits(rule: Rule) -> None:
    if rule.name not in LOOKED_AT:
        assert 1 <= rule.digits <= _least(rule.pattern)
    elif rule.digits == 3:
        assert not rule.valid("A" * 9) and not rule.valid("CAAAAAA12")
    else:
        assert rule.digits <= max(1, _least(rule.pattern))


@pytest.mark.parametrize("pattern", NUMBERED, ids=lambda pattern: pattern.pattern[:40])
def test_what_is_left_out_without_digits_needs_one(pattern: re.Pattern[str]) -> None:
    assert _least(pattern) >= 1


WORDS = st.lists(
    st.sampled_from(
        """Passport PASSPORT: CABCDEFGH driving licence ABCDEF employee id E-A No. Street Main Rue de
        la Paix Am Markt Straße Hauptstraße earns $ EUR aged turned ² ⅔ ½ born March card GIR Box
        PO the he You _ . ! ? - ' ( [ \n * you. is I'm muslim diagnosed with asthma""".split(" ")
    ),
    max_size=30,
).map(" ".join)


@given(WORDS)
def test_words_alone_hold_no_number(text: str) -> None:
    assert not re.search(r"\d", text)
    assert numbered(text, PersonalSettings()) == []
    assert [one for rule in _RULES for one in rule.find(text)] == []


@given(
    st.lists(st.sampled_from("1 2 34 5678 - . / card tin account A B 9".split(" ")), max_size=14)
)
def test_rules_find_what_each_finds_by_itself(pieces: list[str]) -> None:
    for text in ("".join(pieces), " ".join(pieces)):
        assert found_by(_RULES, text) == [one for rule in _RULES for one in rule.find(text)]


@pytest.mark.parametrize(
    "rule", [rule for rule in _RULES if rule.digits >= 5], ids=lambda r: r.name
)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_the_digits_of_a_long_number_stand_together(rule: Rule, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(rule.pattern, alphabet=st.characters(codec="ascii")))
    assert found_by([rule], text) == list(rule.find(text))
    together = [match.group() for match in _DIGITS_TOGETHER.finditer(text)]
    assert max(len(re.findall(r"\d", digits)) for digits in together) >= rule.digits


def test_a_word_that_the_limit_cuts_is_not_near_a_number() -> None:
    text = "The reports of the agent, its discovery options and of single web 9095 are old."
    before = text.index("9095")
    assert text[before - 60 : before].startswith("ports")
    assert not beside(text, before, before + 4, any_of("ports"))


@given(st.one_of(st.text("he you._!?[]1 \n-*|#IWMm'\u00b9\u3002", max_size=60), WORDS))
def test_a_text_about_nobody_has_no_sentence_about_somebody(text: str) -> None:
    if not text.isascii() or _PERSON.search(text):
        return
    spans = split_sentences(text)
    assert not any(_PERSON.search(text[one.start : one.end]) for one in spans)


@pytest.mark.parametrize(
    "text", ["Read it._ He is a muslim.", "end.He is a muslim.", "- he is gay."]
)
def test_somebody_is_seen_wherever_a_sentence_begins(text: str) -> None:
    assert [one.kind for one in sensitive(text, list(persons(text)))]

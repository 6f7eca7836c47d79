"""Laws of the recognisers: places, disguises, long texts, determinism."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.pii import checksums, contact
from crp_integrations.dpe.pii.recognisers import find_personal_data
from crp_integrations.dpe.pii.spans import KINDS, PersonalSpan, apart, read

CARD = "4111111111111111"
SAMPLES = (
    "Mail jo.moon@example.org, card 4111 1111 1111 1111, IBAN GB82 WEST 1234 5698 7654 32.",
    "Dr. Ann Moonraker, 221B Baker Street, London NW1 6XE, born 12 March 1984, is 41 years old.",
    "She was diagnosed with asthma. Call +44 20 7946 0018. My SSN is 536-22-8726.",
    "Employee ID E-20417 earns $85,000 a year; logged in from 84.23.99.177.",
)
TEXT = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from([*SAMPLES, "(", "+", "1", " ", "-", "@", "\n", "\u200b", "А", "٣", ". "]),
        max_size=12,
    ).map("".join),
)


@given(TEXT)
def test_places_lie_in_the_text_apart_and_in_order(text: str) -> None:
    found = find_personal_data(text)
    end = 0
    for one in found:
        assert end <= one.start < one.end <= len(text)
        end = one.end
        assert KINDS[one.kind] is one.category
        assert 0.5 <= one.score <= 1.0
        assert "@" in one.recogniser
    assert find_personal_data(text) == found


def _kinds(text: str) -> list[str]:
    return [one.kind for one in find_personal_data(text)]


@pytest.mark.parametrize("sample", SAMPLES)
@given(data=st.data())
def test_characters_without_width_hide_nothing(sample: str, data: st.DataObject) -> None:
    hidden = list(sample)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(hidden)))
        hidden.insert(at, data.draw(st.sampled_from("\u200b\u200c\u200d\u2060\ufeff\u00ad")))
    assert _kinds("".join(hidden)) == _kinds(sample)


@pytest.mark.parametrize("zero", "٠۰०０𝟎")
def test_digits_of_other_scripts_are_digits(zero: str) -> None:
    assert unicodedata.decimal(zero) == 0
    written = "".join(chr(ord(zero) + int(digit)) for digit in CARD)
    text = f"Charge {written} now."
    (one,) = find_personal_data(text)
    assert (one.kind, text[one.start : one.end]) == ("credit_card", written)


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("Write to jо@ехample.org now.", "email", "jо@ехample.org"),
        ("DNI 12345678\uff3a.", "national_id", "12345678\uff3a"),
        ("My SSN is 536\u201122\u20118726.", "ssn", "536\u201122\u20118726"),
        ("Pay ＧＢ８２ WEST 1234 5698 7654 32.", "iban", "ＧＢ８２ WEST 1234 5698 7654 32"),
        ("Call\u00a0+44\u00a020\u00a07946\u00a00018.", "phone", "+44\u00a020\u00a07946\u00a00018"),
    ],
)
def test_lookalikes_are_read_as_what_they_look_like(text: str, kind: str, place: str) -> None:
    assert (kind, place) in [
        (one.kind, text[one.start : one.end]) for one in find_personal_data(text)
    ]


@given(st.text(max_size=100))
def test_a_reading_leads_back(text: str) -> None:
    reading = read(text)
    for place in range(len(reading.plain)):
        start, end = reading.back(place, place + 1)
        assert 0 <= start < end <= len(text)


# Each of these makes a careless pattern go back again and again.
NASTY = [
    "a@", "1 ", "1-", "(1", "+1", "A ", "A. ", "Aa ", "a.", "1.", "::", "0:", "x" * 60 + " ",
    "www.", "at [at] ", "$1,000 ", "has very bad ", "member of The ", "born ", "Via ", "12 Aa ",
    "GB82", "name is ", "card 1", "A-", "'", "1/", "Straße ", "\u200b", "é", "Dr. ", "van ", "Apt 1, ",
]  # fmt: skip


# Quadratic work on this many characters takes longer; linear work takes a fifth of a second.
@pytest.mark.timeout(15)
@pytest.mark.parametrize("piece", NASTY, ids=repr)
def test_a_long_text_takes_time_linear_in_it(piece: str) -> None:
    find_personal_data(piece * (40_000 // len(piece)))


def _digits(size: int) -> st.SearchStrategy[str]:
    return st.text("0123456789", min_size=size, max_size=size)


@given(_digits(15), st.integers(0, 14), st.integers(1, 9))
def test_luhn_finds_every_changed_digit(digits: str, at: int, by: int) -> None:
    whole = next(digits + str(check) for check in range(10) if checksums.luhn(digits + str(check)))
    changed = whole[:at] + str((int(whole[at]) + by) % 10) + whole[at + 1 :]
    assert not checksums.luhn(changed)


@given(_digits(11), st.integers(0, 10), st.integers(1, 9))
def test_verhoeff_finds_every_changed_digit_and_swap(digits: str, at: int, by: int) -> None:
    whole = next(
        digits + str(check) for check in range(10) if checksums.verhoeff(digits + str(check))
    )
    changed = whole[:at] + str((int(whole[at]) + by) % 10) + whole[at + 1 :]
    assert not checksums.verhoeff(changed)
    if whole[at] != whole[at + 1]:
        swapped = whole[:at] + whole[at + 1] + whole[at] + whole[at + 2 :]
        assert not checksums.verhoeff(swapped)


PLACES = st.builds(
    lambda start, size, score: PersonalSpan(KINDS["email"], "email", start, start + size, "x@1", score),
    st.integers(0, 60), st.integers(1, 20), st.sampled_from([0.5, 0.7, 1.0]),
)  # fmt: skip


@given(st.lists(PLACES, max_size=30))
def test_the_surer_place_wins(places: list[PersonalSpan]) -> None:
    kept = apart(places)
    assert all(a.end <= b.start for a, b in itertools.pairwise(kept))
    for one in places:
        if one not in kept:
            assert any(
                k.start < one.end and one.start < k.end and k.score >= one.score for k in kept
            )


@given(TEXT)
def test_letters_read_one_for_one_are_read_as_where_one_goes(text: str) -> None:
    whole, shorter = read(text), read(f"{text}\u200b")
    assert whole.plain == shorter.plain
    for place in range(len(whole.plain)):
        assert whole.back(place, place + 1) == shorter.back(place, place + 1)


PARTS = (
    "Lindenstra\u00dfe",
    "Koskela",
    "lia",
    "str.",
    "STR.",
    "12",
    "4a",
    "Alter",
    " ",
    ".",
    ",",
    "\u0661",
    "\n",
)


@given(st.lists(st.sampled_from(PARTS), max_size=10), st.sampled_from(["", " "]))
def test_ways_grown_together_are_looked_for_wherever_one_may_be(parts: list[str], gap: str) -> None:
    text = gap.join(parts)
    found = list(contact.street_addresses(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contact, "_may_be_compound", lambda _: True)
        assert list(contact.street_addresses(text)) == found


@pytest.mark.parametrize(
    ("name", "number", "valid"),
    [
        ("luhn", "4111111111111111", True),
        ("luhn", "4111111111111112", False),
        ("iban", "GB82WEST12345698765432", True),
        ("iban", "GB82WEST12345698765433", False),
        ("verhoeff", "2363", True),
        ("verhoeff", "2364", False),
        ("nhs", "9434765919", True),
        ("nhs", "9434765918", False),
        ("german_tax", "86095742719", True),
        ("german_tax", "86095742718", False),
        ("spanish", "12345678Z", True),
        ("spanish", "X1234567L", True),
        ("spanish", "12345678A", False),
        ("italian", "RSSMRA85T10A562S", True),
        ("italian", "RSSMRA85T10A562T", False),
        ("french", "255081416802538", True),
        ("french", "255081416802539", False),
        ("australian_tax", "123456782", True),
        ("australian_tax", "123456783", False),
        ("australian_business", "51824753556", True),
        ("australian_business", "51824753557", False),
        ("polish", "44051401359", True),
        ("polish", "44051401358", False),
        ("dutch", "111222333", True),
        ("dutch", "111222334", False),
        ("brazilian", "11144477735", True),
        ("brazilian", "11144477736", False),
        ("chinese", "11010519491231002X", True),
        ("chinese", "110105194912310021", False),
        ("finnish", "131052-308T", True),
        ("finnish", "131052-308U", False),
        ("swiss", "7569217076985", True),
        ("swiss", "7569217076986", False),
        ("american_routing", "021000021", True),
        ("american_routing", "021000022", False),
        ("base58check", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", True),
        ("bech32", "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4", True),
    ],
)
def test_check_digits(name: str, number: str, valid: bool) -> None:
    assert getattr(checksums, name)(number) is valid

"""Quantities: what is written differently and means the same is the same."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.language import numerals
from crp_integrations.language.measures import to_base
from crp_integrations.language.quantities import agree, quantities


def one(text: str):
    found = quantities(text)
    assert len(found) == 1, (text, found)
    return found[0]


VECTORS = [
    ("4,200,000", "4200000", "number", ""),
    ("4.2 million", "4200000", "number", ""),
    ("4 200 000", "4200000", "number", ""),
    ("4.2M users", "4200000", "number", ""),
    ("two and a half million", "2500000", "number", ""),
    ("half a million", "500000", "number", ""),
    ("twenty-one people", "21", "number", ""),
    ("two hundred and five thousand", "205000", "number", ""),
    ("a dozen eggs", "12", "number", ""),
    ("12,34,567", "1234567", "number", ""),
    ("1.234.567,89", "1234567.89", "number", ""),
    ("3 crore", "30000000", "number", ""),
    ("$4.2M", "4200000", "money", "USD"),
    ("USD 4.2 million", "4200000", "money", "USD"),
    ("4.2 million dollars", "4200000", "money", "USD"),
    ("€5bn", "5000000000", "money", "EUR"),
    ("£3.50", "3.50", "money", "GBP"),
    ("¥100", "100", "money", "JPY"),
    ("50 cents", "0.5", "money", "USD"),
    ("15%", "15", "percent", "%"),
    ("15 percent", "15", "percent", "%"),
    ("fifteen per cent", "15", "percent", "%"),
    ("half of them", "50", "percent", "%"),
    ("3 percentage points", "3", "percent", "pp"),
    ("25 basis points", "0.25", "percent", "pp"),
    ("5 km", "5", "measure", "km"),
    ("a 15-year term", "15", "measure", "y"),
    ("2½ kg", "2.5", "measure", "kg"),
    ("1 1/2 hours", "1.5", "measure", "h"),
    ("30 °C", "30", "measure", "°C"),
    ("twice", "2", "measure", "times"),
    ("10:30", "630", "measure", "clock"),
    ("5 p.m.", "1020", "measure", "clock"),
    ("the 3rd", "3", "ordinal", ""),
    ("the third quarter", "3", "ordinal", ""),
    ("3×10^6", "3000000", "number", ""),
    ("-5 %", "-5", "percent", "%"),
    ("４２", "42", "number", ""),
    ("4\u200b2", "42", "number", ""),
    ("4,000 tokens", "4000", "number", ""),
    ("Two x-linked cases", "2", "number", ""),
    ("three us states", "3", "number", ""),
    ("2.5 t", "2.5", "measure", "t"),
    ("5 t-shirts", "5", "number", ""),
    ("10 T cells", "10", "number", ""),
    ("about 7  inches", "7", "measure", "in"),
    ("7\r\ninches", "7", "measure", "in"),
]


@pytest.mark.parametrize(("text", "value", "kind", "unit"), VECTORS)
def test_vectors(text, value, kind, unit):
    found = one(text)
    assert (found.value, found.kind, found.unit) == (Decimal(value), kind, unit)
    assert text[found.start : found.end] == found.text


@pytest.mark.parametrize(
    ("text", "low", "high", "unit"),
    [
        ("5-10%", 5, 10, "%"),
        ("between 5 and 10 percent", 5, 10, "%"),
        ("from 3 to 5 days", 3, 5, "d"),
        ("$5-10 million", 5_000_000, 10_000_000, "USD"),
        ("5–10", 5, 10, ""),
    ],
)
def test_intervals(text, low, high, unit):
    found = one(text)
    assert (found.low, found.high, found.unit) == (low, high, unit)


def test_a_movement_is_two_points():
    assert [q.value for q in quantities("It rose from 3% to 5%.")] == [3, 5]


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("about 5 km", "about"),
        ("nearly 300", "most"),
        ("at least 10", "least"),
        ("10+ years", "least"),
        ("5 or fewer", "most"),
        ("up to 9", "most"),
        ("~7", "about"),
        ("exactly 7", ""),
    ],
)
def test_hedges(text, bound):
    found = one(text)
    assert found.bound == bound
    assert found.hedged == bool(bound)


@pytest.mark.parametrize(
    "text",
    [
        "12 March 2024",
        "2024-03-12",
        "in 2024",
        "GPT-4",
        "ISO 27001",
        "Section 3.2",
        "v1.2.3",
        "CVE-2024-1234",
        "as said [1]",
        "1. Do this",
        "no one knows",
        "one of them",
        "first, we see",
    ],
)
def test_what_is_no_quantity(text):
    assert quantities(text) == ()


@pytest.mark.parametrize(
    ("claim", "source", "same"),
    [
        ("4.2 million", "4,200,000", True),
        ("$4.2M", "USD 4,200,000", True),
        ("$4.8M", "$4.2M", False),
        ("€5", "$5", False),
        ("5 km", "5,000 m", True),
        ("5 km", "5 miles", False),
        ("15%", "50%", False),
        ("3%", "3 percentage points", False),
        ("at least 5", "at most 5", False),
        ("half of users", "50% of users", True),
        ("5 p.m.", "17:00", True),
        ("90 minutes", "1.5 hours", True),
        ("3rd", "3", False),
    ],
)
def test_agreement(claim, source, same):
    assert agree(one(claim), one(source)) is same


@given(st.integers(1, 10**12))
def test_thousands_separators_change_nothing(number):
    assert one(f"it has {number:,} parts").value == number


@given(st.integers(11, 99_999), st.sampled_from([("thousand", 3), ("million", 6), ("billion", 9)]))
def test_scales_round_trip(tenths, scale):
    word, power = scale
    value = Decimal(tenths) / 10
    assert one(f"{value} {word} parts").value == value * 10**power


@settings(max_examples=150)
@given(
    st.text(
        alphabet=st.one_of(st.characters(), st.sampled_from("0123456789.,$%- \n½²kmM")), max_size=80
    )
)
def test_any_text_is_read_with_exact_offsets(text):
    place = 0
    for found in quantities(text):
        assert place <= found.start < found.end <= len(text)
        assert text[found.start : found.end] == found.text
        assert found.low <= found.value <= found.high
        place = found.end


def test_conversion_to_base():
    assert to_base(Decimal(2), "km") == (Decimal(2000), "length")
    assert to_base(Decimal(212), "°F")[0].quantize(Decimal(1)) == 100
    assert to_base(Decimal(5), "tokens") == (Decimal(5), "tokens")


def test_a_pointer_to_a_passage_counts_nothing():
    assert quantities("It says so (see passage 2 and [3, 4]).") == ()


def test_a_pointer_to_several_passages_counts_nothing():
    assert quantities("passages 1 and 2, Passages 1, 2, and 3 and sources 2-4") == ()


def test_a_point_that_ends_the_sentence_is_no_part_of_a_time():
    assert [found.text for found in quantities("It closes at 6 pm. On Sunday at 5 p.m.")] == [
        "6 pm",
        "5 p.m.",
    ]


def test_columns_that_blanks_part_stay_apart():
    assert [str(found.value) for found in quantities("2019    450    300")] == ["450", "300"]


def test_a_dotless_i_is_read_as_an_i():
    # Patterns without case find such a word, and its list did not have it.
    found = quantities("the f\u0131rst of 5 m\u0131nutes")
    assert [(str(one.value), one.unit) for one in found] == [("1", ""), ("5", "min")]


@pytest.mark.parametrize("separator", [" ", ",", ".", "'"])
def test_a_list_of_figures_is_not_read_again_from_each_of_them(separator: str) -> None:
    text = separator.join(["123"] * 2_000)
    matches = [
        numerals._DIGITS.match(text, start.start()) for start in numerals.START.finditer(text)
    ]
    assert max(len(match.group()) for match in matches if match) < 2 * numerals._LONGEST

"""Dates: one date in all its spellings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.language.dates import compatible, dates, gives


def one(text: str):
    found = dates(text)
    assert len(found) == 1, (text, found)
    return found[0]


@pytest.mark.parametrize(
    "text",
    [
        "2024-03-12",
        "12 March 2024",
        "March 12, 2024",
        "12th of March 2024",
        "12-Mar-2024",
        "Mar. 12, 2024",
        "2024/03/12",
        "12.03.2024",
        "1\u200b2 March ２０２４",
        "2024-03-12T10:30:00Z",
    ],
)
def test_spellings_of_one_day(text):
    found = one(f"It began on {text}.")
    assert (found.year, found.month, found.day) == (2024, 3, 12)
    assert compatible(found, one("2024-03-12"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("March 2024", (2024, 3, None)),
        ("in 2024", (2024, None, None)),
        ("12 March", (None, 3, 12)),
        ("2024-03", (2024, 3, None)),
        ("since 1850", (1850, None, None)),
        ("the 1990s", (1990, None, None)),
    ],
)
def test_what_is_left_open_stays_open(text, expected):
    found = one(text)
    assert (found.year, found.month, found.day) == expected


def test_both_readings_of_an_ambiguous_date_are_kept():
    found = one("03/12/2024")
    assert compatible(found, one("3 December 2024"))
    assert compatible(found, one("March 12, 2024"))
    assert not compatible(found, one("3 November 2024"))
    assert one("13/12/2024").swapped is None


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("12 March 2024", "March 2024", True),
        ("March 2024", "in 2023", False),
        ("12 March 2024", "13 March 2024", False),
        ("in 2024", "12 March", False),
    ],
)
def test_compatible(a, b, same):
    assert compatible(one(a), one(b)) is same
    assert compatible(one(b), one(a)) is same


def test_a_source_gives_no_more_than_it_says():
    assert gives(one("12 March 2024"), one("in 2024"))
    assert not gives(one("in 2024"), one("12 March 2024"))


@pytest.mark.parametrize(
    "text",
    [
        "2000 people came",
        "it has 1200 users",
        "you may 5 times",
        "CVE-2024-1234",
        "$2024",
        "Regulation (EU) 2016/679",
        "99/99/2024",
    ],
)
def test_what_is_no_date(text):
    assert dates(text) == ()


def test_a_month_without_its_middle_letter_is_none():
    assert [(d.year, d.month) for d in dates("In Sepember 2024 or May 2025.")] == [
        (2024, None),
        (2025, 5),
    ]


def test_ranges_are_two_dates():
    assert [(d.month, d.day) for d in dates("12-14 March 2024")] == [(3, 12), (3, 14)]
    assert [d.year for d in dates("2019–2020")] == [2019, 2020]


@given(st.dates(), st.sampled_from(["%-d %B %Y", "%B %-d, %Y", "%Y-%m-%d", "%-d %b %Y"]))
def test_written_days_are_read_back(day, shape):
    if day.year < 1000 or day.year > 2199:
        day = day.replace(year=2004)
    found = one(day.strftime(shape))
    assert (found.year, found.month, found.day) == (day.year, day.month, day.day)


@given(
    st.text(
        alphabet=st.one_of(st.characters(), st.sampled_from("0123456789-/. MarchMay,")), max_size=60
    )
)
def test_offsets_are_exact_on_any_text(text):
    for found in dates(text):
        assert text[found.start : found.end] == found.text


def test_the_month_before_a_range_belongs_to_its_first_day():
    assert [found.text for found in dates("on Oct. 20-21, 2023")] == ["Oct. 20", "21, 2023"]
    assert [found.text for found in dates("on 20-21 October 2023")] == ["20", "21 October 2023"]

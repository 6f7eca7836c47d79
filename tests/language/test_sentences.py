"""Sentences: every character once, in order, in linear work."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.language.text import split_sentences

PIECES = st.lists(
    st.sampled_from(
        [
            ". ",
            "! ",
            "? ",
            "\n",
            "\n\n",
            "- ",
            "1. ",
            "| a | b |",
            "```",
            "# ",
            "Dr.",
            "U.S. ",
            "e.g. ",
            "Acme ",
            "the ",
            "3.5",
            " ",
            "\t",
            "…",
            '"',
            "(",
            ")",
            "**",
            "。",
            "\u200b",
            "\r\n",
            "\x85",
            "\u2028",
        ]
    ),
    max_size=40,
).map("".join)


def split(text: str) -> list[str]:
    return [span.of(text) for span in split_sentences(text)]


@settings(max_examples=150)
@given(st.one_of(st.text(max_size=300), PIECES))
def test_spans_hold_every_character_once_in_order(text):
    spans = split_sentences(text)
    covered, place = [], 0
    for span in spans:
        assert place <= span.start < span.end <= len(text)
        assert not text[place : span.start].strip()
        assert span.of(text) == span.of(text).strip()
        covered.append(span.of(text))
        place = span.end
    assert not text[place:].strip()


@settings(max_examples=80)
@given(PIECES)
def test_a_sentence_of_plain_words_is_not_split_again(text):
    for sentence in split(f"The cat sat here. {text}")[:1]:
        assert split(sentence) == [sentence]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dr. Smith paid $3.50. He left.", ["Dr. Smith paid $3.50.", "He left."]),
        (
            "He lives in the U.S. The U.S. Army left.",
            ["He lives in the U.S.", "The U.S. Army left."],
        ),
        (
            "J. K. Rowling wrote it. See Fig. 3 and No. 5.",
            ["J. K. Rowling wrote it.", "See Fig. 3 and No. 5."],
        ),
        (
            'He said "Really?" and left. "One." "Two."',
            ['He said "Really?" and left.', '"One."', '"Two."'],
        ),
        ("Yahoo! is a firm. It waits… and so.", ["Yahoo! is a firm.", "It waits… and so."]),
        ("See Section 7.4. It is e.g. this.", ["See Section 7.4.", "It is e.g. this."]),
        ("It was in 2024. Then it stopped.", ["It was in 2024.", "Then it stopped."]),
        ("It works.The end", ["It works.", "The end"]),
        ("你好。世界！", ["你好。", "世界！"]),
    ],
)
def test_marks_and_abbreviations(text, expected):
    assert split(text) == expected


def test_blocks_are_units_of_their_own():
    text = "# Title\n- one\n- two goes\n  on here\n1. Do it. Then that.\n\n| a | b |\n|---|---|\n```py\nx = 1. Foo\ny\n```\nEnd."
    assert split(text) == [
        "# Title",
        "- one",
        "- two goes\n  on here",
        "1. Do it.",
        "Then that.",
        "| a | b |",
        "|---|---|",
        "```py",
        "x = 1. Foo",
        "y",
        "```",
        "End.",
    ]


def test_wrapped_lines_stay_together_and_short_lines_do_not():
    wrapped = "This paragraph was wrapped by an editor at some width and\ngoes on until its end."
    assert split(wrapped) == [wrapped]
    assert split("Revenue: 5\nCost: 6") == ["Revenue: 5", "Cost: 6"]


def calls(text: str) -> int:
    """Calls that the splitter makes, of functions of its own and of the library alike."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        split_sentences(text)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "unit", [". ", ".", "a. B ", "?!)", "\n- ", "| ", "e.g. ", "x ", '"', "1. "]
)
def test_work_grows_no_faster_than_the_text(unit):
    small, large = calls(unit * 2_000), calls(unit * 16_000)
    assert large <= 8.5 * small + 200


def test_a_megabyte_of_one_mark_is_one_unit():
    assert len(split_sentences("." * 1_000_000)) == 1
    assert len(split_sentences("x" + " " * 1_000_000 + "y")) == 1


def test_source_numbers_belong_to_the_sentence_before_them():
    text = 'Quoted from the context:\n\n"Acme has 40 people." [1]\n\nIt grew. [2, 3] Then it fell.'
    assert [span.of(text) for span in split_sentences(text)] == [
        "Quoted from the context:",
        '"Acme has 40 people." [1]',
        "It grew. [2, 3]",
        "Then it fell.",
    ]


@pytest.mark.parametrize("month", ["März", "Mai", "August", "Dezember"])
def test_a_german_date_is_not_cut_behind_its_day(month: str) -> None:
    text = f"Die Brücke wurde am 14. {month} 2019 eröffnet. Sie ist rot."
    assert [span.of(text) for span in split_sentences(text)] == [
        f"Die Brücke wurde am 14. {month} 2019 eröffnet.",
        "Sie ist rot.",
    ]

"""Claims: one assertion each, in order, and none escapes by its kind."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.language.claims import segment, specificity
from crp_integrations.vocabulary import ClaimType


def texts(text: str) -> list[str]:
    return [text[claim.start : claim.end] for claim in segment(text)]


def kinds(text: str) -> list[str]:
    return [claim.claim_type.value for claim in segment(text)]


@pytest.mark.requirement("005-3.4-1")
def test_a_compound_sentence_is_two_claims():
    text = "X is true and Y happened in 2024."
    claims = segment(text)
    assert texts(text) == ["X is true", "Y happened in 2024."]
    assert [claim.sentence_index for claim in claims] == [0, 0]


@pytest.mark.requirement("005-3.1-1")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Revenue rose 5%; costs fell 3%, but profit stayed flat while the market shrank.",
            ["Revenue rose 5%", "costs fell 3%", "profit stayed flat", "while the market shrank."],
        ),
        (
            "The firm earned $4M and hired 30 people.",
            ["The firm earned $4M", "The firm hired 30 people."],
        ),
        (
            "The score, which was set by the board, is fixed.",
            ["The score", "The score which was set by the board, is fixed."],
        ),
        (
            "The Act entered into force in 2024 and applies to providers.",
            ["The Act entered into force in 2024", "The Act applies to providers."],
        ),
        (
            "Johnson and Johnson reported profits in Europe.",
            ["Johnson and Johnson reported profits in Europe."],
        ),
        ("It costs between 5 and 10 dollars.", ["It costs between 5 and 10 dollars."]),
        ("The firm sells cars and trucks.", ["The firm sells cars and trucks."]),
        ("The drug is safe and effective.", ["The drug is safe and effective."]),
        (
            "If sales rise and costs fall, profit grows.",
            ["If sales rise and costs fall, profit grows."],
        ),
        ('She said "it works and it lasts" today.', ['She said "it works and it lasts" today.']),
    ],
)
def test_each_claim_can_be_read_alone(text, expected):
    read = [claim.read(text) for claim in segment(text)]
    if text.startswith("The score"):
        assert "which was set by the board" in " ".join(read)
    else:
        assert read == expected


def test_lists_tables_and_code():
    text = "1. Click the button.\n2. Sales rose.\n\n| Year | Revenue |\n|---|---|\n| 2024 | $4M |\n\n```py\nx = 1\nprint(x)\n```\nDone by Acme."
    assert texts(text) == [
        "Click the button.",
        "Sales rose.",
        "| Year | Revenue |",
        "| 2024 | $4M |",
        "x = 1",
        "print(x)",
        "Done by Acme.",
    ]
    assert kinds(text) == [
        "PROCEDURAL", "FACTUAL", "META", "FACTUAL", "PROCEDURAL", "PROCEDURAL", "FACTUAL"
    ]  # fmt: skip


@pytest.mark.requirement("005-3.3-1")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("The policy applies to all firms.", "FACTUAL"),
        ("Revenue was $4.2M.", "FACTUAL"),
        ("Note that the policy applies to all.", "FACTUAL"),
        ("Based on the context, the policy applies to all.", "FACTUAL"),
        ("Results are in.", "FACTUAL"),
        ("I think this is a nice idea.", "OPINION"),
        ("Arguably this went well.", "OPINION"),
        ("You should consider it.", "OPINION"),
        ("Click the button and wait.", "PROCEDURAL"),
        ("To install it, run the script.", "PROCEDURAL"),
        ("As mentioned above.", "META"),
        ("Here is a summary:", "META"),
        ("I hope this helps!", "META"),
        ("The context does not say who founded Acme.", "META"),
        ("What else would you like?", "META"),
    ],
)
def test_kinds(text, kind):
    assert kinds(text) == [kind]
    assert ClaimType(kind)


@pytest.mark.requirement("005-3.3-1")
@pytest.mark.parametrize(
    "opening",
    [
        "As mentioned above, ",
        "I think ",
        "In my opinion, ",
        "Here is the fact: ",
        "Arguably, ",
        "Sure! ",
        "Note: ",
        "I hope you see that ",
        "Based on the context, ",
        "The context does not mention it, ",
        "In summary, ",
    ],
)
@pytest.mark.parametrize(
    "lie", ["Bob Miller earned $5 million in 2020.", "Acme Corp was founded by Jane Doe."]
)
def test_no_claim_with_a_name_or_figure_escapes_by_its_opening(opening, lie):
    text = opening + lie
    assert any(
        claim.claim_type is ClaimType.FACTUAL and claim.end == len(text) for claim in segment(text)
    )


def test_specificity():
    assert specificity("This is important for many kinds of people everywhere.") < 0.30
    assert specificity("Acme Corp earned $5 million.") >= 0.60
    assert 0.30 <= specificity("It was sold in 2024.") <= 1.0
    assert specificity("") >= 0.0


PIECES = st.lists(
    st.sampled_from(
        [
            "Acme rose ",
            "the firm fell ",
            "and ",
            "but ",
            ", which was ",
            "; ",
            "because ",
            ". ",
            "\n",
            "- ",
            "1. ",
            "| a | 5 |\n",
            "```\n",
            "# ",
            "5% ",
            "in 2024 ",
            '"',
            "(",
            "if ",
            "“",
            "\u200b",
            " – ",
            "? ",
            "he said ",
        ]
    ),
    max_size=30,
).map("".join)
JOINING = {"and", "but", "yet", "then", "however", "moreover", "therefore", "also"}


@settings(max_examples=150)
@given(st.one_of(st.text(max_size=150), PIECES))
def test_claims_are_in_order_and_lose_only_joints(text):
    place = 0
    for claim in segment(text):
        assert place <= claim.start < claim.end <= len(text)
        assert 0.0 <= claim.specificity <= 1.0
        assert claim.parts[-1].start == claim.start
        assert claim.parts[-1].end == claim.end
        between = text[place : claim.start].lower()
        letters = "".join(c if c.isalpha() else " " for c in between).split()
        assert all(word in JOINING for word in letters)
        place = claim.end
    assert segment(text) == segment(text)


def test_work_on_a_long_sentence_without_end_grows_with_it():
    long = "the firm rose and the cost fell, which was so, " * 700
    claims = segment(long)
    assert claims[-1].end == len(long.rstrip())
    assert len(claims) > 700


def test_an_announcement_is_meta_and_its_lie_is_not():
    assert kinds("Here are the 3 main points:") == ["META"]
    assert kinds("Here is what Acme earned in 2020: $5 million.") == ["FACTUAL"]


def test_the_frame_of_a_quoting_answer_makes_no_claims():
    text = 'Quoted from the context:\n\n"Acme has 40 people." [1]\n\n"It was founded in 1999." [2]'
    claims = segment(text)
    assert [claim.claim_type.value for claim in claims] == ["META", "FACTUAL", "FACTUAL"]


def test_four_and_a_half_is_one_number():
    text = (
        "The cafe has four and a half stars out of five on Google, with most reviews praising it."
    )
    assert texts(text) == [text]

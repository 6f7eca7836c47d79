"""Negation: flips are seen, paraphrases are not taken for flips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.language.negation import negations, polarity_differs

FLIPS = [
    ("The policy does not apply to small firms.", "The policy applies to small firms."),
    ("No employee may work on Sunday.", "Employees may work on Sunday."),
    ("It is unlawful to enter.", "It is lawful to enter."),
    ("Revenue rose by 5%.", "Revenue fell by 5%."),
    ("Sales rose while costs fell.", "Sales fell while costs rose."),
    ("He failed to file the form.", "He filed the form."),
    ("It no longer works.", "It works."),
    ("Neither firm paid tax.", "Both firms paid tax."),
    ("The vaccine is non-toxic.", "The vaccine is toxic."),
    ("It works with a key.", "It works without a key."),
    ("None of the firms comply.", "All of the firms comply."),
    ("The court approved the merger.", "The court rejected the merger."),
    ("Apply before 5 May.", "Apply after 5 May."),
    ("The board did not find that the firm erred.", "The board found that the firm erred."),
    ("The board found that the firm had not erred.", "The board found that the firm had erred."),
    ("It isn’t true.", "It is true."),
]
SAME = [
    (
        "Small firms are exempt: the policy does not apply to them.",
        "The policy does not apply to small firms.",
    ),
    ("It is not unlawful.", "It is lawful."),
    ("It is not lawful.", "It is unlawful."),
    ("Sales rose while costs fell.", "Costs fell while sales rose."),
    ("Not only cars but trucks were sold.", "Cars and trucks were sold."),
    ("It does not expire.", "It doesn't expire."),
    ("It never expires.", "It does not expire."),
    ("See No. 5 for rates.", "See number 5 for rates."),
]


@pytest.mark.parametrize(("left", "right"), FLIPS)
def test_flips_are_seen_both_ways(left, right):
    assert polarity_differs(left, right)
    assert polarity_differs(right, left)


@pytest.mark.parametrize(("left", "right"), SAME)
def test_the_same_said_otherwise_is_no_flip(left, right):
    assert not polarity_differs(left, right)
    assert not polarity_differs(right, left)


@given(st.text(max_size=80), st.text(max_size=80))
def test_it_is_symmetric_and_a_text_agrees_with_itself(left, right):
    assert polarity_differs(left, right) == polarity_differs(right, left)
    assert not polarity_differs(left, left)


@given(
    st.lists(
        st.sampled_from(
            "the policy does not apply no firm unlawful without rose fell , . never".split()
        ),
        max_size=14,
    )
)
def test_a_sentence_agrees_with_itself(parts):
    text = " ".join(parts)
    assert not polarity_differs(text, text)


def test_cues_have_exact_offsets():
    text = "It does\u200b not apply, and no longer works without a key."
    assert [span.of(text) for span in negations(text)] == ["not", "no longer", "without"]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Gentleman, he was not.", "Gentleman, he was."),
        ("It is not only the fourth.", "It is only the fourth."),
        ("They can't.", "They can."),
    ],
)
def test_a_denial_alone_is_seen(left, right):
    assert polarity_differs(left, right)

"""Every character of an answer lies in a claim or in a named kind of non-claim."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crp_integrations.language.claim_kinds import asserts_nothing
from crp_integrations.language.claims import segment
from crp_integrations.language.coverage import json_leaves, non_claims, reasoning_spans
from crp_integrations.language.text import split_sentences

PIECES = st.lists(
    st.sampled_from(
        "Acme rose|and |but |; |. |\n|\n\n|- |1. |2. |34. |٣٤.|٣٤. |a) |iv. |b. || a | 5 |\n|| 1 | x |\n"
        "||---|---|\n|```\n|```python\n|```Acme earned 5\n|~~~\n|# |> |5% |½|² |\u2028|\u2029word|\x85|\x0c"
        '|\u200b|\u202e|\U000e0041|\ufe0f|<think>|</think>|<reasoning>| (|"|–|…|？|十二年|\\|🎉|{|}|[|]|"a": 1'
        "|\t|\r\n|ａｎｄ |12|x|Thought: |\nThought: |\nAction: |\nAction Input: |\nAnswer: |\nFinal Answer: ".replace(
            "||", "|\x01"
        ).split("|")
    ).map(lambda piece: piece.replace("\x01", "|")),
    max_size=25,
).map("".join)


def _partition(text: str) -> None:
    claims = segment(text)
    others = non_claims(text, claims)
    sentences = split_sentences(text)
    assert all(0 <= one.sentence_index < len(sentences) for one in claims)
    place = 0
    for start, end in sorted((one.start, one.end) for one in (*claims, *others)):
        assert start == place < end
        place = end
    assert place == len(text)
    assert not [one for one in others if one.kind == "unread"]
    for one in others:
        if one.kind not in ("list marker", "fence info string", "conjunction", "reasoning"):
            assert not any(character.isalnum() for character in text[one.start : one.end])


@given(st.one_of(st.text(max_size=120), PIECES))
@example("٣٤.")
@example("34. The fee is high.")
@example("a\u2028b")
@example("```Acme earned 5 million\nx\n```")
def test_claims_and_non_claims_partition_a_text(text: str) -> None:
    _partition(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON, st.sampled_from([None, 2]), st.booleans())
def test_a_structured_answer_is_cut_by_leaf(
    value: object, indent: int | None, fenced: bool
) -> None:
    import json

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    text = f"```json\n{text}\n```" if fenced else text
    _partition(text)
    leaves = json_leaves(text)
    assert (leaves is None) == (not isinstance(value, dict | list))
    for leaf in leaves or ():
        found = value
        for step in leaf.path:
            found = found[step]  # type: ignore[index]
        assert found == leaf.value
        assert json.loads(leaf.value_span.of(text)) == leaf.value


def test_a_leaf_stands_with_its_keys() -> None:
    text = '{"order": {"id": 7, "items": [{"sku": "A1"}, {"sku": "B2"}]}, "note": "Paid. Sent."}'
    assert [one.read(text) for one in segment(text)] == [
        '"order": {"id": 7',
        '"order" "items": [{"sku": "A1"',
        '"order" "items" "sku": "B2"',
        '"note": "Paid.',
        '"note" Sent."',
    ]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>It is 5.</think>It is 6.", "It is 6."),
        # LangChain's and LlamaIndex's agents; the prompt of the first ends in the first label.
        (
            "Thought: It may be 5.\nAction: look\nAction Input: x\nObservation: 5\nThought: 6?\nFinal Answer: It is 6.",
            "It is 6.",
        ),
        (
            "I should look.\nAction: look\nAction Input: {}\nObservation: 5\nFinal Answer: It is 6.",
            "It is 6.",
        ),
        (" I now know the final answer.\nFinal Answer: It is 6.", "It is 6."),
        (
            "Thought: I can answer.\nAnswer: It is 6.\n\nObservation: it was 5.",
            "It is 6.\n\nObservation: it was 5.",
        ),
        ("**Thought:** It is 5.\n**Final Answer:** It is 6.\nThought: or 7?", "It is 6."),
        ("<think>It is 5.</think>\nThought: It is 4.\nAnswer: It is 6.", "It is 6."),
        ("Thought: It is 5.", "Thought: It is 5."),
        ("Observation: It is 5.\nAnswer: It is 6.", "Observation: It is 5.\nAnswer: It is 6."),
        ("The sum is 5.\nFinal Answer: It is 6.", "The sum is 5.\nFinal Answer: It is 6."),
        ("Action: Ann sends it.\nAnswer: It is 6.", "Action: Ann sends it.\nAnswer: It is 6."),
        (
            "<thinking>\nIs it?\n</thinking>\n<scratchpad>5</scratchpad>\nYes, it is 6.",
            "Yes, it is 6.",
        ),
        ("It is 6.\n<reasoning>because", "It is 6."),
        ("<THINK>a <think> b </think> c</THINK> It is 6.", "It is 6."),
        ("<think>\n```py\nx = 1\n</think>\nIt is 6.", "It is 6."),
    ],
)
def test_reasoning_is_no_answer(text: str, answer: str) -> None:
    left = text
    for span in reversed(reasoning_spans(text)):
        left = left[: span.start] + left[span.end :]
    assert left.strip() == answer
    claims = " ".join(text[one.start : one.end] for one in segment(text))
    assert claims.split() == answer.split()


@pytest.mark.parametrize(
    "text",
    ["Write `<think>` in front of it.", "Use <think> for it.", "```\n<think>\n```\nIt is 6."],
)
def test_an_answer_about_such_tags_stays_one(text: str) -> None:
    assert reasoning_spans(text) == ()


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("1. A is b.\n2. C is d.", "A is b."),
        ("34. A is b.", "34. A is b."),
        ("7) A is b", "7) A is b"),
    ],
)
def test_a_list_number_is_a_marker_where_it_counts_up(text: str, first: str) -> None:
    claims = segment(text)
    assert text[claims[0].start : claims[0].end] == first


NOTHING = """\
I don't know.|The context does not say what Acme paid in 2020.|Hello!|Sure!|In summary:
I'm sorry, but the context does not contain this information.|Here are the steps:|Steps:
Unfortunately, the provided documents do not mention the refund policy of Acme.
Let me know if you have any other questions!|Would you like me to explain further?
What is your order number?|Der Kontext enthält keine Angaben zum Preis.|Das weiß ich leider nicht.
Dazu liegen mir keine Informationen vor.|Ich kann diese Frage nicht beantworten.|No lo sé.
Le contexte ne précise pas le prix.|Je ne sais pas.|El contexto no menciona el precio.
There is no information in the context about the CEO.|The answer is not stated in the context."""
CLAIMS = """\
You should pay.|I think it is nice.|The context does not state the price, but it is 5 euros.
The fee is waived.|Yes.|No.|Here are the 3 steps:|Did you know it is free?|It is free, right?
The documents do not mention fees because entry is free.|Run the installer.|Acme Corp is liable:
The policy does not cover floods.|Der Kontext enthält keine Angaben, aber der Preis ist hoch.
Thank you for buying from Acme in 2020.|The text is clear.|Is it Acme that pays 5 euros?
Le contexte ne dit rien, mais le prix est bas."""


@pytest.mark.parametrize("text", NOTHING.replace("\n", "|").split("|"))
def test_closed_lists_assert_nothing(text: str) -> None:
    assert asserts_nothing(text)


@pytest.mark.parametrize("text", CLAIMS.replace("\n", "|").split("|"))
def test_anything_else_is_a_claim(text: str) -> None:
    assert not asserts_nothing(text)


def test_a_heading_asserts_nothing_without_verb_figure_and_colon() -> None:
    words = ["Installation", "Prices rose", "Winner: Acme", "Costs in 2024"]
    assert [asserts_nothing(one, heading=True) for one in words] == [True, False, False, False]

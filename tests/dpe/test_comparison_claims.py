"""An exact comparison: supported word for word, contradicted by one value, or silent."""

from __future__ import annotations

import pytest

from crp_integrations.vocabulary import ErrorKind
from tests.dpe.comparing import compared, statuses

READ, WRONG, UNREAD, NONE = "SUPPORTED", "CONTRADICTED", "NOT_CHECKED", "NOT_CHECKABLE"
NORTHFIELD = "In 2023 Northfield Energy reported revenue of $4.2 million and employs 310 people."


@pytest.mark.parametrize(
    ("passage", "answer", "status"),
    [
        (NORTHFIELD, "Northfield Energy employs 310 people.", READ),
        (
            "Northfield Energy reported revenue of $4.2 million and employs 310 people.",
            "Northfield Energy reported revenue of $4.2 million.",
            READ,
        ),
        (NORTHFIELD, "Northfield Energy reported revenue of $4.2 million.", UNREAD),
        (
            "The break of the crew lasts five minutes.",
            "The break of the crew lasts 5 minutes.",
            READ,
        ),
        ("The pool of the hotel is heated.", "The pool of the hotel **is heated** [1].", READ),
        (
            "The pool of the hotel is heated.",
            "According to the context, the pool of the hotel is heated.",
            READ,
        ),
        ("Each visit costs on average 40 euros.", "Each visit costs 40 euros.", UNREAD),
        ("The permit is valid for at least 5 years.", "The permit is valid for 5 years.", UNREAD),
        ("The drug may cause drowsiness.", "The drug will cause drowsiness.", UNREAD),
        (
            "If the room is damaged, the deposit is lost and the landlord repairs the room.",
            "The landlord repairs the room.",
            UNREAD,
        ),
        (
            "Essen and Bonn employ 320 and 180 people respectively and Linz employs 40 people.",
            "Linz employs 40 people.",
            UNREAD,
        ),
        (
            "Keller said the plant lost money and the Bonn plant grew by 5%.",
            "The Bonn plant grew by 5%.",
            UNREAD,
        ),
        (
            "Entry to the park is free, but groups pay 5 euros.",
            "Entry to the park is free.",
            UNREAD,
        ),
        ("Does the Team plan include support?", "The Team plan includes support.", UNREAD),
        ("Bayer bought Monsanto.", "Monsanto bought Bayer.", UNREAD),
        ("It employs 310 people.", "It employs 310 people.", UNREAD),
        (
            "Acme makes pumps. It employs 310 people.",
            "Acme makes pumps. It employs 310 people.",
            READ,
        ),
    ],
)
def test_a_claim_is_supported_by_every_word_of_a_clause(
    passage: str, answer: str, status: str
) -> None:
    assert statuses(answer, [passage])[-1] == status


@pytest.mark.parametrize(
    ("passage", "answer", "kind", "error", "words"),
    [
        (NORTHFIELD, "Northfield Energy employs 330 people.", "NUMBER_CHANGED", "NUMBER", "330"),
        ("The dog of Anna weighs 30 kg.", "The dog of Anna weighs 30 pounds.",
         "MAGNITUDE_ALTERED", "UNIT", "30 pounds"),
        ("The pool is heated.", "The pool is not heated.", "NEGATION_FLIP", "NEGATION", "not"),
        ("The price does not include batteries.", "The price includes batteries.",
         "NEGATION_FLIP", "NEGATION", "The price includes batteries."),
        ("The lease starts on 2024-03-05.", "The lease starts on March 6, 2024.",
         "DATE_SHIFTED", "DATE", "March 6, 2024"),
    ],
)  # fmt: skip
def test_one_value_unit_or_negation_contradicts(
    passage: str, answer: str, kind: str, error: str, words: str
) -> None:
    [claim] = compared(answer, [passage])
    assert claim.status.value == WRONG
    assert claim.error is ErrorKind(error)
    assert claim.wrong is not None
    assert answer[slice(*claim.wrong)] == words
    [finding] = claim.findings
    assert (finding.stage, finding.kind) == (3, kind)
    assert [q.text in passage and q.passage == 1 for q in claim.quotations].count(False) == 0


@pytest.mark.parametrize(
    ("passages", "answer", "question"),
    [
        # Another passage says it, too.
        (["Acme employs 310 people.", "Acme employs 330 people."], "Acme employs 330 people.", ""),
        (["Acme employs 310 people in Bonn.", "Today Acme has 330."], "Acme employs 330 people in Bonn.", ""),
        # The question has it.
        (["The crew of Acme has 12 members."], "The crew of Acme has 14 members.", "Acme's 14?"),
        # It follows from what the passages say.
        (["The order at Acme costs 18.90 euros.", "Acme ordered 12 of them."],
         "The order at Acme costs 226.80 euros.", ""),
        # Names and identifying dates may mean another thing.
        (["Mistral raised 5 million euros."], "Meridian raised 5 million euros.", ""),
        (["The 2022 report names 12 sites."], "The 2023 report names 12 sites.", ""),
        (["Acme sold 12 pumps in 2022."], "Acme sold 12 pumps in 2023.", ""),
        (["The meeting of Acme is in room 12."], "The meeting of Acme is in room A.", ""),
        (["Article 12 covers the sale of pumps."], "Article 14 covers the sale of pumps.", ""),
        # Right as people write it.
        (["The total is $4,200,000 for Acme."], "The total is $4.2 million for Acme.", ""),
        (["Acme pays 1.410,00 EUR a month."], "Acme pays 1,410.00 EUR a month.", ""),
        (["The red gate is closed. The east gate is open."], "The east one is open.", ""),
        (["The pool is not only heated."], "The pool is only heated.", ""),
    ],
)  # fmt: skip
def test_what_may_be_right_is_no_finding(passages: list[str], answer: str, question: str) -> None:
    claims = compared(answer, passages, question)
    assert not [finding for claim in claims for finding in claim.findings]


def test_a_passage_that_says_otherwise_leaves_a_claim_unread() -> None:
    passages = ["Acme employs 310 people.", "Acme employs 330 people."]
    assert statuses("Acme employs 310 people.", passages) == [UNREAD]


def test_the_company_of_another_passage_is_another_one() -> None:
    passages = ["Beta was founded in 1990.", "Acme makes pumps. The company employs 310 people."]
    answer = "Beta was founded in 1990. The company employs 310 people."
    assert statuses(answer, passages) == [READ, UNREAD]


def test_talk_is_no_claim_and_hints_stand_beside_unread_claims() -> None:
    answer = "Hello! Anna Keller meets Rolf in Graz at 15:30. Would you like more details?"
    first, claim, last = compared(answer, ["Anna Keller meets Rolf in Linz."])
    assert (first.status.value, last.status.value) == (NONE, NONE)
    assert claim.status.value == UNREAD
    assert [answer[hint.start : hint.end] for hint in claim.hints] == ["Graz", "15:30"]
    assert not claim.findings


def test_names_of_code_keep_their_capitals() -> None:
    assert statuses("The field userName is required.", ["The field username is required."]) == [
        UNREAD
    ]
    assert statuses("```\nimport ssl\n```", ["```\nimport ssl\n```"]) == [UNREAD]


PLAN = "The plan costs 4.20 euros a month and can be cancelled at any time."


@pytest.mark.parametrize(
    ("passage", "answer", "expected"),
    [
        (
            "The plan costs 4.20 euros a month and can be cancelled at any time.",
            "The plan costs 4.20 euros a month and can be cancelled at any time.",
            [READ, READ],
        ),
        (
            "The plan can be cancelled at any time and costs 4.20 euros a month.",
            "The plan costs 4.20 euros a month.",
            [UNREAD],
        ),
        (
            "It costs 4.20 euros a month and can be cancelled at any time.",
            "It costs 4.20 euros a month and can be cancelled at any time.",
            [UNREAD, UNREAD],
        ),
    ],
)
def test_a_sentence_that_stands_there_as_a_whole_brings_along_what_qualifies_it(
    passage: str, answer: str, expected: list[str]
) -> None:
    assert statuses(answer, [passage]) == expected


@pytest.mark.parametrize(
    ("passage", "answer", "expected"),
    [
        (PLAN, "The plan costs 4.20 euros a month.", [READ]),
        (
            PLAN,
            "The plan costs 4.80 euros a month and can be cancelled at any time.",
            [WRONG, READ],
        ),
        (PLAN, "The plan costs 4.80 euros a month, and must be renewed.", [WRONG, UNREAD]),
        (
            "The plan costs 4.20 euros a month.",
            f"{PLAN} Ask us.".replace("4.20", "4.80"),
            [WRONG, UNREAD],
        ),
        (PLAN.replace("time", "time if it is new"), "The plan costs 4.80 euros a month.", [UNREAD]),
        (PLAN, "The plan costs 4.80 euros a month, which can change.", [UNREAD]),
        (
            "The plan can be bought online and costs 4.20 euros.",
            "The plan costs 4.80 euros.",
            [UNREAD],
        ),
    ],
)
def test_a_modal_verb_after_and_leaves_the_clause_before_it_as_it_is(
    passage: str, answer: str, expected: list[str]
) -> None:
    assert statuses(answer, [passage])[: len(expected)] == expected

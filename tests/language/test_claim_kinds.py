"""Talk about the answer: what states nothing of the world, and what only looks as if."""

from __future__ import annotations

import pytest

from crp_integrations.language.claim_kinds import is_greeting, is_request, is_silent, is_talk
from crp_integrations.language.claims import segment

REFUSALS = [
    "I'm sorry",
    "I\u2019m sorry, I don\u2019t know.",
    "I am unable to answer this question.",
    "Unable to answer based on given passages.",
    "Sorry, I can't help with that.",
    "I don't have enough information to answer that.",
    "Not enough information.",
    "It is not stated in the context.",
    "The answer is not in the provided documents.",
    "This information is not provided in the passages.",
    "The question cannot be answered from the given context.",
    "As an AI language model, I cannot answer that.",
    "Your question is out of scope for the documents.",
    "No relevant facts were found.",
    "N/A",
    "**Unknown.**",
    "You're welcome!",
    "Let me know if you have any other questions.",
    "I hope this helps!",
]
CLAIMS = [
    "I'm sorry that Acme went bankrupt.",
    "Let me know what Acme paid to Bruno Keller.",
    "Unknown attackers broke in.",
    "Thanks to Bruno Keller, the pier was opened.",
    "It is not open on Sundays.",
    "The answer is 42.",
    "No facts were found that clear the director of theft.",
    "I cannot answer for the harbour of Lindmouth, which went bankrupt.",
    "The question cannot be answered without the 9,700,000 tonnes.",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals_and_courtesies_are_talk(text: str) -> None:
    assert is_talk(text)
    assert {claim.claim_type.value for claim in segment(text)} <= {"META"}


@pytest.mark.parametrize("text", CLAIMS)
def test_a_claim_is_no_talk_however_it_begins(text: str) -> None:
    assert not is_talk(text)
    assert not is_greeting(text)


def test_requests_are_questions_to_the_one_who_asked() -> None:
    assert is_request("Could you please clarify your question?")
    assert is_request("How can I help you today?")
    assert not is_request("Did you know that the firm was sold?")
    assert not is_request("Do you like football?")
    assert not is_request("Could you clarify? The firm was sold.")


def test_silence_is_of_a_source() -> None:
    assert is_silent("The passages do not say when it opens.")
    assert not is_silent("The director does not say when it opens.")


def test_a_long_row_of_fillers_is_soon_refused() -> None:
    # With a pattern that can be read in two ways this would not come to an end.
    assert not is_talk("Let me know " + "if you have any, " * 14 + "zebra")
    assert not is_talk("Let me know " + "if  you " * 30 + "zebra")

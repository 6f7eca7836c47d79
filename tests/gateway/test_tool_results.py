"""An agent that posts its tools' results gets the verdicts of every other door."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import openai
import pytest

from crp_integrations import examine
from crp_integrations.vocabulary import RiskLevel
from tests.adapters.tool_results import RESULTS, answers, conversation
from tests.gateway.application import BODY, Gateway, key_for, opened, served
from tests.gateway.test_streams import CHAT, STREAM, events
from tests.judges import named
from tests.servers import Double

_, QUESTION, RESULT, RIGHT, CHANGES = next(one for one in RESULTS if one[0] == "prose")
WRONG = RIGHT.replace(*CHANGES[0])
RISK = "CRP-Safety-Hallucination-Risk"


@pytest.fixture
def empty(tmp_path: Path, server: Double) -> Iterator[Gateway]:
    """A gateway whose tenant `empty` has no facts, so that the tool's result alone is evidence."""
    key, kept = key_for("empty")
    with opened(tmp_path, server, also=(kept,)) as gateway:
        gateway.keys["empty"] = key
        yield gateway


def test_ten_kinds_of_results_have_the_verdicts_of_every_other_door(
    empty: Gateway, server: Double
) -> None:
    levels: dict[bool, list[str]] = {True: [], False: []}
    # Every third of them has all kinds and attributions, right and wrong.
    for number, (question, result, said, right) in enumerate(islice(answers(), 0, None, 3)):
        messages = conversation(question, result)
        report = examine(said, [], question, conversation=messages)
        server.text = said
        if number % 2:
            found = events(empty.post(CHAT, {**STREAM, "messages": messages}, "empty").text)
            level = found[-2]["crp"]["headers"][RISK]
        else:
            level = empty.post(CHAT, {**BODY, "messages": messages}, "empty").headers[RISK]
        assert level == report.risk_level, (question, said)
        levels[right].append(level)
    # What comparison alone cannot read is said to be unread, and nothing right is flagged.
    assert set(levels[True]) <= {RiskLevel.LOW, RiskLevel.UNKNOWN}
    assert RiskLevel.LOW not in levels[False]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("said", "withheld"), [(RIGHT, False), (WRONG, True)])
def test_openais_client_makes_an_agent_whose_answers_are_held_against_its_tools(
    tmp_path: Path, server: Double, judge: Double, said: str, withheld: bool, stream: bool
) -> None:
    """Beside facts about other things: the right answer is released, the changed one is a 451."""
    server.answers = lambda seen: said
    policy = {"CRP-Safety-Policy": "halt-on HIGH"}
    reading = {"options": {"judge": named(judge)}}
    with served(tmp_path, server, **reading) as gateway, gateway.openai() as client:
        create = client.chat.completions.with_raw_response.create
        messages = conversation(QUESTION, RESULT)
        given = {**BODY, "messages": messages, "stream": stream, "extra_headers": policy}
        if not withheld:
            assert create(**given).headers[RISK] == "LOW"
            # In a later turn of the same conversation, in a session of its own.
            messages += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": "How was it again?"},
            ]
            assert create(**given).headers[RISK] == "LOW"
            return
        with pytest.raises(openai.APIStatusError) as caught:
            create(**given)
        assert caught.value.status_code == 451
        body = caught.value.response.json()
        assert (body["directive"], body["session_id"]) == (
            "halt-on HIGH",
            caught.value.response.headers["CRP-Context-Session-Id"],
        )
        assert body["value"]
        assert said not in caught.value.response.text

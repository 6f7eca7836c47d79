"""The gateway with a judge: its operator names it, and no caller can."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from crp_integrations.errors import RequestError
from crp_integrations.gateway import KeyFile
from crp_integrations.gateway.admission import new_key
from tests.commands import Here
from tests.doubles import stands
from tests.gateway.application import ASKED, BODY, Gateway, opened
from tests.judges import NAME, asked, both, named
from tests.servers import Double

CHAT = "/v1/chat/completions"
BAD = "Plant 7 was built in 1977."


def report_of(gateway: Gateway, response: httpx.Response) -> dict[str, Any]:
    window = response.json()["crp"]["window_id"]
    found: dict[str, Any] = gateway.get(f"/v1/reports/{window}").json()
    return found


def test_right_and_wrong_answers(judged: Gateway, server: Double, judge: Double) -> None:
    right = judged.ask()
    assert right.headers["crp-safety-hallucination-risk"] == "LOW"
    report = report_of(judged, right)
    assert report["checked_by"] == f"judge {NAME}"
    assert [claim["status"] for claim in report["claims"]] == ["SUPPORTED"]
    server.text = BAD
    wrong = judged.ask()
    assert wrong.status_code == 200
    assert wrong.headers["crp-safety-hallucination-risk"] == "HIGH"
    withheld = judged.ask(**{"CRP-Safety-Policy": "halt-on HIGH"})
    assert withheld.status_code == 451
    assert not stands("1977", withheld.text)
    # A tenant's judge remembers what it said; another tenant's has to be asked.
    calls = len(asked(judge))
    judged.ask("globex")
    assert len(asked(judge)) == calls + 1


def test_a_stream_has_the_verdict_at_its_end(judged: Gateway, server: Double) -> None:
    server.text = BAD
    response = judged.post(CHAT, {**BODY, "stream": True})
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert events.pop() == "[DONE]"
    said = json.loads(events[-1])["crp"]["headers"]
    assert said["CRP-Safety-Hallucination-Risk"] == "HIGH"
    withheld = judged.post(CHAT, {**BODY, "stream": True}, **{"CRP-Safety-Policy": "halt-on HIGH"})
    assert withheld.status_code == 451


def test_451_where_the_judge_fails_and_that_halts(
    tmp_path: Path, server: Double, judge: Double
) -> None:
    judge.fault = "unauthorised"
    options = {"judge": named(judge), "judge_failure": "halt"}
    with opened(tmp_path, server, options=options) as gateway:
        response = gateway.ask()
    assert response.status_code == 451, response.text
    assert response.json()["crp_halt_reason"] == "JUDGE_FAILED"
    assert response.headers["crp-safety-retry-after"] == "oversight-required"
    assert not stands("1957", response.text)


def test_the_model_that_answers_may_judge(tmp_path: Path, server: Double) -> None:
    server.answers = both(BAD)
    with opened(tmp_path, server, options={"judge": True}) as gateway:
        response = gateway.ask()
        assert response.headers["crp-safety-hallucination-risk"] == "HIGH"
        assert report_of(gateway, response)["judge"]["own_answer"]
    # What shapes the caller's answer shapes no judge's.
    answering, judging = server.requests
    assert "response_format" not in answering.body
    assert judging.model == answering.model


@pytest.mark.parametrize(
    "body",
    [
        {"judge": NAME},
        {"judge_when": "always"},
        {"crp": {"judge": NAME}},
        {"crp": {"judge_failure": "report"}},
        {"crp": {"on_report": "print"}},
        {"extra_body": {"judge": NAME}},
    ],
)
def test_no_caller_names_a_judge_in_a_body(
    gateway: Gateway, judge: Double, body: dict[str, Any]
) -> None:
    assert gateway.post(CHAT, {**BODY, **body}).status_code == 400
    assert not judge.requests


@pytest.mark.parametrize("name", ["CRP-Judge", "CRP-Safety-Judge", "CRP-Judge-When"])
def test_no_caller_names_a_judge_in_a_header(gateway: Gateway, name: str) -> None:
    assert gateway.ask(**{name: NAME}).status_code == 400


def test_nobody_is_asked_unless_the_operator_says_so(gateway: Gateway) -> None:
    assert report_of(gateway, gateway.ask())["judge"] is None


def test_32_at_once_and_none_mixed(judged: Gateway, server: Double) -> None:
    def said(seen: Any) -> str:
        number = int(seen.question.removesuffix(" built?").removeprefix("When was plant "))
        return f"Plant {number} was built in {(1950 if number % 2 else 1850) + number}."

    server.answers = said

    def one(place: int) -> tuple[int, str]:
        number = place % 12
        asking = [{"role": "user", "content": f"When was plant {number} built?"}]
        response = judged.post(CHAT, {**BODY, "messages": asking})
        return number, response.headers["crp-safety-hallucination-risk"]

    with ThreadPoolExecutor(16) as pool:
        for number, risk in pool.map(one, range(32)):
            assert risk == ("LOW" if number % 2 else "HIGH"), number


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--judge", "no-such-model"), "no-such-model"),
        (("--judge", "extractive"), "quotes and does not read"),
        (("--judge", NAME, "--judge-when", "now"), "when"),
        (("--judge", NAME, "--judge-failure", "shrug"), "failure"),
        (("--judge-when", "doubt"), "needs a judge"),
        (("--judge-base", "http://127.0.0.1:9"), "--judge-base needs --judge"),
        (("--judge", ""), "--judge is empty"),
    ],
)
def test_what_cannot_be_meant_is_said_before_it_listens(
    here: Here, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    keys = str(tmp_path / "keys")
    KeyFile(keys).add(new_key("acme")[1])
    done = here("serve", "kb", "--keys", keys, *arguments, cwd=tmp_path)
    assert done.returncode == 1, done.stdout
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_serve_takes_a_judge(
    here: Here, tmp_path: Path, judge: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def created(store: str, **options: Any) -> Any:
        made.append(options["options"])
        raise RequestError("that is all")

    monkeypatch.setattr("crp_integrations.gateway.create_app", created)
    keys = str(tmp_path / "keys")
    KeyFile(keys).add(new_key("acme")[1])
    asking = ("--judge", NAME, "--judge-base", judge.url, "--judge-when", "doubt")
    here("serve", "kb", "--keys", keys, *asking, "--judge-failure", "halt", cwd=tmp_path)
    here("serve", "kb", "--keys", keys, "--judge", "self", cwd=tmp_path)
    named_one, own = made
    assert named_one == {
        "judge": {"model": NAME, "api_base": judge.url},
        "judge_when": "doubt",
        "judge_failure": "halt",
    }
    assert own == {"judge": True}
    assert ASKED

"""Reports are handed to a receiver in their order, by a thread that no answer waits for.

Answers that are withheld or approved, and violations that are reported.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from crp_integrations.dpe.records import Report
from crp_integrations.errors import HeaderSyntaxError, PolicySyntaxError, SafetyHalt
from crp_integrations.policy.records import Policy, ViolationReport
from crp_integrations.relay.steps import Halt, Refusal
from crp_integrations.relay.turn import Turn
from crp_integrations.relay.world import ReportDelivery
from crp_integrations.vocabulary import EventType
from tests.relay.conftest import Opener
from tests.relay.scripted_relays import (
    HIGH,
    LOW,
    QUESTION,
    SESSION,
    answered,
    opened,
    outcome,
    session_events,
)

WAIT = 30.0


def test_an_answer_does_not_wait_for_who_receives_its_report(open_relay: Opener) -> None:
    may_go_on, came = threading.Event(), []

    def slow(report: Report) -> None:
        assert may_go_on.wait(WAIT)
        came.append(report.window_number)

    relay, _ = opened(open_relay, LOW, receiver=slow)
    # Handed over within the call, this would never return.
    asking = threading.Thread(target=lambda: [answered(relay) for _ in range(3)], daemon=True)
    asking.start()
    asking.join(WAIT)
    assert not asking.is_alive()
    assert came == []
    may_go_on.set()
    relay.close()
    assert came == [1, 2, 3]


def test_closing_waits_so_long_and_names_what_was_not_received(
    open_relay: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    may_go_on = threading.Event()
    try:
        relay, _ = opened(
            open_relay,
            LOW,
            receiver=lambda _: may_go_on.wait(WAIT),
            reports={"close_seconds": 0.05},
        )
        answer = answered(relay)
        with caplog.at_level(logging.WARNING):
            relay.close()
        assert f"1 reports were not received, the first of window {answer.window_id}" in caplog.text
    finally:
        may_go_on.set()


def test_what_has_no_room_is_named_and_the_next_one_is_received(
    open_relay: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    may_go_on, began, came = threading.Event(), threading.Event(), []

    def slow(report: Report) -> None:
        began.set()
        assert may_go_on.wait(WAIT)
        came.append(report.window_number)

    relay, _ = opened(open_relay, LOW, receiver=slow, reports={"capacity": 2})
    with caplog.at_level(logging.WARNING):
        first = answered(relay)
        assert began.wait(WAIT)
        dropped = [answered(relay) for _ in range(2)][-1]
    assert f"the report on window {dropped.window_id} was not received" in caplog.text
    # It is stored all the same.
    assert relay.report(dropped.window_id) is not None
    assert relay.report(first.window_id) is not None
    may_go_on.set()
    relay.close()
    assert came == [1, 2]


def test_nothing_is_handed_over_after_the_end(caplog: pytest.LogCaptureFixture) -> None:
    came: list[str] = []
    handing = ReportDelivery(lambda report: came.append(report.session_id), capacity=9)
    handing.close(0.0)
    handing.close(0.0)
    with caplog.at_level(logging.WARNING):
        handing.take(Report.model_construct(session_id=SESSION, window_id="crp_win_1"))
    assert came == []
    assert "crp_win_1 was not received: closed" in caplog.text


def test_a_use_that_is_forbidden_is_not_shown_live(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW, system={"domain": "biometric-identification"})
    shown: list[object] = []
    with pytest.raises(SafetyHalt):
        shown.extend(relay.stream(QUESTION, live=True))
    assert shown == []


def test_that_a_person_approved_an_answer_is_journalled(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    withheld = outcome(relay, oversight="human-review")
    assert isinstance(withheld, Halt)
    token = f"approved:{withheld.answer.report.response_content_hash}"
    shown = answered(relay, oversight="human-review", oversight_token=token)
    told = session_events(relay, EventType.OVERSIGHT_TRIGGERED)
    assert [event.data["approved"] for event in told] == [False, True]
    assert told[-1].window_id == shown.window_id
    relay.verify()


class Broken:
    """Takes violations and fails with each."""

    def take(self, report: ViolationReport, policy: Policy) -> None:
        raise OSError("no room")


class Violations:
    """Keeps the policies that violations were reported under."""

    def __init__(self) -> None:
        self.policies: list[Policy] = []

    def take(self, report: ViolationReport, policy: Policy) -> None:
        self.policies.append(policy)


@pytest.mark.parametrize("broken", [True, False])
def test_reporting_a_violation_costs_no_answer_and_seals_nothing_twice(
    open_relay: Opener, broken: bool
) -> None:
    taken = Violations()
    relay, _ = opened(open_relay, HIGH, violations=Broken() if broken else taken)
    full = " ".join(f"https://reports.example/{number}" for number in range(4))
    ended = outcome(
        relay,
        policy=f"require-quality S A B; report-uri {full}",
        report_uri="https://reports.example/own",
    )
    assert isinstance(ended, Refusal)
    assert ended.status == 503
    with relay.fabric.begin(write=False) as transaction:
        assert len(list(transaction.journal.seals(SESSION))) == 1
    addresses = {uri for policy in taken.policies for uri in policy.report_uri}
    assert len(addresses) == (0 if broken else 5)


def test_a_sealed_window_whose_headers_cannot_be_made_is_not_sealed_again(
    open_relay: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, _ = opened(open_relay, HIGH)

    def unsayable(*given: Any) -> dict[str, str]:
        raise HeaderSyntaxError("no header can say this")

    monkeypatch.setattr(Turn, "_headers", unsayable)
    with pytest.raises(HeaderSyntaxError):
        relay.ask(QUESTION, session_id=SESSION)
    with relay.fabric.begin(write=False) as transaction:
        assert [seal.outcome for seal in transaction.journal.seals(SESSION)] == ["released"]
    relay.verify()


def test_policies_side_by_side_may_name_many_addresses(open_relay: Opener) -> None:
    hosts = [f"https://{name}.example.com/r" for name in "abcde"]
    mine = f"report-uri {' '.join(hosts[:3])}; warn-on HIGH"
    theirs = f"report-uri {' '.join(hosts[2:])}; halt-on CRITICAL"
    relay, _ = opened(open_relay, LOW, policy=mine)
    answer = answered(relay, inherited_policy=theirs)
    assert "halt-on CRITICAL" in answer.headers["CRP-Safety-Policy-Applied"]


def test_an_address_with_a_password_is_in_no_message(open_relay: Opener) -> None:
    relay, _ = opened(open_relay, LOW)
    with pytest.raises(PolicySyntaxError) as refused:
        relay.ask(QUESTION, policy="report-uri ftp://user:hunter2@example.com/r")
    assert "hunter2" not in str(refused.value)

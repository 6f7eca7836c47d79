"""Reports are handed to a receiver in their order, by a thread that no answer waits for."""

from __future__ import annotations

import logging
import threading

import pytest

from crp_integrations.dpe.records import Report
from crp_integrations.relay.report_delivery import ReportDelivery
from tests.relay.scripted import LOW, SESSION, Opener, answered, opened

WAIT = 30.0


def test_an_answer_does_not_wait_for_who_receives_its_report(open_relay: Opener) -> None:
    may_go_on, came = threading.Event(), []

    def slow(report: Report) -> None:
        assert may_go_on.wait(WAIT)
        came.append(report.window_number)

    relay, _ = opened(open_relay, LOW, receiver=slow)
    # Handed over within the call, this would never return.
    asking = threading.Thread(
        target=lambda: [answered(relay) for _ in range(3)],
        daemon=True,
    )
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

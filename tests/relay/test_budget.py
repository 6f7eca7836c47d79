"""Budgets of judges: what they cover, what is booked before a call, and the breaker."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Judge, Relay, examine
from crp_integrations.errors import ConfigError, CRPError, ModelTimeout, RequestError
from crp_integrations.guard.decisions import Subject
from crp_integrations.messages import ModelCall, Reply, Usage
from crp_integrations.relay import budget as budgets
from crp_integrations.relay.actions import acheck_calls, check_calls
from crp_integrations.relay.budget import Breaker, MemoryLedger
from crp_integrations.relay.settings import JudgeSettings
from crp_integrations.session.ports import Spending
from tests.doubles import HashEmbedder
from tests.judges import claims_of, judge_double, judging, named, reply_to
from tests.postgres import postgres_address  # noqa: F401 - a fixture
from tests.servers import Double

KEY = "ab" * 32
SPAWN = multiprocessing.get_context("spawn")
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
PASSAGES = ["Plant 1 delivers 400 megawatts."]


def unsupported(asked: Mapping[str, Any]) -> dict[str, Any]:
    claims = [{"n": number, "status": "UNSUPPORTED"} for number, _ in claims_of(asked)]
    return {"id": asked["id"], "claims": claims}


def double() -> Any:
    return judge_double(answers=judging(unsupported))


class Answers:
    """A model whose every answer differs, so that no judgement comes from the cache."""

    def __init__(self, name: str) -> None:
        self._name, self._number = name, 0

    def call(self, call: ModelCall) -> Reply:
        self._number += 1
        return Reply(text=f"Plant {self._name}{self._number} delivers 400 megawatts.", model="m")

    async def acall(self, call: ModelCall) -> Reply:
        return self.call(call)


def opened(place: Any, judge: Any, budget: Any, name: str = "", **more: Any) -> Relay:
    return Relay.open(
        place, models=Answers(name), model="m", key=KEY, embedder=HashEmbedder(),
        judge=judge, judge_budget=budget, **more,
    )  # fmt: skip


def skipped(relay: Relay, times: int = 1) -> list[str]:
    return [relay.ask("What does it deliver?").report.judge.skipped for _ in range(times)]


class Tallying:
    """A judge whose calls are counted in a file, which several processes share."""

    model_name = "tallying"

    def __init__(self, tally: Path) -> None:
        self._tally = tally

    def call(self, call: ModelCall) -> Reply:
        with self._tally.open("a") as file:
            file.write("x")
        text = reply_to([message.content for message in call.messages], unsupported)
        return Reply(text=text, model=self.model_name)

    async def acall(self, call: ModelCall) -> Reply:
        return self.call(call)


def ask_many(place: str, tally: Path, budget: Any, name: str) -> None:
    with (
        opened(place, Tallying(tally), budget, name) as relay,
        ThreadPoolExecutor(16) as pool,
    ):
        words = [*pool.map(lambda _: skipped(relay)[0], range(16))]
    assert {*words} <= {"", "budget"}


BUDGETS = [({"calls": 5, "per": "day"}, 5), ({"calls": 3, "of": "tenant"}, 3)]


@pytest.mark.parametrize("database", [False, True], ids=["folder", "database"])
@pytest.mark.parametrize(("budget", "calls"), BUDGETS)
def test_no_call_over_in_32_concurrent_asks_of_two_processes(
    tmp_path: Path, request: Any, database: bool, budget: Any, calls: int
) -> None:
    place = request.getfixturevalue("postgres_address") if database else str(tmp_path / "kb")
    tally = tmp_path / "tally"
    asking = [SPAWN.Process(target=ask_many, args=(place, tally, budget, name)) for name in "ab"]
    for process in asking:
        process.start()
    for process in asking:
        process.join()
    assert [process.exitcode for process in asking] == [0, 0]
    assert len(tally.read_text()) == calls
    with opened(place, Tallying(tally), budget, "c") as relay:
        assert skipped(relay) == ["budget"], "the store counts on"


def test_what_a_budget_covers(tmp_path: Path) -> None:
    with double() as server:
        for of, words in (("tenant", ["budget", "", "budget"]), ("store", ["budget"] * 3)):
            budget, judge = {"calls": 1, "of": of}, named(server)
            place = tmp_path / of
            with opened(place, judge, budget) as relay:
                assert skipped(relay) == [""]
                assert skipped(relay) == words[:1]
            for tenant, word in zip(("other", "other"), words[1:], strict=True):
                with opened(place, judge, budget, tenant, subject=Subject(tenant=tenant)) as relay:
                    assert skipped(relay) == [word]


def test_a_period_begins_anew(tmp_path: Path) -> None:
    with double() as server:
        for day, word in ((29, ""), (29, "budget"), (30, ""), (30, "budget")):
            clock = NOON.replace(day=day)
            with opened(
                tmp_path, named(server), {"calls": 1, "per": "day"}, f"{day}", clock=clock
            ) as relay:
                assert skipped(relay) == [word]


def test_a_forgotten_session_leaves_no_spending(tmp_path: Path) -> None:
    with (
        double() as server,
        opened(tmp_path, named(server), {"calls": 1, "of": "session"}) as relay,
    ):
        session = relay.ask("What does it deliver?").report.session_id
        with relay.fabric.begin(True) as transaction:
            rows = transaction.spending.spent(session, f"openai/judge-1 {server.url}")
            assert rows is not None
            assert rows[1].calls == 1
            transaction.sessions.forget(session)
            assert transaction.spending.spent(session, f"openai/judge-1 {server.url}") is None


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"usd": 1, "per": "week"}, "budget_per"),
        ({"calls": 1, "of": "planet"}, "budget_of"),
        ({"per": "day"}, "has no limit; give calls, tokens or usd"),
        ({"calls": 1, "of": "store"}, "is of the store, and there is no relay here"),
        ({"calls": 1, "of": "session"}, "is of the session, and there is no relay here"),
        ({"usd": 1}, "no price of 'openai/nobody-knows' is known; .* usd_per_million"),
    ],
)
def test_a_budget_that_cannot_hold_is_refused(budget: Any, said: str) -> None:
    with pytest.raises((ConfigError, RequestError), match=said):
        examine(PASSAGES[0], PASSAGES, judge="openai/nobody-knows", judge_budget=budget)


@pytest.mark.parametrize("of", ["session", "tenant", "store"])
def test_a_check_of_calls_without_a_relay_refuses_its_budgets(of: str) -> None:
    judge = Judge(Counting(), budget_calls=1, budget_of=of)
    with pytest.raises(RequestError, match=f"is of the {of}, and there is no relay here"):
        check_calls([], [], [], judge=judge)
    with pytest.raises(RequestError, match=f"is of the {of}, and there is no relay here"):
        asyncio.run(acheck_calls([], [], [], judge=judge))


def test_the_judges_of_one_model_object_share_the_budget_of_the_process(tmp_path: Path) -> None:
    model = Counting()
    for name in "ab":
        with opened(tmp_path / name, model, 2, name) as relay:
            skipped(relay, 2)
    assert len(model.calls) == 2
    assert Judge(Counting())._ledger is not Judge(model)._ledger, "another object has its own"


def test_a_model_object_is_forgotten_with_its_spending() -> None:
    number = len(budgets._OBJECTS)
    model = Counting()
    assert budgets.process_ledger(model) is budgets.process_ledger(model)
    del model
    gc.collect()
    assert len(budgets._OBJECTS) <= number


class Slots:
    __slots__ = ()
    model_name = "slots"


def test_a_model_without_weak_references_has_a_ledger_for_each_judge() -> None:
    model = Slots()
    assert budgets.process_ledger(model) is not budgets.process_ledger(model)


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        (lambda: [Judge(Counting(), confirm=True), Counting()], "first"),
        (lambda: [Counting(), {"model": Counting(), "confirm": True}], "second"),
        (lambda: [Counting(), Judge(Counting(), second="openai/x")], "second"),
        (lambda: [[Counting(), Counting()], Counting()], "first"),
    ],
)
def test_a_third_judge_is_refused(parts: Any, place: str) -> None:
    with pytest.raises(ConfigError, match=f"the {place} judge of the list has a second one"):
        Judge.of(parts())


def test_a_judge_with_two_second_ones_is_refused() -> None:
    with pytest.raises(ConfigError, match="second is 'openai/x' and confirm is True"):
        Judge(Counting(), second="openai/x", confirm=True)


def test_a_list_comes_before_the_second_judge_of_the_settings() -> None:
    for settings in (JudgeSettings(confirm=True), JudgeSettings(second="openai/x")):
        pair = Judge.of([Counting(), Counting()], settings)
        assert pair is not None
        assert pair.second is not None
        assert pair.second.second is None
        assert pair.second._model is not pair._model


# --- the dearest outcome ---------------------------------------------------------------------------


class Counting:
    """A judge that may fail first, and says what it used."""

    model_name = "counted"

    def __init__(self, *errors: Exception, usage: Usage = Usage()) -> None:  # noqa: B008
        self.calls: list[ModelCall] = []
        self._errors, self._usage = list(errors), usage

    def call(self, call: ModelCall) -> Reply:
        self.calls.append(call)
        if self._errors:
            raise self._errors.pop(0)
        text = reply_to([message.content for message in call.messages])
        return Reply(text=text, model="counted", usage=self._usage)

    async def acall(self, call: ModelCall) -> Reply:
        return self.call(call)


def spent(judge: Judge) -> Spending:
    ledger = judge._ledger
    assert isinstance(ledger, MemoryLedger)
    return ledger._rows["counted"][1]


def test_a_call_is_booked_at_its_dearest_and_settled_after_it() -> None:
    usage = Usage(prompt_tokens=900, completion_tokens=100)
    model = Counting(usage=usage)
    judge = Judge(model, budget_usd=1.0, usd_per_million=[2, 10], max_tokens=1_000)
    report = examine(PASSAGES[0], PASSAGES, judge=judge)
    assert spent(judge) == Spending(1, 1_000, pytest.approx(0.0028))
    assert report.judge is not None
    assert report.judge.cost_usd == pytest.approx(0.0028), "a price of the settings is reported"
    booked = []

    class Watching(Counting):
        def call(self, call: ModelCall) -> Reply:
            booked.append(spent(watched))
            return super().call(call)

    watched = Judge(Watching(usage=usage), budget_tokens=50_000, max_tokens=1_000)
    examine(PASSAGES[0], PASSAGES, judge=watched)
    assert booked[0].calls == 1
    assert booked[0].tokens > 5_000
    assert spent(watched).tokens == 1_000


@pytest.mark.parametrize(
    ("usage", "calls"),
    [
        (Usage(cost_usd=3.0), 2),
        (Usage(cost_usd=0.0), 4),
        (Usage(prompt_tokens=1_000_000, completion_tokens=1_000_000, cost_usd=0.1), 1),
    ],
)
def test_the_cost_of_the_report_is_that_of_the_budget(usage: Usage, calls: int) -> None:
    model = Counting(usage=usage)
    judge = Judge(model, budget_usd=5, usd_per_million=3, max_tokens=500, cache_size=0)
    reports = [examine(PASSAGES[0], PASSAGES, judge=judge).judge for _ in range(4)]
    assert len(model.calls) == calls
    cost = sum(report.cost_usd or 0.0 for report in reports if report)
    assert spent(judge).usd == pytest.approx(cost, abs=0.1)


class Stating(Counting):
    """A model object that keeps replies to a number of tokens, as those of frameworks do."""

    def __init__(self, **stated: Any) -> None:
        super().__init__(usage=Usage(prompt_tokens=900, completion_tokens=100))
        vars(self).update(stated)


@pytest.mark.parametrize(
    ("stated", "booked"),
    [
        ({}, None),
        ({"max_tokens": 700}, 700),
        ({"num_predict": 700}, 700),
        ({"num_predict": -1}, None),
        ({"profile": {"max_output_tokens": 700}}, 700),
        ({"max_tokens": None, "profile": {}}, None),
    ],
)
def test_a_model_object_is_booked_at_the_reply_that_it_states(
    stated: dict[str, Any], booked: int | None
) -> None:
    seen: list[Spending] = []

    class Watching(Stating):
        def call(self, call: ModelCall) -> Reply:
            seen.append(spent(judge))
            return super().call(call)

    judge = Judge(Watching(**stated), budget_usd=9, usd_per_million=[0, 1], window_tokens=40_000)
    assert examine(PASSAGES[0], PASSAGES, judge=judge).checked_by == "judge counted"
    (held,) = seen
    if booked:
        assert held.usd == pytest.approx(booked / 1e6)
    else:
        assert 30_000 < held.usd * 1e6 < 40_000


def test_a_call_that_timed_out_stays_booked_and_a_refused_one_costs_nothing() -> None:
    error = CRPError("no")
    late = Judge(Counting(ModelTimeout("late")), budget_tokens=50_000, max_tokens=500, retries=0)
    examine(PASSAGES[0], PASSAGES, judge=late)
    assert spent(late).tokens > 5_000
    refused = Judge(Counting(error), budget_tokens=50_000, max_tokens=500, retries=0)
    examine(PASSAGES[0], PASSAGES, judge=refused)
    assert spent(refused) == Spending(1, 0, 0.0)


def test_a_named_model_is_asked_for_what_the_budget_leaves(judge: Double) -> None:
    asked = Judge("openai/judge-1", api_base=judge.url, api_key="k", budget_tokens=9_000)
    assert examine(PASSAGES[0], PASSAGES, judge=asked).checked_by.startswith("judge")
    assert 500 <= judge.requests[0].body["max_tokens"] < 4_000


@pytest.fixture
def judge() -> Any:
    with judge_double() as double:
        yield double


# --- the breaker -----------------------------------------------------------------------------------


def test_a_failing_judge_is_left_alone_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(budgets.time, "monotonic", lambda: now[0])
    model = Counting(*[CRPError("down")] * 3)
    judge = Judge(model, retries=0, breaker_failures=2, breaker_s=10, cache_size=0)
    told = []
    for seconds in (0, 0, 0, 9.9, 0.2, 0, 10.1, 0):
        now[0] += seconds
        flags = examine(PASSAGES[0], PASSAGES, judge=judge).flags
        told.append(next((flag for flag in flags if flag.startswith("judge-failed=")), "asked"))
    down, open_ = "judge-failed=CRPError", "judge-failed=JudgeUnavailable"
    assert told == [down, down, open_, open_, down, open_, "asked", "asked"]
    assert len(model.calls) == 5


def test_a_fallback_answers_for_a_judge_that_is_left_alone(judge: Double) -> None:
    dead = "http://127.0.0.1:9"
    chosen = Judge(
        "openai/a", api_base=dead, api_key="k", retries=0, breaker_failures=1,
        fallback="hosted_vllm/b",
    )  # fmt: skip
    chosen._fallback = ("hosted_vllm/b", Counting())
    for _ in range(2):
        report = examine(PASSAGES[0], PASSAGES, judge=chosen.altered(cache_size=0))
        assert report.checked_by == "judge hosted_vllm/b"
    assert not chosen._breaker.admits("openai/a", chosen.settings)


def test_a_text_that_a_provider_refuses_opens_no_breaker() -> None:
    breaker, settings = Breaker(), JudgeSettings(breaker_failures=1)
    for error in ("ModelError 400", "ModelContextExceeded 413", "BudgetSpent"):
        breaker.note("m", error, settings)
        assert breaker.admits("m", settings)
    breaker.note("m", "ModelTimeout", settings)
    assert not breaker.admits("m", settings)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_provider_that_refuses_a_text_answers_and_closes_the_breaker(status: int) -> None:
    breaker, settings = Breaker(), JudgeSettings(breaker_failures=2, breaker_s=60)
    for error, admitted in (
        ("ModelTimeout", True),
        (f"ModelError {status}", True),
        ("ModelTimeout", True),
        ("ModelTimeout", False),
        (f"ModelError {status}", True),
    ):
        breaker.note("m", error, settings)
        assert breaker.admits("m", settings) is admitted


def test_one_call_at_a_time_tries_again() -> None:
    breaker, settings = Breaker(), JudgeSettings(breaker_failures=1, breaker_s=0.01)
    breaker.note("m", "ModelTimeout", settings)
    time.sleep(0.02)
    slow = settings.model_copy(update={"breaker_s": 60.0})
    assert [breaker.admits("m", slow) for _ in range(3)] == [True, False, False]

"""Two judges: the second is asked, in one call, only where the first one doubts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from crp_integrations import Judge, Relay, examine
from crp_integrations.dpe.records import Report
from crp_integrations.errors import CRPError, RequestError
from crp_integrations.language.memo import forget
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.receipt.records import write
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.verify import verify
from tests.bench.second_judge import pair_rates
from tests.doubles import HashEmbedder, ScriptedModel
from tests.judges import claims_of
from tests.relay.judges import CONTRADICTED, SUPPORTED, UNSUPPORTED, ScriptedJudge

PASSAGES = [
    "The Meridian plan costs 4.20 euros a month.",
    "The Larkspur plan can be cancelled within 14 days.",
    "The support desk answers on every weekday from eight to six.",
    "The archive keeps all invoices for ten years after their payment.",
]
ANSWER = " ".join(PASSAGES)
QUESTION = "What is said of the plans?"
Change = Callable[[dict[str, Any]], None]
TIMES = 100


class Named(ScriptedJudge):
    """A scripted judge with a name, and a last change of its replies."""

    def __init__(self, name: str, *status: Any, change: Change | None = None) -> None:
        super().__init__(*status)
        self.model_name, self._change = name, change

    def call(self, call: ModelCall) -> Reply:
        reply = super().call(call)
        verdicts = json.loads(reply.text)
        if self._change:
            self._change(verdicts)
        return Reply(text=json.dumps(verdicts), model=self.model_name)

    @property
    def asked(self) -> list[list[int]]:
        sent = [json.loads(call.messages[1].content) for call in self.calls]
        return [[number for number, _ in claims_of(one)] for one in sent]


class Failing(Named):
    def call(self, call: ModelCall) -> Reply:
        super().call(call)
        raise CRPError("down")


def examined(*judges: Any, answer: str = ANSWER, **options: Any) -> Report:
    return examine(answer, PASSAGES, QUESTION, judge=[*judges], **options)


def said(report: Report) -> list[tuple[str, str]]:
    return [(claim.status.value, claim.judge) for claim in report.claims]


def drop_last(verdicts: dict[str, Any]) -> None:
    verdicts["claims"].pop()


def test_the_second_is_asked_once_about_what_the_first_flags_or_leaves_unread() -> None:
    cheap = Named("cheap", {"Larkspur": UNSUPPORTED}, change=drop_last)
    strong = Named("strong")
    report = examined(cheap, strong)
    assert (cheap.asked, strong.asked) == ([[1, 2, 3, 4]], [[2, 4]])
    by = [(SUPPORTED, "cheap"), (SUPPORTED, "strong")]
    assert said(report) == [*by, *by]
    assert report.checked_by == "judge cheap, strong"
    assert report.risk_level == "LOW"
    assert [(one.second, one.claims) for one in report.judge.calls] == [(False, ()), (True, (2, 4))]


def test_the_first_alone_where_it_doubts_nothing() -> None:
    strong = Named("strong", UNSUPPORTED)
    report = examined(Named("cheap"), strong)
    assert strong.asked == []
    assert said(report) == [(SUPPORTED, "")] * 4
    assert report.checked_by == "judge cheap"


def test_what_is_supported_against_an_exact_finding_is_asked_again() -> None:
    strong = Named("strong", {"4.80": CONTRADICTED})
    report = examined(Named("cheap"), strong, answer=ANSWER.replace("4.20", "4.80"))
    assert strong.asked == [[1]]
    assert report.claims[0].status == CONTRADICTED
    assert not report.claims[0].disputed


def test_a_conflict_and_flagged_words_without_a_number_are_asked_again() -> None:
    def more(verdicts: dict[str, Any]) -> None:
        verdicts["conflicts"] = [{"claims": [1, 3], "reason": "both"}]
        verdicts["unnumbered"] = [{"text": "invoices for ten", "status": "UNSUPPORTED"}]

    strong = Named("strong")
    report = examined(Named("cheap", change=more), strong)
    assert strong.asked == [[1, 3, 4]]
    assert report.judge.conflicts == ()


def test_where_the_second_settles_nothing_the_first_is_heard() -> None:
    def unproven(verdicts: dict[str, Any]) -> None:
        for verdict in verdicts["claims"]:
            verdict["quotes"] = [{"in": "1", "text": "nothing of the kind"}]

    cheap = {"Larkspur": UNSUPPORTED}
    report = examined(Named("cheap", cheap), Named("strong", change=unproven))
    assert said(report)[1] == (UNSUPPORTED, "cheap")
    report = examined(Named("cheap", cheap), Failing("strong"), judge_failure="halt")
    assert said(report)[1] == (UNSUPPORTED, "")
    assert "judge-second-failed=CRPError" in report.flags


def test_the_second_is_asked_about_all_where_the_first_fails() -> None:
    strong = Named("strong")
    report = examined(Failing("cheap"), strong, judge_failure="halt")
    assert strong.asked == [[1, 2, 3, 4]]
    assert report.risk_level == "LOW"


def test_one_judge_confirms_past_its_cache() -> None:
    judge = Named("only", UNSUPPORTED)
    report = examine(ANSWER, PASSAGES, QUESTION, judge=Judge(judge, confirm=True))
    assert judge.asked == [[1, 2, 3, 4]] * 2
    assert report.checked_by == "judge only"
    assert report.judge.second == "only"


@pytest.mark.parametrize("how", ["confirm", "pair", "altered"])
def test_both_readings_of_an_answer_are_bought_once(how: str) -> None:
    model = Named("only", UNSUPPORTED)
    judge: Any = Judge(model, confirm=how != "pair")
    judge = [judge, judge] if how == "pair" else judge
    for _ in range(3):
        # A receiver of its own makes a copy of the judge.
        options: dict[str, Any] = {"on_report": lambda report: None} if how == "altered" else {}
        report = examine(ANSWER, PASSAGES, QUESTION, judge=judge, **options)
    assert len(model.calls) == 2
    assert [call.cached for call in report.judge.calls] == [True, True]
    examine(f"{ANSWER} Really.", PASSAGES, QUESTION, judge=judge)
    assert len(model.calls) == 4
    model.calls.clear()
    no_cache = Judge(model, confirm=True, cache_size=0)
    for _ in range(2):
        examine(ANSWER, PASSAGES, QUESTION, judge=no_cache)
    assert len(model.calls) == 4


def test_what_is_erased_leaves_the_caches_of_all_judges() -> None:
    model = Named("only", UNSUPPORTED)
    judge = Judge(model, confirm=True)
    for calls in (2, 2, 4):
        if calls == 4:
            forget()
        examine(ANSWER, PASSAGES, QUESTION, judge=judge.altered(cache_size=9))
        assert len(model.asked) == calls


def test_both_spend_one_budget() -> None:
    strong = Named("strong")
    report = examined(Named("cheap", UNSUPPORTED), strong, judge_budget=1)
    assert strong.asked == []
    assert "judge-second-failed=BudgetSpent" in report.flags


@pytest.mark.parametrize("judges", [["a"], ["a", "b", "c"], ["a", True], ["a", ""], []])
def test_a_list_that_is_no_pair_is_refused(judges: Any) -> None:
    with pytest.raises(RequestError, match="give two judges"):
        examine(ANSWER, PASSAGES, judge=judges)


@pytest.mark.parametrize("unusable", [False, None, ""])
def test_a_pair_with_no_judge_in_it_says_which(unusable: Any) -> None:
    with pytest.raises(RequestError, match=f"judge is a list with {unusable!r}; give two judges"):
        examine(ANSWER, PASSAGES, judge=["a", unusable])


@pytest.mark.parametrize("confirm", [False, True])
def test_a_receipt_of_two_judges_replays(confirm: bool) -> None:
    cheap = Named("cheap", {"Larkspur": UNSUPPORTED, "archive": UNSUPPORTED})
    judge: Any = {"model": cheap, "confirm": True} if confirm else [cheap, Named("strong")]
    with Relay.open(
        models=ScriptedModel(ANSWER), model="m", embedder=HashEmbedder(), judge=judge
    ) as relay:
        relay.fabric.add(PASSAGES)
        answer = relay.ask(QUESTION)
        receipt = relay.receipt(answer.receipt_id)
    assert verify(write(receipt)).ok
    again = replay(receipt)
    assert (again.same, again.whole) == (True, True), again.parts
    calls = receipt.content["examined"]["judged"]["calls"]
    assert [call.get("claims") for call in calls] == [None, [2, 4]]


@pytest.mark.parametrize("second", [None, 0.1, 0.01])
def test_judges_that_err_come_to_the_rates_of_the_table(second: float | None) -> None:
    chance = random.Random(7)
    answers = {True: ANSWER, False: ANSWER.replace("every weekday", "every weekday and feast")}

    def erring(share: float) -> Change:
        def change(verdicts: dict[str, Any]) -> None:
            for verdict in verdicts["claims"]:
                if chance.random() < share:
                    holds = verdict["status"] == SUPPORTED
                    verdict["status"] = UNSUPPORTED if holds else SUPPORTED
                    verdict["quotes"] = [] if holds else [{"in": "3", "text": PASSAGES[2]}]

        return change

    truth = {"feast": UNSUPPORTED}
    flagged = {True: 0, False: 0}
    for _ in range(TIMES):
        for right, text in answers.items():
            judges = [Named("cheap", truth, change=erring(0.1))]
            judges += [] if second is None else [Named("strong", truth, change=erring(second))]
            judge = judges if second is not None else judges[0]
            flagged[right] += examine(text, PASSAGES, QUESTION, judge=judge).flagged
    rates = pair_rates(0.1, second, claims=len(PASSAGES))
    assert flagged[True] / TIMES == pytest.approx(rates.flagged, abs=0.1)
    assert 1 - flagged[False] / TIMES == pytest.approx(rates.passed, abs=0.1)

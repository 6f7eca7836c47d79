"""Have one answer judged, and keep the judges of a component."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, cast

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.inquiry import Inquiry, JudgeReply, JudgeTerms, not_asked
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.report_parts import JudgeRun
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.report import finish
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError, SafetyHalt
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import ModelCall
from crp_integrations.policy.verdict import JUDGE_HALTS
from crp_integrations.relay.budget import OVER_BUDGET, Payer, refuse_storeless
from crp_integrations.relay.judge import (
    BACKGROUND,
    LATER,
    NO_BUDGET,
    SAMPLED_OUT,
    Judge,
    JudgeOptions,
    JudgeSource,
    OnReport,
    call_receivers,
    check_options,
    refuse_own,
)
from crp_integrations.relay.settings import JudgeSettings, Settings
from crp_integrations.vocabulary import HaltReason


class Judges:
    """The judges of a component, each kept with its cache."""

    MAX_JUDGES: Final = 32

    def __init__(self, settings: JudgeSettings) -> None:
        self._settings = settings
        self._made: OrderedDict[str, tuple[object, Judge | None]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, source: JudgeSource, options: Mapping[str, Any]) -> Judge | None:
        """The judge for these arguments; equal arguments share one judge."""
        receiver = options.get("on_report")
        pair = isinstance(source, list | tuple)
        # The receiver is not part of the key: callers often pass a new function with each call.
        named = [f"{n}={value!r}" for n, value in sorted(options.items()) if n != "on_report"]
        parts = source if pair else [source]
        at = " ".join(
            repr(part)
            if isinstance(part, str | bool | type(None) | Mapping)
            else f"object {id(part)}"
            for part in parts
        )
        key = "\n".join([at, *named, f"told={receiver is not None}"])
        with self._lock:
            if key not in self._made:
                made = Judge.of(source, self._settings, **options)
                # Keeps the source alive, so that no other object gets the `id` used in the key.
                self._made[key] = (source, made)
            self._made.move_to_end(key)
            while len(self._made) > self.MAX_JUDGES:
                self._made.popitem(last=False)
            judge = self._made[key][1]
        if judge is None or receiver is None or judge.on_report is receiver:
            return judge
        return judge.altered(on_report=receiver)


@lru_cache(maxsize=16)
def judges_of(settings: JudgeSettings) -> Judges:
    """The judges that all callers with equal settings share, each with its cache."""
    return Judges(settings)


class JudgedAnswer:
    """The judgement of one answer: whether the judge is asked, its calls, and the final report.

    Answer each `call()` and pass the reply to `take()` until `call()` is None; then read `report`.
    """

    def __init__(
        self,
        judge: Judge,
        report: Report,
        dossier: Dossier,
        settings: DpeSettings,
        *,
        payer: Payer = Payer(),  # noqa: B008 - it is frozen
        own_model: str = "",
        own_window: int = 0,
        left_out: Iterable[tuple[str, str]] = (),
        late: bool = False,
        again: bool = False,
        terms: JudgeTerms | None = None,
    ) -> None:
        self.judge = judge
        self.payer = payer
        self.keep = not dossier.no_store
        self._report, self._dossier, self._settings = report, dossier, settings
        self._why = judge.skips(report, payer.session_id)
        if again and self._why == SAMPLED_OUT:
            # A repaired text is never released unread.
            self._why = ""
        if not self._why and judge.settings.mode == BACKGROUND and not late:
            self._why = LATER
        self._terms = terms or judge.terms(own_model, own_window, left_out)
        self._inquiry = None if self._why else Inquiry(dossier, report.claims, self._terms)
        self._second: Inquiry | None = None
        self._late = late
        self._called: ModelCall | None = None

    @property
    def later(self) -> bool:
        """Whether the judgement is left to the background."""
        return self._why == LATER

    @property
    def asked(self) -> Judge:
        """The judge to which the present call goes."""
        second = self.judge.second
        return self.judge if self._second is None or second is None else second

    @property
    def failed(self) -> str:
        """Name of the error that left the answer unjudged; empty for none."""
        return self._run().failed if self._inquiry is not None else ""

    @property
    def halts(self) -> bool:
        """Whether the answer is withheld because the judge failed."""
        return bool(self.failed) and self.judge.settings.failure == "halt"

    def now(self, report: Report) -> JudgedAnswer:
        """The judgement that was left to the background, to be made now on the delivered report."""
        flags = tuple(flag for flag in report.flags if flag != f"judge-not-asked={LATER}")
        return JudgedAnswer(
            self.judge,
            report.model_copy(update={"flags": flags, "judge": None}),
            self._dossier,
            self._settings,
            terms=self._terms,
            payer=self.payer,
            late=True,
        )

    def call(self) -> ModelCall | None:
        """The next call; None when nothing is left to ask."""
        inquiry = self._second or self._inquiry
        self._called = inquiry.call() if inquiry is not None else None
        if inquiry is not None and self._called is None and self._second is None:
            self._second = self._second_inquiry(inquiry)
            self._called = self._second.call() if self._second is not None else None
        return self._called

    def _second_inquiry(self, inquiry: Inquiry) -> Inquiry | None:
        """The questions to a second judge; None if there is none, or nothing to ask."""
        from crp_integrations.dpe.judge.verdict import doubtful_claims

        run, second = inquiry.run(), self.judge.second
        if second is None or not run.calls:
            return None
        claims = self._report.claims
        terms = second.terms(self._terms.model, self._terms.window, self._terms.left_out)
        doubts = doubtful_claims(self._report, self._dossier, run)
        return Inquiry(self._dossier, claims, terms, doubts) if doubts else None

    def take(self, reply: JudgeReply) -> None:
        """Take the reply to the last call."""
        assert self._inquiry is not None
        assert self._called is not None
        inquiry = self._second or self._inquiry
        if reply.error == OVER_BUDGET and not self._inquiry.run().calls:
            self._why, self._inquiry = NO_BUDGET, None
            return
        inquiry.take(reply)
        if not reply.error and inquiry.run().calls[-1].error:
            # An unreadable reply leaves the cache, so that the judge is asked again next time.
            self.asked.forget(self._called)

    @property
    def report(self) -> Report:
        """The report with the judge's results, or with the reason that it was not asked."""
        # Imported here: it loads the language rules, which importing the package must not need.
        from crp_integrations.dpe.judge.verdict import concluded

        if self._inquiry is not None:
            run = self._run()
        else:
            run = not_asked(self._terms.model, self._why, self.judge.settings.language)
        return concluded(self._report, self._dossier, run, self._settings)

    def _run(self) -> JudgeRun:
        """The calls of both judges."""
        assert self._inquiry is not None
        run = self._inquiry.run()
        if self._second is None:
            return run
        second = self._second.run()
        return run.model_copy(update={"calls": (*run.calls, *second.calls), "second": second.model})

    def play(self) -> Report:
        """Make the calls one after the other; returns the report."""
        while (call := self.call()) is not None:
            self.take(self.asked.reply(call, None, self.payer, keep=self.keep))
        return self._ended()

    async def aplay(self) -> Report:
        """The asynchronous twin of `play`."""
        while (call := await asyncio.to_thread(self.call)) is not None:
            reply = await self.asked.areply(call, None, self.payer, keep=self.keep)
            # Parsing long texts would block the event loop.
            await asyncio.to_thread(self.take, reply)
        return await asyncio.to_thread(self._ended)

    def _ended(self) -> Report:
        report = self.report
        # An answer that was already delivered cannot be withheld.
        if self.halts and not self._late:
            raise SafetyHalt(
                "an answer was withheld: its judge failed",
                report=report,
                reason=HaltReason.JUDGE_FAILED.value,
                directive=JUDGE_HALTS,
                value=self.failed,
            )
        return report


def asks_later(source: JudgeSource, options: Mapping[str, Any], settings: JudgeSettings) -> bool:
    """Whether the judge for a component's arguments judges in the background."""
    if not source and (source is False or not settings.model):
        return False
    if isinstance(source, list | tuple):
        source = source[0] if source else None
    known = source.settings if isinstance(source, Judge) else settings
    own = source.get("mode") if isinstance(source, Mapping) else None
    return (options.get("judge_mode") or own or known.mode) == BACKGROUND


def barred_facts(judge: Judge, context: Envelope | Sequence[Fact | str]) -> list[tuple[str, str]]:
    """Ids of facts with a label that forbids sending them to the judge's provider."""
    withheld = set(judge.settings.withhold_labels)
    if not withheld:
        return []
    if isinstance(context, Envelope):
        raise RequestError(
            "the judge's withhold_labels is set, and an envelope has no labels of its facts; "
            "give the facts, or ask through a relay"
        )
    return [
        (item.fact_id, "label")
        for item in context
        if isinstance(item, Fact) and withheld.intersection(item.labels)
    ]


def resolve_judge(
    judge: JudgeSource, options: JudgeOptions, settings: Settings
) -> tuple[Judge | None, OnReport | None]:
    """The judge of a call, and a receiver of the report that this judge does not call itself."""
    check_options("examine", options)
    chosen = {name: value for name, value in options.items() if value is not None}
    on_report: Any = chosen.get("on_report")
    refuse_own(judge, "examine")
    if isinstance(judge, Judge):
        chosen.pop("on_report", None)
    resolved = judges_of(settings.judge).of(judge, chosen)
    if resolved is not None:
        refuse_storeless(resolved.settings)
    return resolved, on_report if resolved is None or isinstance(judge, Judge) else None


def complete_report(
    judge: Judge | None,
    report: Report,
    dossier: Dossier,
    settings: Settings,
    context: Envelope | Sequence[Fact | str],
    on_report: OnReport | None,
) -> Report:
    """Complete a caller's report: judge it, if there is a judge, and pass it to the receivers."""
    judged = _judgement(judge, report, dossier, settings, context)
    if judged is None:
        return _unjudged(report, settings, on_report)
    with _withheld_reports(judged, settings, on_report):
        report = judged.play()
    return _finish_and_hand(judged, report, settings, on_report)


async def acomplete_report(
    judge: Judge | None,
    report: Report,
    dossier: Dossier,
    settings: Settings,
    context: Envelope | Sequence[Fact | str],
    on_report: OnReport | None,
) -> Report:
    """The asynchronous twin of `complete_report`."""
    judged = _judgement(judge, report, dossier, settings, context)
    if judged is None:
        return _unjudged(report, settings, on_report)
    with _withheld_reports(judged, settings, on_report):
        report = await judged.aplay()
    return _finish_and_hand(judged, report, settings, on_report)


def _judgement(
    judge: Judge | None,
    report: Report,
    dossier: Dossier,
    settings: Settings,
    context: Envelope | Sequence[Fact | str],
) -> JudgedAnswer | None:
    """The judgement of an answer; None without a judge."""
    if judge is None:
        return None
    left_out = barred_facts(judge, context)
    return JudgedAnswer(judge, report, dossier, settings.dpe, left_out=left_out)


def _unjudged(report: Report, settings: Settings, on_report: OnReport | None) -> Report:
    report = finish(report, settings_digest=settings.digest)
    call_receivers(report, on_report)
    return report


def _finish_and_hand(
    judged: JudgedAnswer, report: Report, settings: Settings, on_report: OnReport | None
) -> Report:
    report = finish(report, settings_digest=settings.digest)
    hand_report(judged, report, on_report)
    return report


@contextmanager
def _withheld_reports(
    judged: JudgedAnswer, settings: Settings, on_report: OnReport | None
) -> Iterator[None]:
    """Pass on the report of an answer that is withheld because its judge failed."""
    try:
        yield
    except SafetyHalt as halt:
        halt.report = report = finish(cast("Report", halt.report), settings_digest=settings.digest)
        judged.judge.hand(report, on_report)
        raise


def hand_report(judged: JudgedAnswer, report: Report, on_report: OnReport | None = None) -> None:
    """Pass a report to its receivers; in background mode this happens after the judgement."""
    judge = judged.judge
    if judged.later:
        digest = report.settings_digest
        judge.later(
            lambda: judge.hand(finish(judged.now(report).play(), settings_digest=digest), on_report)
        )
    else:
        judge.hand(report, on_report)

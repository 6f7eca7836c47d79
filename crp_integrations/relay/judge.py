"""The judge: a model that reads question, evidence and answer once, and says which claims hold.

A `Judge` has a model, rules when to ask it, a budget and a cache. `judged_answer` has one answer
judged; the prompts, and the parsing of replies, are in `dpe.judge`, which makes no calls.
"""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextvars import Context, ContextVar, copy_context
from dataclasses import replace
from functools import partial
from logging import getLogger
from typing import Any, Final, Self, TypeAlias, TypedDict, Unpack, cast
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from crp_integrations.dpe.judge.inquiry import JudgeReply, JudgeTerms
from crp_integrations.dpe.judge.messages import JudgePrompt
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.report_parts import FALLBACK, NO_DOUBT, UNAVAILABLE
from crp_integrations.errors import ConfigError, ModelError, RequestError
from crp_integrations.language.memo import forgotten_with
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.ports import Model, T, share_in_copies
from crp_integrations.relay.budget import (
    OVER_BUDGET,
    Breaker,
    JudgeBudget,
    Ledger,
    Payer,
    budget_fields,
    has_budget,
    price_of,
    process_ledger,
    refuse_unpriced,
)
from crp_integrations.relay.settings import (
    DOUBT,
    JudgeSettings,
    connection_fields,
    first_problem,
    same_provider,
)
from crp_integrations.seals import canonical, sha256_hex
from crp_integrations.validation import require_settings

_LOG = getLogger("crp_integrations.judge")

# A model name, a mapping of name and LiteLLM parameters, a model object, True for the component's
# own model, or a list of two of them: a cheap judge, and one that is asked where that one doubts.
JudgeSource: TypeAlias = Any
OnReport: TypeAlias = Callable[[Report], None]
# One call of the judge: model, request, context variables, start time, and budget.
Attempt: TypeAlias = tuple[Model, ModelCall, Context, float, JudgeBudget]
BACKGROUND: Final = "background"
SAMPLED_OUT, NO_BUDGET, LATER = "sample", "budget", BACKGROUND
# Seconds before the first retry; the wait doubles with each further retry.
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 8.0
TIMED_OUT: Final = "ModelTimeout"
_RETRIED_STATUSES: Final = frozenset({408, 409, 429})

# True in the context of a judge's call, so that callbacks on models do not examine its reply.
JUDGING: Final[ContextVar[bool]] = ContextVar("crp_judging", default=False)

# The caches of all judges, whose replies quote passages, with the lock of each.
_CACHES: Final[WeakKeyDictionary[Any, tuple[OrderedDict[str, Any], ...]]] = WeakKeyDictionary()


def _forget_replies() -> None:
    for lock in filter(None, [reference() for reference in _CACHES.keyrefs()]):
        with lock:
            for cache in _CACHES[lock]:
                cache.clear()


forgotten_with(_forget_replies)


class JudgeChoices(TypedDict, total=False):
    """How a judge is asked; each overrides a field of `JudgeSettings`.

    Attributes:
        judge_when: `always`, `doubt` or `sample:0.1`.
        judge_budget: maximum calls, or a mapping with `calls`, `tokens` or `usd`, `per` a period
            (`hour`, `day`, `month`), `of` the `process`, `store`, `tenant` or `session`.
        judge_mode: `wait` or `background`.
        judge_failure: `report` or `halt`.
    """

    judge_when: str | None
    judge_budget: int | Mapping[str, Any] | None
    judge_mode: str | None
    judge_failure: str | None


class JudgeOptions(JudgeChoices, total=False):
    """Arguments that a component takes in addition to `judge`.

    Attributes:
        on_report: called with the report of each answer, even without a judge.
    """

    on_report: OnReport | None


JUDGE_OPTIONS: Final = tuple(JudgeOptions.__annotations__)


class Judge:
    """A model that is asked which claims hold. Safe under threads; reuse it to reuse its cache.

    Spec: CRP-SPEC-005 §6.2 (decision D13)

    Args:
        model: a LiteLLM model name (`openai/gpt-4o-mini`, `ollama/qwen3`), a LangChain or
            LlamaIndex model object, or True for the model that the component itself calls.
        on_report: called with the judged report of each answer; in `background` mode the judged
            report is available only this way.
        settings: base of the fields below; None for the defaults.
        fields: fields of `JudgeSettings`, such as `when`, `failure`, `timeout_s`; any other
            field, such as `api_version`, is passed to LiteLLM with each call.

    Raises:
        ConfigError: a field has no usable value, or `model` is not a model.
        ModelNotFound: the name does not identify a provider.
    """

    # A copy would have a budget of its own.
    __deepcopy__ = share_in_copies

    def __init__(
        self,
        model: JudgeSource,
        *,
        on_report: OnReport | None = None,
        settings: JudgeSettings | None = None,
        **fields: Any,
    ) -> None:
        own = {
            name: fields.pop(name) for name in list(fields) if name in JudgeSettings.model_fields
        }
        self.settings = _settings(
            {**connection_fields(require_settings(settings, JudgeSettings), model, own), **own}
        )
        self.own = model is True
        self._named, self._source = isinstance(model, str), model
        self.on_report = _checked_receiver(on_report, self.settings, own=self.own)
        self._name, self._model, self._window = "", None, self.settings.window_tokens
        self._fallback: tuple[str, Model] | None = None
        if not self.own:
            self._name, self._model = self._open_model(model, fields)
        elif fields:
            raise ConfigError(f"{', '.join(sorted(fields))} go with a judge's name, not with True")
        if self.settings.fallback:
            # Another provider must not receive this one's address or key.
            same = same_provider(self.settings.fallback, self._name)
            self._fallback = self._open_model(self.settings.fallback, fields if same else {}, same)
        refuse_unpriced(self.settings, *self._names)
        named = " ".join((*self._names, self.settings.api_base)).rstrip()
        self._account = "own" if self.own else named
        self._lock = threading.Lock()
        self._known: OrderedDict[str, JudgeReply] = OrderedDict()
        # What `confirm` was answered: a second reading of its own, made once for each answer.
        self._confirmed: OrderedDict[str, JudgeReply] = OrderedDict()
        _CACHES[self._lock] = (self._known, self._confirmed)
        self._ledger: Ledger = process_ledger(model)
        self._breaker = Breaker()
        self._calling = JudgeCaller(
            timeout_s=self.settings.timeout_s,
            retries=self.settings.retries,
            concurrency=self.settings.concurrency,
        )
        self._pools: list[ThreadPoolExecutor] = []
        self.second: Judge | None = None
        self.second = self._own_second()

    @classmethod
    def of(
        cls,
        source: JudgeSource,
        settings: JudgeSettings | None = None,
        *,
        on_report: OnReport | None = None,
        **choices: Unpack[JudgeChoices],
    ) -> Self | None:
        """The judge for a component's arguments; None for none.

        Args:
            source: the value of `judge=`; None for the judge of the settings, False for none.
        """
        base = require_settings(settings, JudgeSettings)
        named = {name.removeprefix("judge_"): value for name, value in choices.items()}
        chosen = budget_fields(cast("int | None", named.pop("budget", None)))
        chosen |= {name: value for name, value in named.items() if value is not None}
        if isinstance(source, list | tuple):
            return cls._of_two(source, settings, on_report, choices)
        if isinstance(source, Judge):
            altered = chosen or on_report is not None
            return source.altered(on_report=on_report, **chosen) if altered else source  # type: ignore[return-value]
        if source is None:
            source = base.model or None
        if source is None or source is False:
            if chosen:
                raise RequestError(f"judge_{sorted(chosen)[0]} needs a judge; give judge=…")
            return None
        if isinstance(source, Mapping):
            fields = dict(source)
            name = fields.pop("model", None)
            if name is None or isinstance(name, bool) or name == "":
                raise RequestError("judge is a mapping without a model; give {'model': …}")
            return cls(name, on_report=on_report, settings=base, **{**fields, **chosen})
        return cls(source, on_report=on_report, settings=base, **chosen)

    @classmethod
    def _of_two(
        cls,
        sources: Sequence[JudgeSource],
        settings: JudgeSettings | None,
        on_report: OnReport | None,
        choices: JudgeChoices,
    ) -> Self:
        """A judge whose doubts a second one settles; both spend one budget."""
        missing = [part for part in sources if isinstance(part, str | bool | None) and not part]
        if len(sources) != 2 or missing or sources[1] is True:
            held = f"with {missing[0]!r}" if missing else f"of {len(sources)}"
            raise RequestError(f"judge is a list {held}; give two judges, the second one not True")
        # The list replaces a second judge of the settings.
        base = require_settings(settings, JudgeSettings)
        base = base.model_copy(update={"second": "", "confirm": False})
        first, second = (cls.of(source, base, on_report=on_report, **choices) for source in sources)
        assert first is not None
        assert second is not None
        if first.second or second.second:
            raise ConfigError(
                f"the {'first' if first.second else 'second'} judge of the list has a second one; "
                "give two judges without confirm=…, second=… or a list"
            )
        labels = {*first.settings.withhold_labels, *second.settings.withhold_labels}
        pair = cast("Self", first.altered(withhold_labels=tuple(sorted(labels))))
        pair.second = second = copy.copy(second)
        if second._known is first._known:
            second._known = first._confirmed
        pair._account = second._account = f"{first._account} {second._account}"
        second._ledger = pair._ledger
        return pair

    def _own_second(self) -> Judge | None:
        """The second judge of the settings."""
        chosen, own = self.settings, {"second": "", "confirm": False, "fallback": ""}
        if chosen.confirm and chosen.second:
            raise ConfigError(
                f"second is {chosen.second!r:.80} and confirm is True; give one of them"
            )
        if chosen.confirm:
            again = copy.copy(self)
            again.second, again._known = None, self._confirmed
            again.settings = chosen.model_copy(update=own)
            return again
        if not chosen.second:
            return None
        if not same_provider(chosen.second, self._name):
            own |= {"api_base": "", "api_key": None}
        second = Judge(chosen.second, settings=chosen.model_copy(update={"model": "", **own}))
        second._account, second._ledger = self._account, self._ledger
        return second

    def altered(self, *, on_report: OnReport | None = None, **fields: Any) -> Judge:
        """A copy with other settings; it shares model, cache and spent budgets with this judge."""
        made = copy.copy(self)
        made.settings = _settings({**self.settings.model_dump(), **fields})
        made.on_report = _checked_receiver(on_report or self.on_report, made.settings, own=self.own)
        limits = {name: value for name, value in fields.items() if name.startswith("budget_")}
        if made.settings.confirm or made.settings.second != self.settings.second:
            made.second = made._own_second()
        elif self.second is not None and limits:
            made.second = self.second.altered(**limits)
        refuse_unpriced(made.settings, *self._names)
        return made

    @property
    def name(self) -> str:
        """The model's name; empty if it is the component's own model."""
        return self._name

    def skips(self, report: Report, session_id: str = "") -> str:
        """The reason that an answer is not judged; empty if it is to be judged."""
        if self.settings.when == DOUBT and report.is_settled:
            return NO_DOUBT
        share = self.settings.share
        if share < 1.0:
            digest = sha256_hex(f"{report.response_content_hash} {session_id}")
            if int(digest[:8], 16) / 0xFFFFFFFF >= share:
                return SAMPLED_OUT
        return ""

    def reply(
        self,
        call: ModelCall,
        model: Model | None = None,
        payer: Payer = Payer(),  # noqa: B008 - it is frozen
        *,
        keep: bool = True,
    ) -> JudgeReply:
        """The judge's reply to a call. A failure is returned as a value, not raised.

        Args:
            keep: whether the reply may stay in memory; False under `no-store`.
        """
        tried = self._attempts(call, model, payer, keep=keep)
        try:
            attempt = next(tried)
            while True:
                attempt = tried.send(self._calling.call(*attempt))
        except StopIteration as ended:
            return cast("JudgeReply", ended.value)

    async def areply(
        self,
        call: ModelCall,
        model: Model | None = None,
        payer: Payer = Payer(),  # noqa: B008 - it is frozen
        *,
        keep: bool = True,
    ) -> JudgeReply:
        """The asynchronous twin of `reply`."""
        tried = self._attempts(call, model, payer, keep=keep)
        try:
            attempt = next(tried)
            while True:
                attempt = tried.send(await self._calling.acall(*attempt))
        except StopIteration as ended:
            return cast("JudgeReply", ended.value)

    def _attempts(
        self, call: ModelCall, own: Model | None, payer: Payer, *, keep: bool
    ) -> Generator[Attempt, JudgeReply, JudgeReply]:
        """Yield the calls to make, receive the reply to each, and return the final reply."""
        known = self._remembered(call)
        if known is not None:
            return known
        started = time.perf_counter()
        reply = JudgeReply(error="NoModel")
        for asked, model, context in self._models(call, own):
            if not self._breaker.admits(asked.model, self.settings):
                reply = JudgeReply(error=UNAVAILABLE)
                continue
            attempt = model, asked, context, started, self._budget(asked.model, payer)
            reply = _with_fallback_name(asked, call, (yield attempt))
            self._breaker.note(asked.model, reply.error, self.settings)
            if not reply.error or reply.error == OVER_BUDGET:
                break
        if keep:
            self._remember(call, reply)
        return reply

    def _budget(self, model: str, payer: Payer) -> JudgeBudget:
        from crp_integrations.relay.defaults import judge_most_output, judge_window

        limited = has_budget(self.settings)
        return JudgeBudget(
            self.settings,
            self._account,
            self._ledger,
            payer,
            price_of(self.settings, model),
            (self._window or judge_window(model)) if limited else 0,
            caps=self._named,
            most_output=judge_most_output(self._source) if model == self._name else None,
        )

    @property
    def _names(self) -> tuple[str, ...]:
        """Names of the models that it may ask."""
        fallback = (self._fallback[0],) if self._fallback else ()
        return fallback if self.own else (self._name, *fallback)

    def _models(self, call: ModelCall, own: Model | None) -> list[tuple[ModelCall, Model, Context]]:
        """The calls to try in order, each with its model and context variables."""
        attempts = []
        if self._model is not None:
            attempts.append((call, self._model, separate_context()))
        elif own is not None:
            attempts.append((call, own, joined_context()))
        if self._fallback is not None:
            name, model = self._fallback
            attempts.append((call.changed(model=name), model, separate_context()))
        return attempts

    def later(self, work: Callable[[], None]) -> None:
        """Run work in a background thread; the process waits for it at exit."""
        with self._lock:
            if not self._pools:
                self._pools.append(ThreadPoolExecutor(self.settings.concurrency, "crp-judge-later"))
            self._pools[0].submit(separate_context().run, _run_logged, work)

    def hand(self, report: Report, also: OnReport | None = None) -> None:
        """Pass a report to `on_report` and `also`; errors of theirs are logged, not raised."""
        call_receivers(report, self.on_report, also)

    def wait(self) -> None:
        """Wait for all judgements in the background."""
        with self._lock:
            pools = list(self._pools)
            self._pools.clear()
        for pool in pools:
            pool.shutdown(wait=True)

    def _key(self, call: ModelCall) -> str:
        turns = [[str(message.role), message.content] for message in call.messages]
        return sha256_hex(canonical([call.model, turns, repr(call.temperature), call.max_tokens]))

    def _remembered(self, call: ModelCall) -> JudgeReply | None:
        if not self.settings.cache_size:
            return None
        key = self._key(call)
        with self._lock:
            cached = self._known.get(key)
            if cached is not None:
                self._known.move_to_end(key)
        return cached

    def _remember(self, call: ModelCall, reply: JudgeReply) -> None:
        if not self.settings.cache_size or reply.error:
            return
        cached = JudgeReply(text=reply.text, model=reply.model, cached=True)
        with self._lock:
            self._known[self._key(call)] = cached
            while len(self._known) > self.settings.cache_size:
                self._known.popitem(last=False)

    def forget(self, call: ModelCall) -> None:
        """Remove a reply, such as an unreadable one, from the cache."""
        with self._lock:
            self._known.pop(self._key(call), None)

    @property
    def identity(self) -> str:
        """Hash of the model, the instructions and the settings, without the API key."""
        chosen = self.settings
        excluded = {"api_key", "cache_size", "concurrency", "retries", "timeout_s"}
        options = chosen.model_dump(mode="json", exclude=excluded)
        prompt = self.prompt.identity + (self.second.identity if self.second else "")
        return sha256_hex(canonical([self.own, self._name, prompt, repr(sorted(options.items()))]))

    @property
    def prompt(self) -> JudgePrompt:
        """The instructions that it is asked with."""
        return JudgePrompt(self.settings.prompt, self.settings.rubric, self.settings.language)

    def terms(
        self, own_model: str = "", own_window: int = 0, left_out: Iterable[tuple[str, str]] = ()
    ) -> JudgeTerms:
        """The parameters of one answer's judgement: model, prompt and limits."""
        chosen = self.settings
        window = self._window or (own_window if self.own else 0) or self._known_window()
        return JudgeTerms(
            model=own_model if self.own else self._name,
            prompt=self.prompt,
            window=window,
            most_calls=chosen.most_calls,
            max_tokens=chosen.max_tokens,
            temperature=chosen.temperature,
            own_answer=self.own or bool(own_model and own_model == self._name),
            left_out=tuple(left_out),
        )

    def _known_window(self) -> int:
        from crp_integrations.relay.defaults import judge_window

        self._window = judge_window(self._name)
        return self._window

    def _open_model(
        self, model: JudgeSource, options: Mapping[str, Any], reached: bool = True
    ) -> tuple[str, Model]:
        from crp_integrations.relay.defaults import judge_engine

        key, base = self.settings.api_key, self.settings.api_base
        arguments = dict(options)
        if not isinstance(model, str) and (key is not None or base):
            raise ConfigError(
                "api_key and api_base go with a judge's name; set them on the model object itself"
            )
        if isinstance(model, str) and reached:
            if key is not None:
                arguments["api_key"] = key.get_secret_value()
            if base:
                arguments["api_base"] = base
        return judge_engine(model, timeout_s=self.settings.timeout_s, options=arguments)


def _settings(fields: Mapping[str, Any]) -> JudgeSettings:
    try:
        return JudgeSettings(**fields)
    except ValidationError as error:
        field, problem = first_problem(error)
        raise ConfigError(f"judge field {field!r} is not usable: {problem}") from None


def _with_fallback_name(asked: ModelCall, call: ModelCall, reply: JudgeReply) -> JudgeReply:
    """A reply; one from the fallback has the fallback's name as its model."""
    if reply.error or asked.model == call.model:
        return reply
    return replace(reply, model=FALLBACK + asked.model)


def check_options(taker: str, options: Mapping[str, Any]) -> None:
    """Check the names of a component's arguments other than `judge`."""
    for name in options:
        if name not in JUDGE_OPTIONS:
            raise TypeError(f"{taker} got an unexpected keyword argument {name!r:.40}")


def refuse_own(judge: JudgeSource, taker: str) -> None:
    """Refuse `judge=True`, for a component that calls no model."""
    first = judge[0] if isinstance(judge, list | tuple) and judge else judge
    if first is True or (isinstance(first, Judge) and first.own):
        raise RequestError(
            f"judge is True, and {taker} calls no model of its own; give a model, such as "
            "judge='openai/gpt-4o-mini'"
        )


def _checked_receiver(
    on_report: OnReport | None, settings: JudgeSettings, *, own: bool
) -> OnReport | None:
    """Check and return the receiver of reports; `background` mode requires one."""
    check_receiver(on_report)
    if settings.mode == BACKGROUND and (on_report is None or own):
        missing = "on_report=…" if on_report is None else "a judge of its own, not True"
        raise RequestError(f"judge_mode is background, which needs {missing}")
    return on_report


def check_receiver(on_report: object) -> None:
    """Check that the receiver of reports is callable."""
    if on_report is not None and not callable(on_report):
        raise RequestError(f"on_report is {type(on_report).__name__}; give a function")


def call_receivers(
    report: T, *receivers: Callable[[T], None] | None, name: str = "on_report"
) -> None:
    """Call each receiver with a report; its errors are logged, so that no answer is lost by it."""
    for receiver in receivers:
        if receiver is not None:
            _run_logged(partial(receiver, report), name)


def _run_logged(work: Callable[[], None], name: str = "a judgement in the background") -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the answer is delivered; no caller awaits this
        # Only the type is logged: the message may quote a text, which no log may contain.
        _LOG.error("%s failed with %s", name, type(error).__name__)


def separate_context() -> Context:
    """An empty context, except that `JUDGING` is set."""
    context = Context()
    context.run(JUDGING.set, True)
    return context


def joined_context() -> Context:
    """A copy of the current context in which `JUDGING` is set."""
    context = copy_context()
    context.run(JUDGING.set, True)
    return context


class JudgeCaller:
    """Calls models for a judge. Safe under threads."""

    def __init__(self, *, timeout_s: float, retries: int, concurrency: int) -> None:
        """Set the limits of all calls."""
        self._timeout_s = timeout_s
        self._retries = retries
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._thread_slots = threading.BoundedSemaphore(concurrency)
        self._loop_slots: WeakKeyDictionary[Any, asyncio.Semaphore] = WeakKeyDictionary()

    def call(
        self, model: Model, call: ModelCall, context: Context, started: float, budget: JudgeBudget
    ) -> JudgeReply:
        """Make a call with retries within the timeout; a failure is returned as a value."""
        with self._thread_slots:
            until, failed = time.perf_counter() + self._timeout_s, ""
            for attempt in range(self._retries + 1):
                booking = budget.book(call)
                if isinstance(booking, str):
                    return _failed(failed or booking, started)
                try:
                    left = max(0.0, until - time.perf_counter())
                    reply = _call_in_thread(context, model, booking.call).result(left)
                    budget.settle(booking, reply)
                    return _replied(reply, started, budget)
                except FutureTimeout:
                    return _failed(TIMED_OUT, started)
                except Exception as error:  # noqa: BLE001 - no error may lose the answer
                    budget.settle(booking, error)
                    failed = _error_name(error)
                    if self._gives_up(error, attempt, until):
                        return _failed(failed, started)
                time.sleep(_wait(attempt))
        raise AssertionError

    async def acall(
        self, model: Model, call: ModelCall, context: Context, started: float, budget: JudgeBudget
    ) -> JudgeReply:
        """The asynchronous twin of `call`."""
        loop = asyncio.get_running_loop()
        with self._lock:
            slots = self._loop_slots.setdefault(loop, asyncio.Semaphore(self._concurrency))
        async with slots:
            until, failed = time.perf_counter() + self._timeout_s, ""
            for attempt in range(self._retries + 1):
                booking = await _off_loop(budget, budget.book, call)
                if isinstance(booking, str):
                    return _failed(failed or booking, started)
                running = loop.create_task(_awaited(model, booking.call), context=context)
                try:
                    async with asyncio.timeout(max(0.0, until - time.perf_counter())):
                        reply = await running
                    await _off_loop(budget, budget.settle, booking, reply)
                    return _replied(reply, started, budget)
                except TimeoutError:
                    return _failed(TIMED_OUT, started)
                except Exception as error:  # noqa: BLE001 - no error may lose the answer
                    await _off_loop(budget, budget.settle, booking, error)
                    failed = _error_name(error)
                    if self._gives_up(error, attempt, until):
                        return _failed(failed, started)
                finally:
                    running.cancel()
                await asyncio.sleep(_wait(attempt))
        raise AssertionError

    def _gives_up(self, error: Exception, attempt: int, until: float) -> bool:
        """Whether the model is not retried after an error."""
        late = time.perf_counter() + _wait(attempt) >= until
        return late or attempt == self._retries or not _is_passing(error)


def _call_in_thread(context: Context, model: Model, call: ModelCall) -> Future[Reply]:
    """Run a call in its own daemon thread: a call that hangs blocks no other call and no exit."""
    future: Future[Reply] = Future()

    def run() -> None:
        try:
            future.set_result(context.run(model.call, call))
        except BaseException as error:  # noqa: BLE001 - `result()` of the future raises it
            future.set_exception(error)

    threading.Thread(target=run, name="crp-judge", daemon=True).start()
    return future


async def _awaited(model: Model, call: ModelCall) -> Reply:
    return await model.acall(call)


async def _off_loop(budget: JudgeBudget, work: Callable[..., T], *arguments: Any) -> T:
    """Do a step of a budget, in a thread if there is a limit, which may be counted in a store."""
    if not budget.is_set:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


def _replied(reply: Reply, started: float, budget: JudgeBudget) -> JudgeReply:
    return JudgeReply(
        text=reply.text,
        model=reply.model,
        usage=budget.priced(reply.usage),
        milliseconds=_since(started),
    )


def _failed(error: str, started: float) -> JudgeReply:
    return JudgeReply(error=error, milliseconds=_since(started))


def _since(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


def _error_name(error: Exception) -> str:
    status = getattr(error, "provider_status", None)
    return f"{type(error).__name__} {status}" if status else type(error).__name__


def _is_passing(error: Exception) -> bool:
    """Whether a retry may help: the provider was busy, failed or could not be reached."""
    if not isinstance(error, ModelError):
        return False
    status = error.provider_status
    if status is None:
        return type(error).__name__ in ("ModelRateLimited", "ModelError")
    return status in _RETRIED_STATUSES or status >= 500


def _wait(attempt: int) -> float:
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**attempt)

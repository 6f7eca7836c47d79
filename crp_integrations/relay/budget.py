"""What the calls of a judge may cost, and whether its model is asked at all.

Each request to a provider is booked at its dearest outcome before it is made, and settled after
it. So neither threads nor processes that share a store exceed a budget together.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from logging import getLogger
from math import floor
from typing import Any, Final, Protocol
from weakref import finalize

import orjson

from crp_integrations.dpe.judge.inquiry import estimated
from crp_integrations.errors import ConfigError, ModelTimeout, RequestError
from crp_integrations.fabric.ports import Transaction
from crp_integrations.messages import ModelCall, ModelPrice, Reply, Usage
from crp_integrations.relay.settings import JudgeSettings
from crp_integrations.session.ports import Spending, spending_of

_LOG = getLogger("crp_integrations.judge")

OVER_BUDGET: Final = "BudgetSpent"
NO_PRICE: Final = "PriceUnknown"
# Characters of an ISO time that name the period it lies in.
PERIODS: Final[Mapping[str, int]] = {"": 0, "month": 7, "day": 10, "hour": 13}
# Most sessions whose spending is counted in memory.
MAX_SESSIONS: Final = 10_000
# A reply of fewer tokens is too short for a verdict, so no call is made for it.
LEAST_REPLY_TOKENS: Final = 500
# Tokens that a chat format adds to the texts of a call of two to four messages.
FORMAT_TOKENS: Final = 64
# Name of the namespace of a store in which the spending of all its tenants is counted.
STORE_NAMESPACE: Final = "crp:judge"
_LIMITS: Final = ("calls", "tokens", "usd")
_FIELDS: Final = (*_LIMITS, "per", "of")

# From a judge's period and what it spent in it, the amount to add; None to add nothing.
Choose = Callable[[str, Spending], Spending | None]


def budget_fields(budget: int | Mapping[str, Any] | None) -> dict[str, Any]:
    """A `judge_budget` as fields of `JudgeSettings`."""
    if budget is None:
        return {}
    if isinstance(budget, Mapping):
        unknown = set(map(str, budget)) - {*_FIELDS}
        if unknown:
            raise RequestError(
                f"judge_budget has an unknown {min(unknown)!r:.40}; give {', '.join(_FIELDS)}"
            )
        if not any(budget.get(name) is not None for name in _LIMITS):
            raise RequestError("judge_budget has no limit; give calls, tokens or usd")
        return {f"budget_{name}": value for name, value in budget.items()}
    if isinstance(budget, bool) or not isinstance(budget, int):
        raise RequestError(f"judge_budget is {budget!r:.40}; give a number of calls or a mapping")
    return {"budget_calls": budget}


class Ledger(Protocol):
    """Counts what judges spent. Safe under threads."""

    def book(self, session_id: str, judge: str, period: str, choose: Choose) -> str | None:
        """Add an amount to what a judge spent in a period.

        Returns:
            The period to which it was added, the later of the two if the judge has one already;
            None if `choose` refused.
        """
        ...


class MemoryLedger:
    """Counts in memory, for one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[str, Spending]] = {}
        self._sessions: OrderedDict[tuple[str, str], tuple[str, Spending]] = OrderedDict()

    def book(self, session_id: str, judge: str, period: str, choose: Choose) -> str | None:
        """Add an amount to what a judge spent in a period."""
        with self._lock:
            if not session_id:
                row = _booked(self._rows.get(judge), period, choose)
                if row is not None:
                    self._rows[judge] = row
                return row and row[0]
            row = _booked(self._sessions.get((session_id, judge)), period, choose)
            if row is not None:
                self._sessions[session_id, judge] = row
                self._sessions.move_to_end((session_id, judge))
                if len(self._sessions) > MAX_SESSIONS:
                    self._sessions.popitem(last=False)
            return row and row[0]


@dataclass(frozen=True, slots=True)
class StoreLedger:
    """Counts in a store's namespace, for all processes that share the store."""

    begin: Callable[[], AbstractContextManager[Transaction]]

    def book(self, session_id: str, judge: str, period: str, choose: Choose) -> str | None:
        """Add an amount to what a judge spent in a period."""
        with self.begin() as transaction:
            spending = spending_of(transaction)
            row = _booked(spending.spent(session_id, judge), period, choose)
            if row is not None:
                spending.save(session_id, judge, *row)
            return row and row[0]


def _booked(
    row: tuple[str, Spending] | None, period: str, choose: Choose
) -> tuple[str, Spending] | None:
    if row is None or row[0] < period:
        row = (period, Spending())
    added = choose(*row)
    return None if added is None else (row[0], row[1].plus(added))


# Judges named alike share what they spend in this process, however many objects they are.
PROCESS: Final = MemoryLedger()
# Ledgers of model objects by `id`, each until its object is gone.
_OBJECTS: Final[dict[int, Ledger]] = {}


def process_ledger(model: object) -> Ledger:
    """The ledger of the process for a model's name or object; judges of one object share it."""
    if isinstance(model, str):
        return PROCESS
    try:
        if id(model) not in _OBJECTS:
            finalize(model, _OBJECTS.pop, id(model), None)
    except TypeError:  # `True`, or an object without weak references
        return MemoryLedger()
    return _OBJECTS.setdefault(id(model), MemoryLedger())


@dataclass(frozen=True, slots=True)
class BudgetPlaces:
    """Where a relay counts what its judges spend.

    Attributes:
        tenant, store: ledgers in the tenant's namespace, and for all tenants of the store.
        lasting: whether the store outlasts the process.
    """

    tenant: Ledger
    store: Ledger
    lasting: bool
    now: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Payer:
    """The session that a judge's call is for; `places` is None without a relay."""

    session_id: str = ""
    places: BudgetPlaces | None = None


@dataclass(frozen=True, slots=True)
class Booking:
    """A request that was booked.

    Attributes:
        call: the request, with the maximum of tokens that the budget leaves for its reply.
    """

    call: ModelCall
    period: str
    amount: Spending


@dataclass(frozen=True, slots=True)
class JudgeBudget:
    """The budget of a judge for the calls of one payer to one model.

    Attributes:
        judge: name under which the judge's spending is counted.
        own: ledger of the process.
        price: price of the model that is asked; None if it is not known or not needed.
        window: context limit of that model in tokens.
        caps: whether the model is called by name, and so keeps to `max_tokens`.
        most_output: the most tokens of a reply that a model object states; None for none.
    """

    settings: JudgeSettings
    judge: str
    own: Ledger
    payer: Payer
    price: ModelPrice | None
    window: int
    caps: bool
    most_output: int | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return has_budget(self.settings)

    def book(self, call: ModelCall) -> Booking | str:
        """Book a request at its dearest outcome; the name of an error if it is not to be made."""
        if not self.is_set:
            return Booking(call, "", Spending())
        if self.settings.budget_usd is not None and self.price is None:
            return NO_PRICE
        chosen: list[tuple[ModelCall, Spending]] = []

        def choose(_: str, spent: Spending) -> Spending | None:
            chosen.extend(fitted := self._fitted(call, spent))
            return fitted[0][1] if fitted else None

        try:
            period = self._ledger.book(self._session, self._account, self._period(), choose)
        except Exception as error:  # noqa: BLE001 - no error may lose the answer
            _LOG.error("a judge's budget could not be read: %s", type(error).__name__)
            return type(error).__name__
        return OVER_BUDGET if period is None else Booking(chosen[0][0], period, chosen[0][1])

    def settle(self, booking: Booking, result: Reply | Exception) -> None:
        """Replace the dearest outcome of a request by its own.

        Whether a provider bills a request that timed out is not known, so it stays as booked.
        """
        if not self.is_set or isinstance(result, TimeoutError | ModelTimeout):
            return
        spent = Spending(1)
        if isinstance(result, Reply):
            usage = result.usage
            cost = self.priced(usage).cost_usd
            if not usage.total_tokens:
                # The provider does not say, so the texts are counted.
                asked = sum(estimated(message.content) for message in booking.call.messages)
                usage = Usage(prompt_tokens=asked, completion_tokens=estimated(result.text))
            spent = Spending(1, usage.total_tokens, cost or self.priced(usage).cost_usd or 0.0)
        change = spent.plus(booking.amount, -1)

        def choose(period: str, _: Spending) -> Spending | None:
            # A new period began with nothing booked.
            return change if period == booking.period else None

        try:
            self._ledger.book(self._session, self._account, booking.period, choose)
        except Exception as error:  # noqa: BLE001 - the reply is there; the booking stays
            _LOG.error("a judge's call stays booked: %s", type(error).__name__)

    def priced(self, usage: Usage) -> Usage:
        """What a reply used, with its cost; a price of the settings comes before the provider's."""
        price = self.price
        stated = self.settings.usd_per_million is not None
        if price is None or not usage.total_tokens or not (stated or usage.cost_usd is None):
            return usage
        cost = usage.prompt_tokens * price.input + usage.completion_tokens * price.output
        return usage.model_copy(update={"cost_usd": cost})

    def _fitted(self, call: ModelCall, spent: Spending) -> list[tuple[ModelCall, Spending]]:
        """The call and its dearest outcome, within what is left; empty if it does not fit."""
        chosen, price = self.settings, self.price or ModelPrice(0.0, 0.0)
        if chosen.budget_calls is not None and spent.calls >= chosen.budget_calls:
            return []
        asked = FORMAT_TOKENS + _bytes(call)
        known = call.max_tokens or self.most_output or price.most_output
        most = known or max(LEAST_REPLY_TOKENS, self.window - asked)
        left = float(most)
        if chosen.budget_tokens is not None:
            left = min(left, chosen.budget_tokens - spent.tokens - asked)
        if chosen.budget_usd is not None:
            free = chosen.budget_usd - spent.usd - asked * price.input
            if free < 0:
                return []
            left = min(left, free / price.output) if price.output else left
        reply = most if left >= most else floor(left)
        if reply < most and (not self.caps or reply < LEAST_REPLY_TOKENS):
            return []
        stated = call.max_tokens or price.most_output
        limited = chosen.budget_tokens is not None or chosen.budget_usd is not None
        if self.caps and limited and (reply < most or not stated):
            call = call.changed(max_tokens=reply)
        return [(call, Spending(1, asked + reply, asked * price.input + reply * price.output))]

    @property
    def _of(self) -> str:
        chosen, places = self.settings, self.payer.places
        lasting = places is not None and places.lasting and chosen.budget_per
        return chosen.budget_of or ("store" if lasting else "process")

    @property
    def _session(self) -> str:
        return self.payer.session_id if self._of == "session" else ""

    @property
    def _account(self) -> str:
        return f"{self.judge} {self.settings.budget_per}".rstrip()

    @property
    def _ledger(self) -> Ledger:
        places = self.payer.places
        if self._of == "process":
            return self.own
        if places is None:
            refuse_storeless(self.settings)
            return self.own
        return places.store if self._of == "store" else places.tenant

    def _period(self) -> str:
        now = self.payer.places.now() if self.payer.places else datetime.now(UTC)
        return now.astimezone(UTC).isoformat()[: PERIODS[self.settings.budget_per]]


def _bytes(call: ModelCall) -> int:
    """The most tokens that a call's input can have: no token is shorter than a byte."""
    form = orjson.dumps(call.response_format) if call.response_format else b""
    return len(form) + sum(len(message.content.encode()) for message in call.messages)


def has_budget(settings: JudgeSettings) -> bool:
    """Whether a judge's settings limit what it may spend."""
    limits = (settings.budget_calls, settings.budget_tokens, settings.budget_usd)
    return any(limit is not None for limit in limits)


def refuse_storeless(settings: JudgeSettings) -> None:
    """Refuse a budget of a store, tenant or session, where there is none."""
    if settings.budget_of not in ("", "process") and has_budget(settings):
        raise RequestError(
            f"judge_budget is of the {settings.budget_of}, and there is no relay here; give "
            "'of': 'process', or a relay"
        )


def price_of(settings: JudgeSettings, model: str) -> ModelPrice | None:
    """The price of a model: that of the settings, else LiteLLM's; None if it is not needed."""
    from crp_integrations.relay.defaults import judge_price

    stated = settings.usd_per_million
    if stated is None and settings.budget_usd is None and settings.budget_tokens is None:
        return None
    known = judge_price(model)
    if stated is None:
        return known
    asked, replied = stated if isinstance(stated, tuple) else (stated, stated)
    return ModelPrice(asked / 1e6, replied / 1e6, known.most_output if known else None)


def refuse_unpriced(settings: JudgeSettings, *models: str) -> None:
    """Refuse a budget in US dollars for a model whose price is not known."""
    for model in models if settings.budget_usd is not None else ():
        if price_of(settings, model) is None:
            raise ConfigError(
                f"judge_budget is in usd, and no price of {model!r:.80} is known; give the judge "
                "usd_per_million=…, or [input, output], or a budget of calls or tokens"
            )


# Statuses of a request that this one text caused; the provider answers.
_OWN_FAULT: Final = (" 400", " 413", " 422")


class Breaker:
    """Stops calls to a model that failed or timed out several times in a row.

    After a while one call tries again; any answer of the provider closes the breaker. Safe under
    threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def admits(self, model: str, settings: JudgeSettings) -> bool:
        """Whether a model may be asked."""
        now = time.monotonic()
        with self._lock:
            if now < self._until.get(model, 0.0):
                return False
            if model in self._until:
                # This call tries again; others wait for it as long as they waited before.
                self._until[model] = now + settings.breaker_s
            return True

    def note(self, model: str, error: str, settings: JudgeSettings) -> None:
        """Count the outcome of a call."""
        if error in (OVER_BUDGET, NO_PRICE):
            return
        with self._lock:
            if not error or error.endswith(_OWN_FAULT):
                self._failures.pop(model, None)
                self._until.pop(model, None)
                return
            failures = self._failures[model] = self._failures.get(model, 0) + 1
            opened = 0 < settings.breaker_failures <= failures
            if opened:
                self._until[model] = time.monotonic() + settings.breaker_s
        if opened:
            _LOG.warning(
                "the judge failed %d times in a row, the last time with %s; it is not asked for "
                "%g s", failures, error, settings.breaker_s,
            )  # fmt: skip

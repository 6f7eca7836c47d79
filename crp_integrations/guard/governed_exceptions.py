"""Governed exceptions: a way past the guard with an owner, an end and a trigger to end it earlier.

There is no other way past a guard. An exception names its subjects, actions and labels; one that
has expired, was rolled back or does not cover the question has no effect. `ExceptionGuard` wraps a
guard with a registry of exceptions and reports each use to its hooks. It checks the clock at each
decision, so its answers must not be cached beyond the next expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Any, Final, Protocol

from pydantic import AfterValidator, Field, ValidationError, model_validator

from crp_integrations.errors import AccessDenied, RequestError
from crp_integrations.guard.decisions import Action, Decision, Guard, Subject
from crp_integrations.ports import Clock
from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import EventType

# Messages by pydantic's error type.
_WANTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "missing": "is missing",
        "extra_forbidden": "is not a field of an exception",
        "model_type": "wanted an object",
        "tuple_type": "wanted a list",
        "too_short": "wanted at least one",
        "string_type": "wanted a text",
        "datetime_type": "wanted a time such as 2026-05-25T10:00:00Z",
        "datetime_parsing": "wanted a time such as 2026-05-25T10:00:00Z",
        "datetime_from_date_parsing": "wanted a time such as 2026-05-25T10:00:00Z",
        "timezone_aware": "wanted a time with its zone, such as 2026-05-25T10:00:00Z",
    }
)


def field_error(kind: str, problem: str) -> str:
    """The problem of a field, in this package's words."""
    message = _WANTED.get(kind) or problem.removeprefix("Value error, ")
    return message.replace("Input should be", "wanted")


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"moment {moment.isoformat()} has no time zone; write it with one")
    return moment.astimezone(UTC)


def _word(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; an exception without it is refused")
    return text.strip()


_Moment = Annotated[datetime, AfterValidator(_utc)]
_Word = Annotated[str, AfterValidator(_word)]
_Words = Annotated[tuple[_Word, ...], Field(min_length=1)]


class RollbackTrigger(Part):
    """Ends an exception before its expiry after a number of events of a type since its grant."""

    event: EventType
    count: int = Field(default=1, ge=1)


class ExceptionScope(Part):
    """The questions that an exception covers; every condition must be true.

    Attributes:
        subjects: names of its subjects; `*` for every subject of the tenant.
        labels: labels that things may have, at least one; a thing with another label, or without
            any, is not covered.
        personal: whether personal data may be seen; if not, it is removed from every text.
    """

    tenant: _Word
    subjects: _Words
    actions: Annotated[tuple[Action, ...], Field(min_length=1)]
    labels: _Words
    personal: bool = False

    def covers(self, subject: Subject, action: str, labels: Iterable[str]) -> bool:
        """Whether the exception covers a question to the guard."""
        carried = set(labels)
        return (
            subject.tenant == self.tenant
            and ("*" in self.subjects or subject.name in self.subjects)
            and action in self.actions
            # Without labels it is unknown what a thing is, so no exception covers it.
            and bool(carried)
            and carried <= set(self.labels)
        )


class GovernedException(Record):
    """A bypass of the guard with a responsible owner.

    Spec: Summit §Governed Exceptions

    Attributes:
        id: id in decisions, the ledger and the events of its uses.
        granted_at, expires_at: when it holds; the end is not included.
        rollback: trigger that ends it earlier.
        decisions: ids of the policy decisions by which it was granted, at least one.
        hooks: names of the audit hooks that are called at every use, at least one.
    """

    SCHEMA = "governed-exception/1"

    id: _Word
    owner: _Word
    reason: _Word
    granted_at: _Moment
    expires_at: _Moment
    rollback: RollbackTrigger
    scope: ExceptionScope
    decisions: _Words
    hooks: _Words
    revoked_at: _Moment | None = None

    @model_validator(mode="after")
    def _ends(self) -> GovernedException:
        if self.expires_at <= self.granted_at:
            raise ValueError("expires_at is not after granted_at")
        return self

    def state(self, now: datetime, events: Iterable[tuple[str, datetime]] = ()) -> str:
        """`active`, `not-yet`, `expired`, `revoked` or `rolled-back`."""
        if self.revoked_at is not None and now >= self.revoked_at:
            return "revoked"
        if now >= self.expires_at:
            return "expired"
        if now < self.granted_at:
            return "not-yet"
        seen = sum(
            kind == self.rollback.event and self.granted_at <= when <= now for kind, when in events
        )
        return "rolled-back" if seen >= self.rollback.count else "active"


def grant_exception(fields: Mapping[str, Any]) -> GovernedException:
    """An exception from its written fields; raises if they are not valid.

    Spec: Summit §Governed Exceptions
    """
    try:
        return GovernedException.model_validate(dict(fields))
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'exception'}: "
            f"{field_error(fault['type'], fault['msg'])}"
            for fault in error.errors(include_url=False, include_input=False)
        )
        called = f"{fields['id']!r:.60}" if isinstance(fields.get("id"), str) else "without an id"
        raise RequestError(f"governed exception {called} is refused: {wrong}") from None


class LedgerEntry(Part):
    """An exception in the ledger: what it allows, its owner, whether it holds."""

    id: str
    owner: str
    state: str
    expires_at: datetime
    scope: ExceptionScope
    decisions: tuple[str, ...]
    uses: int = Field(default=0, ge=0)


class ExceptionUse(Part):
    """One use of an exception, as it is passed to the audit hooks.

    Attributes:
        denied_by: name of the guard whose denial was bypassed; empty if no guard was asked.
        denial: id of that denial; empty for none.
    """

    exception: str
    owner: str
    subject: str
    tenant: str
    action: Action
    labels: tuple[str, ...]
    decisions: tuple[str, ...]
    denied_by: str
    at: datetime
    denial: str = ""


class ExceptionEvents(Protocol):
    """The events of the journal that rollback triggers need."""

    def __call__(self, tenant: str) -> Iterable[tuple[str, datetime]]:
        """Type and time of the events of a tenant's namespace."""
        ...


Hook = Callable[[ExceptionUse], None]


def _no_events(tenant: str) -> Iterable[tuple[str, datetime]]:
    return ()


class ExceptionGuard:
    """A guard whose denials can be bypassed by registered exceptions while they hold.

    Thread-safe if its hooks are. A hook that is missing or fails makes it deny: each use must be
    reported.

    Spec: Summit §Governed Exceptions
    """

    def __init__(
        self,
        guard: Guard,
        exceptions: Sequence[GovernedException],
        clock: Clock,
        hooks: Mapping[str, Hook],
        events: ExceptionEvents = _no_events,
    ) -> None:
        """Register exceptions for a guard."""
        ids = [exception.id for exception in exceptions]
        twice = sorted({id_ for id_ in ids if ids.count(id_) > 1})
        if twice:
            raise RequestError(f"governed exceptions are registered twice: {', '.join(twice)}")
        for exception in exceptions:
            missing = sorted(set(exception.hooks) - set(hooks))
            if missing:
                raise RequestError(
                    f"governed exception {exception.id!r} names audit hooks that do not exist: "
                    f"{', '.join(missing)}"
                )
        self._guard = guard
        self._exceptions = tuple(sorted(exceptions, key=lambda exception: exception.id))
        self._clock = clock
        self._hooks = dict(hooks)
        self._events = events
        self._uses: dict[str, int] = dict.fromkeys(ids, 0)

    @property
    def name(self) -> str:
        """The wrapped guard's name, and that exceptions are registered."""
        return f"{self._guard.name}+exceptions"

    def decide(self, subject: Subject, action: Action, labels: tuple[str, ...]) -> Decision:
        """The guard's decision, or that of the first exception that holds and covers the question.

        A subject without a tenant is denied, whatever exceptions are registered.
        """
        decision = self._guard.decide(subject, action, labels)
        # A question that the guard failed to decide is denied, whatever exceptions exist.
        if decision.allowed or decision.failed or not subject.tenant.strip():
            return decision
        now = self._clock.now()
        over: list[str] = []
        for exception in self._exceptions:
            if not exception.scope.covers(subject, action, labels):
                continue
            state = exception.state(now, self._events(subject.tenant))
            if state != "active":
                over.append(f"exception {exception.id} is {state}")
                continue
            self._tell(exception, subject, action, labels, decision, now)
            return self._passing(exception)
        if over:
            reason = f"{decision.reason}; {'; '.join(over)}"
            # An exception that does not hold yet may hold later, so the denial is not lasting.
            return decision.model_copy(update={"reason": reason, "lasting": False})
        return decision

    def bypass(
        self, id_: str, subject: Subject, action: Action, labels: tuple[str, ...]
    ) -> Decision:
        """Allow code that asks no guard to continue, under the exception that it names.

        Spec: Summit §Backlog Isolate 16
        """
        exception = next((exception for exception in self._exceptions if exception.id == id_), None)
        if exception is None:
            raise AccessDenied(
                f"bypass {id_!r:.80} is not registered as a governed exception, so {action} is "
                "denied"
            )
        now = self._clock.now()
        state = exception.state(now, self._events(subject.tenant))
        if state != "active":
            raise AccessDenied(f"governed exception {id_!r} is {state}, so {action} is denied")
        if not subject.tenant.strip() or not exception.scope.covers(subject, action, labels):
            raise AccessDenied(
                f"governed exception {id_!r} is not for {action} by {subject.name!r:.80} of "
                "things with these labels, so it is denied"
            )
        none = Decision(allowed=False, guard="", reason="no guard was asked")
        self._tell(exception, subject, action, labels, none, now)
        return self._passing(exception)

    def ledger(self) -> tuple[LedgerEntry, ...]:
        """Every registered exception with its scope and state, by id.

        Spec: Summit §Governed Exceptions
        """
        now = self._clock.now()
        return tuple(
            LedgerEntry(
                id=exception.id,
                owner=exception.owner,
                state=exception.state(now, self._events(exception.scope.tenant)),
                expires_at=exception.expires_at,
                scope=exception.scope,
                decisions=exception.decisions,
                uses=self._uses[exception.id],
            )
            for exception in self._exceptions
        )

    def _passing(self, exception: GovernedException) -> Decision:
        return Decision(
            allowed=True,
            guard=self.name,
            reason=f"governed exception {exception.id} of {exception.owner} holds until "
            f"{exception.expires_at.isoformat()}",
            id=f"ge:{exception.id}",
            redact=() if exception.scope.personal else ("*",),
            lasting=False,
        )

    def _tell(
        self,
        exception: GovernedException,
        subject: Subject,
        action: Action,
        labels: tuple[str, ...],
        decision: Decision,
        now: datetime,
    ) -> None:
        used = ExceptionUse(
            exception=exception.id,
            owner=exception.owner,
            subject=subject.name,
            tenant=subject.tenant,
            action=action,
            labels=labels,
            decisions=exception.decisions,
            denied_by=decision.guard,
            at=now,
            denial=decision.id,
        )
        for name in exception.hooks:
            try:
                self._hooks[name](used)
            except Exception as error:
                raise AccessDenied(
                    f"audit hook {name!r} of governed exception {exception.id!r} failed "
                    f"({type(error).__name__}), so {action} is denied"
                ) from error
        self._uses[exception.id] += 1


def audit_exceptions(
    exceptions: Iterable[GovernedException],
    bypasses: Iterable[str],
    now: datetime,
    events: ExceptionEvents = _no_events,
) -> tuple[str, ...]:
    """The bypasses that no active exception covers; an audit fails if there are any.

    Spec: Summit §Backlog Isolate 16
    """
    known = {
        exception.id
        for exception in exceptions
        if exception.state(now, events(exception.scope.tenant)) == "active"
    }
    return tuple(sorted(set(bypasses) - known))

"""Governed exceptions: what is refused, when they stop, who hears of a use, the ledger."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from crp_integrations.errors import AccessDenied, RequestError
from crp_integrations.guard.decisions import Decision, Subject, require
from crp_integrations.guard.governed_exceptions import (
    ExceptionGuard,
    ExceptionUse,
    audit_exceptions,
    grant_exception,
)
from tests.doubles import NOON, FixedClock

ANNA = Subject(tenant="acme", name="anna")
LABELS = ("export:restricted",)
HOUR = timedelta(hours=1)


def written(**more: Any) -> dict[str, Any]:
    fields = {
        "id": "legacy-export",
        "owner": "kim@acme.example",
        "reason": "The old export runs until the new one is there.",
        "granted_at": NOON - HOUR,
        "expires_at": NOON + HOUR,
        "rollback": {"event": "POLICY_VIOLATION", "count": 2},
        "scope": {
            "tenant": "acme",
            "subjects": ["anna"],
            "actions": ["read"],
            "labels": ["export:restricted", "pii:low"],
        },
        "decisions": ["dec-7"],
        "hooks": ["journal"],
    }
    return {**fields, **more}


class Denying:
    name = "denying"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        allowed = not labels
        return Decision(allowed=allowed, guard=self.name, reason="labels are denied")


class World:
    """A guard with one exception, its clock, its uses and its events."""

    def __init__(self, **more: Any) -> None:
        self.clock = FixedClock()
        self.uses: list[ExceptionUse] = []
        self.events: list[tuple[str, Any]] = []
        self.guard = ExceptionGuard(
            Denying(),
            [grant_exception(written(**more))],
            self.clock,
            {"journal": self.uses.append},
            lambda tenant: self.events,
        )

    def allows(self, subject: Subject = ANNA, action: Any = "read", labels: Any = LABELS) -> bool:
        return self.guard.decide(subject, action, labels).allowed


@pytest.mark.requirement("SUM-exception-1")
@pytest.mark.parametrize(
    "field", ["owner", "expires_at", "rollback", "decisions", "hooks", "scope"]
)
def test_an_exception_without_what_makes_it_one_is_refused(field: str) -> None:
    fields = written()
    del fields[field]
    with pytest.raises(RequestError, match=field):
        grant_exception(fields)
    for empty in ("", " ", None, (), {}):
        with pytest.raises(RequestError, match=field):
            grant_exception(written(**{field: empty}))
    assert grant_exception(written()).owner == "kim@acme.example"
    with pytest.raises(RequestError, match="not after"):
        grant_exception(written(expires_at=NOON - HOUR))
    with pytest.raises(RequestError, match="time zone"):
        grant_exception(written(expires_at=NOON.replace(tzinfo=None)))


def test_a_refusal_says_which_exception_of_a_file_it_is() -> None:
    with pytest.raises(
        RequestError, match=r"^governed exception 'legacy-export' is refused: owner"
    ):
        grant_exception(written(owner=""))
    unnamed = written()
    del unnamed["id"]
    with pytest.raises(RequestError, match=r"^governed exception without an id is refused: id"):
        grant_exception(unnamed)


def test_every_use_is_told_to_the_hooks_and_the_ledger_lists_scope_and_decisions() -> None:
    world = World()
    decision = require(world.guard, ANNA, "read", LABELS)
    assert "legacy-export" in decision.reason
    assert (decision.guard, world.guard.name) == ("denying+exceptions",) * 2
    used = world.uses[0]
    assert (used.exception, used.subject, used.labels, used.decisions, used.denied_by) == (
        "legacy-export", "anna", LABELS, ("dec-7",), "denying",
    )  # fmt: skip
    (entry,) = world.guard.ledger()
    assert (entry.state, entry.uses, entry.owner) == ("active", 1, "kim@acme.example")
    assert entry.scope.labels == ("export:restricted", "pii:low")
    assert entry.decisions == ("dec-7",)


def test_a_hook_that_is_not_there_or_fails_lets_nothing_pass() -> None:
    with pytest.raises(RequestError, match="audit hooks that do not exist: journal"):
        ExceptionGuard(Denying(), [grant_exception(written())], FixedClock(), {})

    def broken(used: ExceptionUse) -> None:
        raise OSError("the disk is full")

    guard = ExceptionGuard(
        Denying(), [grant_exception(written())], FixedClock(), {"journal": broken}
    )
    with pytest.raises(AccessDenied, match="'journal' of governed exception 'legacy-export'"):
        guard.decide(ANNA, "read", LABELS)
    assert guard.ledger()[0].uses == 0
    with pytest.raises(RequestError, match="twice"):
        ExceptionGuard(
            Denying(), [grant_exception(written())] * 2, FixedClock(), {"journal": broken}
        )


@pytest.mark.requirement("SUM-exception-3")
def test_an_expired_exception_stops_working_at_once() -> None:
    world = World()
    assert world.allows()
    world.clock.moment = NOON + HOUR - timedelta(microseconds=1)
    assert world.allows()
    world.clock.moment = NOON + HOUR
    assert not world.allows()
    with pytest.raises(AccessDenied, match="exception legacy-export is expired"):
        require(world.guard, ANNA, "read", LABELS)
    assert world.guard.ledger()[0].state == "expired"
    world.clock.moment = NOON - 2 * HOUR
    assert not world.allows()
    assert len(world.uses) == 2


def test_a_rollback_trigger_and_a_revocation_end_it_sooner() -> None:
    world = World()
    world.events = [("POLICY_VIOLATION", NOON - 2 * HOUR), ("POLICY_VIOLATION", NOON)]
    assert world.allows()
    world.events.append(("POLICY_VIOLATION", NOON))
    assert not world.allows()
    assert world.guard.ledger()[0].state == "rolled-back"
    assert not World(revoked_at=NOON).allows()
    assert World(revoked_at=NOON + HOUR / 2).allows()


@pytest.mark.parametrize(
    ("subject", "action", "labels"),
    [
        (Subject(tenant="other", name="anna"), "read", LABELS),
        (Subject(tenant="", name="anna"), "read", LABELS),
        (Subject(tenant="acme", name="eve"), "read", LABELS),
        (ANNA, "write", LABELS),
        (ANNA, "read", ("export:restricted", "pii:high")),
    ],
)
def test_outside_of_its_scope_it_changes_nothing(subject: Any, action: Any, labels: Any) -> None:
    world = World()
    assert not world.allows(subject, action, labels)
    assert world.uses == []
    assert World().guard.decide(ANNA, "read", ()).guard == "denying"


class Strict:
    """A guard that denies whatever it is asked."""

    name = "strict"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        return Decision(allowed=False, guard=self.name, reason="everything is denied")


def test_what_carries_no_label_is_covered_by_no_exception() -> None:
    uses: list[ExceptionUse] = []
    registered = grant_exception(written())
    guard = ExceptionGuard(Strict(), [registered], FixedClock(), {"journal": uses.append})
    assert guard.decide(ANNA, "read", LABELS).allowed
    assert not registered.scope.covers(ANNA, "read", ())
    assert not guard.decide(ANNA, "read", ()).allowed
    with pytest.raises(AccessDenied, match="is not for read"):
        guard.bypass("legacy-export", ANNA, "read", ())
    assert len(uses) == 1


@pytest.mark.requirement("SUM-exception-1")
@pytest.mark.parametrize("labels", [None, [], [" "]])
def test_an_exception_that_names_no_label_is_refused(labels: Any) -> None:
    scope = dict(written()["scope"])
    del scope["labels"]
    if labels is not None:
        scope["labels"] = labels
    with pytest.raises(RequestError, match=r"scope\.labels"):
        grant_exception(written(scope=scope))


def test_a_runtime_audit_names_each_bypass_that_nobody_answers_for() -> None:
    registry = [grant_exception(written()), grant_exception(written(id="old-import"))]
    assert audit_exceptions(registry, ["legacy-export", "old-import"], NOON) == ()
    assert audit_exceptions(registry, ["shadow", "legacy-export", "dump"], NOON) == (
        "dump",
        "shadow",
    )
    assert audit_exceptions(registry, ["legacy-export"], NOON + 2 * HOUR) == ("legacy-export",)

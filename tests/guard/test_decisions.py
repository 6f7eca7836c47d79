"""Decisions of the guards that need no engine; no tenant sees the canary of another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import AccessDenied
from crp_integrations.guard.decisions import LOCAL, AllowAll, Decision, Subject, require
from tests.bench.canaries import TENANTS, Canaries

ACTIONS = ("read", "write", "erase")


class OnlyPublic:
    name = "only-public"

    def decide(self, subject, action, labels):
        allowed = set(labels) <= {"public"}
        return Decision(allowed=allowed, guard=self.name, reason="labels other than public")


class Broken:
    name = "broken"

    def decide(self, subject, action, labels):
        raise RuntimeError("the engine is down")


@given(st.sampled_from(ACTIONS), st.lists(st.text()).map(tuple))
def test_the_local_guard_allows_everything_to_a_tenant_and_names_itself(action, labels):
    decision = require(AllowAll(), LOCAL, action, labels)
    assert (decision.allowed, decision.guard) == (True, "allow-all")


@given(st.sampled_from(["", " ", "\t\n"]), st.sampled_from(ACTIONS))
def test_no_tenant_is_denied_by_every_guard(tenant, action):
    nobody = Subject(tenant=tenant, name="visitor")
    assert not AllowAll().decide(nobody, action, ()).allowed
    with pytest.raises(AccessDenied, match="'visitor' names no tenant") as caught:
        require(AllowAll(), nobody, action)
    assert caught.value.status_hint == 403


def test_a_denial_names_guard_action_subject_and_reason():
    with pytest.raises(AccessDenied, match="'only-public' denies read to subject 'local': labels"):
        require(OnlyPublic(), LOCAL, "read", ("secret",))
    assert require(OnlyPublic(), LOCAL, "read", ("public",)).allowed


def test_a_guard_that_fails_allows_nothing():
    with pytest.raises(RuntimeError, match="down"):
        require(Broken(), LOCAL, "read")


QUERIES = 1_000
WAYS = ["count", "edge", "filter", "id", "question", "vector", "vector of an id", "word"]


@pytest.mark.requirement("SUM-fail-2")
@pytest.mark.requirement("SUM-privacy-1")
def test_no_canary_of_another_tenant_comes_out_of_any_way_of_asking() -> None:
    found = Canaries(seed=1).run(QUERIES)
    assert TENANTS == 20
    assert sorted(found.asked) == WAYS
    assert sum(found.asked.values()) == QUERIES
    assert found.leaks.total() == 0, found.as_json()
    # The ways do find what is one's own.
    assert found.own > QUERIES / 10


@pytest.mark.requirement("SUM-fail-2")
def test_with_the_guard_removed_every_way_leaks() -> None:
    found = Canaries(AllowAll(), seed=1).run(QUERIES // 3)
    assert sorted(way for way, leaks in found.leaks.items() if leaks) == WAYS

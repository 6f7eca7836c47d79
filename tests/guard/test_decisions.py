from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import AccessDenied
from crp_integrations.guard.decisions import LOCAL, AllowAll, Decision, Subject, require

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

"""A child policy only tightens, directive by directive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import PolicyRelaxed
from crp_integrations.policy.directives import PROFILE_TEXTS
from crp_integrations.policy.inheritance import (
    MODES,
    apply_mode,
    combine_strictest,
    tighten,
)
from crp_integrations.policy.policy_text import parse_policy, render_policy
from crp_integrations.policy.records import Policy
from crp_integrations.vocabulary import SafetyMode
from tests.policy.policies import COARSE, policies

# What related facts §8 says, written down once more: the place of each value from lax to strict.
_LEVEL = {None: 0, "CRITICAL": 1, "HIGH": 2, "MEDIUM": 3}
_OVERSIGHT = {None: 0, "log-only": 1, "auto": 2, "human-review": 3, "halt": 4}
_REPETITION = {None: 0, "SIGNIFICANT": 1, "MINOR": 2, "NONE": 3}
_UPGRADE = {None: 0, "batch": 1, "hierarchical": 2, "reflexive": 3}
Place = Callable[[Any, Any], bool]


def _by(order: dict[Any, int]) -> Place:
    return lambda parent, child: order[child] >= order[parent]


def _threshold(parent: float | None, child: float | None) -> bool:
    return parent is None or (child is not None and child >= parent)


def _flag(parent: bool, child: bool) -> bool:
    return child or not parent


def _fewer(parent: tuple[str, ...], child: tuple[str, ...]) -> bool:
    return not set(child) - set(parent)


def _tiers(parent: tuple[str, ...], child: tuple[str, ...]) -> bool:
    return not parent or (bool(child) and not set(child) - set(parent))


def _more(parent: tuple[str, ...], child: tuple[str, ...]) -> bool:
    return not set(parent) - set(child)


def _dropped(parent: str | None, child: str | None) -> bool:
    # The other way round: what permits something may be dropped and not added.
    return child is None or parent is not None


ORACLE: dict[str, Place] = {
    "default_src": _fewer,
    "halt_on": _by(_LEVEL),
    "warn_on": _by(_LEVEL),
    "ask_again_on": _by(_LEVEL),
    "repair_on": _by(_LEVEL),
    "require_grounding": _threshold,
    "require_entailment": _threshold,
    "require_flow": _threshold,
    "require_completeness": _threshold,
    "require_quality": _tiers,
    "require_oversight": _by(_OVERSIGHT),
    "oversight": _by(_OVERSIGHT),
    "block_ungrounded": _flag,
    "block_parametric": _flag,
    "block_pii": _flag,
    "block_fabrication": _flag,
    "block_distortion": _flag,
    "block_repetition": _flag,
    "max_repetition": _by(_REPETITION),
    "upgrade_on_risk": _by(_UPGRADE),
    "unchecked": _dropped,
    "report_uri": _more,
    "report_to": _more,
}


def relaxed(parent: Policy, child: Policy) -> list[str]:
    return [
        field
        for field, strict in ORACLE.items()
        if not strict(getattr(parent, field), getattr(child, field))
    ]


def test_the_oracle_knows_every_directive() -> None:
    assert list(ORACLE) == list(Policy.model_fields)


@given(policies(COARSE), policies(COARSE), st.data())
@settings(max_examples=300)
def test_a_child_is_accepted_exactly_when_it_is_tighter_everywhere(
    parent: Policy, other: Policy, data: st.DataObject
) -> None:
    # Two random policies are hardly ever comparable; a few fields of another make a near child.
    fields = data.draw(st.sets(st.sampled_from(sorted(ORACLE)), max_size=3))
    child = parent.changed(**{field: getattr(other, field) for field in fields})
    wrong = relaxed(parent, child)
    if not wrong:
        assert tighten(parent, child) == child
        return
    with pytest.raises(PolicyRelaxed) as caught:
        tighten(parent, child)
    assert caught.value.directive == wrong[0].replace("_", "-")


@given(policies(), policies())
def test_two_policies_at_random(parent: Policy, child: Policy) -> None:
    if relaxed(parent, child):
        with pytest.raises(PolicyRelaxed):
            tighten(parent, child)
    else:
        assert tighten(parent, child) == child


@given(policies(COARSE), policies(COARSE))
def test_both_written_together_tighten_each(one: Policy, other: Policy) -> None:
    # Duplicates: the most restrictive of each directive holds, so the whole tightens both. What
    # permits something is written by whoever writes the whole.
    fewer = one.changed(report_uri=(), report_to=(), unchecked=other.unchecked)
    both = parse_policy(f"{render_policy(fewer)}; {render_policy(other)}")
    assert relaxed(fewer, both) == relaxed(other, both) == []


@given(policies())
def test_without_a_child_the_parents_policy_holds(parent: Policy) -> None:
    assert tighten(parent, None) == parent == tighten(parent, parent)


@pytest.mark.parametrize(
    ("parent", "child", "directive", "wanted", "seen"),
    [
        ("halt-on HIGH", "halt-on CRITICAL", "halt-on", "HIGH", "CRITICAL"),
        ("halt-on HIGH; block-pii", "halt-on HIGH", "block-pii", "present", "absent"),
        ("require-flow 0.70", "require-flow 0.69", "require-flow", "0.70", "0.69"),
        ("require-flow 0.00", "block-pii", "require-flow", "0.00", "absent"),
        ("require-quality S A", "require-quality B", "require-quality", "S A", "S A B"),
        (
            "block-pii",
            "block-pii; default-src context ckf",
            "default-src",
            "context parametric",
            "context ckf",
        ),
        ("oversight halt", "oversight human-review", "oversight", "halt", "human-review"),
        (
            "report-uri https://a.example/",
            "report-uri https://b.example/",
            "report-uri",
            "https://a.example/",
            "https://b.example/",
        ),
        ("halt-on HIGH", "halt-on HIGH; unchecked allow", "unchecked", "absent", "allow"),
        (
            "upgrade-on-risk reflexive",
            "upgrade-on-risk batch",
            "upgrade-on-risk",
            "reflexive",
            "batch",
        ),
    ],
)
def test_a_refusal_names_directive_and_both_values(
    parent: str, child: str, directive: str, wanted: str, seen: str
) -> None:
    with pytest.raises(PolicyRelaxed, match="safety_policy_inheritance_violation") as caught:
        tighten(parse_policy(parent), parse_policy(child))
    error = caught.value
    assert (error.directive, error.parent, error.child) == (directive, wanted, seen)
    assert error.status_hint == 403
    assert all(word in str(error) for word in (directive, wanted, seen))


@given(policies(COARSE), st.sampled_from((*SafetyMode, None)))
def test_a_safety_mode_adds_its_directives_and_relaxes_none(
    policy: Policy, mode: SafetyMode | None
) -> None:
    moded = apply_mode(policy, mode)
    assert tighten(policy, moded) == moded
    assert moded.default_src == policy.default_src
    if mode in (None, SafetyMode.PERMISSIVE):
        assert moded == policy
    else:
        aside = {"default_src": policy.default_src, "unchecked": policy.unchecked}
        assert relaxed(MODES[mode].changed(**aside), moded) == []
    assert moded.unchecked == policy.unchecked


@given(policies(COARSE), policies(COARSE))
def test_two_in_force_side_by_side_permit_what_both_permit(one: Policy, other: Policy) -> None:
    both = combine_strictest(one, other)
    assert both.allows_unread is (one.allows_unread and other.allows_unread)
    assert both.unchecked == combine_strictest(other, one).unchecked


def test_the_medical_profile_may_be_tightened_and_no_other_profile_does() -> None:
    medical = parse_policy(PROFILE_TEXTS["medical"])
    assert tighten(medical, parse_policy("profile=medical; halt-on MEDIUM")).halt_on == "MEDIUM"
    for name in ("financial", "developer", "public-facing"):
        with pytest.raises(PolicyRelaxed):
            tighten(medical, parse_policy(PROFILE_TEXTS[name]))

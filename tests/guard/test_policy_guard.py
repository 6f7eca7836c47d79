"""The policy guard: what it denies whatever the policy says, what it remembers, its ids."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crp_integrations
from crp_integrations.dpe.catalogue import catalogue
from crp_integrations.engines.guards import run_tests
from crp_integrations.engines.rego import RegoEngine
from crp_integrations.errors import AccessDenied, EngineError
from crp_integrations.guard.access import access
from crp_integrations.guard.decisions import (
    PolicyDecisionRef,
    PolicyGuard,
    Resource,
    Subject,
    require,
)
from crp_integrations.guard.ports import Bundle

ANNA = Subject(tenant="acme", name="anna", roles=("reader",))
OLGA = Subject(tenant="acme", name="olga", roles=("operator",))
ACTIONS = ("read", "write", "erase")
# Where retrieval and summarisation are done.
RETRIEVAL = ("fabric", "envelope", "governance", "language")
REGULATIONS = ("ai_act", "AiActClass", "nist_", "iso_42001", "gdpr", "Classification")
LABELS = st.lists(
    st.sampled_from(("class:public", "class:internal", "pii:low", "tenant:acme", "tenant:globex")),
    unique=True,
).map(lambda labels: tuple(sorted(labels)))


class Saying:
    """An engine that says one thing, counts how often it is asked, or fails."""

    identity = "saying 1"

    def __init__(self, told: Mapping[str, Any] | None) -> None:
        self.told = told
        self.asked: list[Mapping[str, Any]] = []

    def decide(self, bundle: Bundle, question: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(question)
        if self.told is None:
            raise EngineError("the engine is down", engine="saying")
        return self.told


def guard(told: Mapping[str, Any] | None, **more: Any) -> tuple[PolicyGuard, Saying]:
    engine = Saying(told)
    return PolicyGuard(engine, access(), **more), engine


@pytest.mark.requirement("SUM-store-4")
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    ("subject", "resource", "reason"),
    [
        (Subject(tenant="", name="anna"), Resource(tenant="", labels=("a:b",)), "no tenant"),
        (Subject(tenant=" ", name="anna"), Resource(tenant=" ", labels=("a:b",)), "no tenant"),
        (ANNA, Resource(tenant="globex", labels=("class:public",)), "another tenant"),
        (OLGA, Resource(tenant="acme", labels=("a:b", "tenant:globex")), "another tenant"),
        (OLGA, Resource(tenant="acme", labels=("tenant:acme",)), "no label"),
        (ANNA, Resource(tenant="acme"), "no label"),
        (ANNA, Resource(tenant="acme", labels=(" ",)), "no label"),
    ],
)
def test_what_no_policy_may_loosen_is_denied_before_an_engine_is_asked(
    action: Any, subject: Subject, resource: Resource, reason: str
) -> None:
    loose, engine = guard({"allow": True})
    found = loose.authorize(subject, action, resource)
    assert not found.allowed
    assert reason in found.reason
    assert engine.asked == []
    fine = loose.authorize(ANNA, action, Resource(tenant="acme", labels=("a:b",)))
    assert fine.allowed


@pytest.mark.requirement("SUM-store-4")
@pytest.mark.parametrize(
    "told",
    [None, {}, {"allow": "yes"}, {"allow": 1}, {"allow": True, "redact": "*"}, {"result": True}],
)
def test_an_engine_that_fails_or_says_no_decision_denies(told: Any) -> None:
    failing, engine = guard(told)
    found = failing.decide(ANNA, "read", ("class:public",))
    assert (found.allowed, found.failed, found.lasting) == (False, True, False)
    assert "the policy engine failed" in found.reason
    with pytest.raises(AccessDenied, match=r"denies read to subject 'anna': the policy engine"):
        require(failing, ANNA, "read", ("class:public",))
    # Nothing of it is remembered: an engine that is back decides again.
    engine.told = {"allow": True}
    assert failing.decide(ANNA, "read", ("class:public",)).allowed


@pytest.mark.requirement("SUM-api-4")
@given(st.sampled_from(ACTIONS), LABELS, st.sampled_from(("acme", "globex")))
def test_every_decision_is_a_reference_and_equal_questions_have_equal_ids(
    action: Any, labels: tuple[str, ...], tenant: str
) -> None:
    resource = Resource(tenant=tenant, labels=labels)
    first = PolicyGuard(ENGINE, access()).authorize(ANNA, action, resource)
    again = PolicyGuard(ENGINE, access()).authorize(ANNA, action, resource)
    assert isinstance(first, PolicyDecisionRef)
    assert first == again
    assert first.id.startswith("pd:")
    # Deny by default: only what is granted to a reader, of the own tenant, is allowed.
    classes = set(labels) - {"tenant:acme"}
    granted = bool(classes) and classes <= {"class:public", "class:internal", "pii:low"}
    wanted = granted and tenant == "acme" and action == "read"
    assert first.allowed == wanted


ENGINE = RegoEngine()


def test_ids_differ_by_subject_action_labels_and_policy() -> None:
    one = PolicyGuard(ENGINE, access())
    other = PolicyGuard(
        ENGINE, Bundle("own@1", access().module, {"labels": {}}, "crp/access/decision")
    )
    ids = [
        one.decide(ANNA, "read", ("class:public",)).id,
        one.decide(OLGA, "read", ("class:public",)).id,
        one.decide(OLGA, "erase", ("class:public",)).id,
        one.decide(ANNA, "read", ("class:internal",)).id,
        other.decide(ANNA, "read", ("class:public",)).id,
    ]
    assert len(set(ids)) == len(ids)
    assert one.name != other.name


def test_a_class_of_things_is_decided_once_and_a_server_that_may_change_each_time() -> None:
    remembering, engine = guard({"allow": True, "redact": ["email"]})
    for _ in range(5):
        assert remembering.decide(ANNA, "read", ("a:b",)).redact == ("email",)
    assert len(engine.asked) == 1
    assert not remembering.decide(ANNA, "write", ("a:b",)).failed
    assert len(engine.asked) == 2
    asking, engine = guard({"allow": True}, remember=False)
    assert not asking.decide(ANNA, "read", ("a:b",)).lasting
    asking.decide(ANNA, "read", ("a:b",))
    assert len(engine.asked) == 2


def test_subjects_of_the_same_roles_are_one_class_where_no_name_is_read() -> None:
    shared, engine = guard({"allow": True})
    assert not access().reads_names
    boris = ANNA.model_copy(update={"name": "boris"})
    first, second = (shared.decide(one, "read", ("a:b",)) for one in (ANNA, boris))
    assert len(engine.asked) == 1
    # Each has a decision of their own, the same as from a guard that nobody asked before.
    assert first.id != second.id
    assert second == guard({"allow": True})[0].decide(boris, "read", ("a:b",))
    other = [
        (boris.model_copy(update={"roles": ("writer",)}), "read", ("a:b",)),
        (boris.model_copy(update={"roles": ("reader", "a:b")}), "read", ()),
        (boris.model_copy(update={"tenant": "globex"}), "read", ("a:b",)),
        (boris, "write", ("a:b",)),
        (boris, "read", ("a:b", "c:d")),
    ]
    for subject, action, labels in other:
        shared.decide(subject, action, labels)  # type: ignore[arg-type]
    # Things without a label are denied before the engine is asked.
    assert len(engine.asked) == 1 + len(other) - 1


NAMED = """package crp.access
import rego.v1
default decision := {"allow": false}
decision := {"allow": true} if {%s}
"""


@pytest.mark.parametrize(
    "reading",
    [
        'input.subject.name == "anna"',
        'input["subject"]["name"] == "anna"',
        'input.subject["name"] == "anna"',
        'who := input.subject; who.name == "anna"',
        'all := input; all.subject.name == "anna"',
        'some key; input.subject[key] == "anna"',
        'object.get(input, ["subject", "name"], "") == "anna"',
    ],
)
def test_a_policy_that_reads_the_name_is_asked_for_each_subject(reading: str) -> None:
    bundle = Bundle("own@1", NAMED % reading, {}, "crp/access/decision")
    assert bundle.reads_names
    own = PolicyGuard(ENGINE, bundle)
    assert own.decide(ANNA, "read", ("a:b",)).allowed
    assert not own.decide(ANNA.model_copy(update={"name": "boris"}), "read", ("a:b",)).allowed


def test_what_a_server_or_a_further_module_reads_is_not_taken_for_nothing() -> None:
    assert Bundle("opa", "", {"url": "http://127.0.0.1"}, "a/b").reads_names
    roles = "package a\nb := input.subject.roles"
    assert not Bundle("own@1", roles, {}, "a/b").reads_names
    further = {"who.rego": "package who\nname := input.subject.name"}
    assert Bundle("own@1", roles, {}, "a/b", further).reads_names


@pytest.mark.requirement("SUM-store-4")
@pytest.mark.parametrize(
    ("subject", "label"),
    [
        (ANNA, "class:public\0secret"),
        (ANNA.model_copy(update={"roles": ("operator\0",)}), "class:secret"),
    ],
)
def test_a_zero_character_does_not_end_a_word_that_is_decided_about(
    subject: Subject, label: str
) -> None:
    found = PolicyGuard(ENGINE, access()).decide(subject, "read", (label,))
    assert (found.allowed, found.failed) == (False, False)


def test_what_is_kept_is_bounded() -> None:
    small, engine = guard({"allow": True}, most_kept=3)
    for number in range(10):
        small.decide(ANNA, "read", (f"a:{number}",))
    assert len(small._known) <= 3
    assert len(small._answers) <= 3
    assert len(engine.asked) == 10


def test_the_engines_own_number_of_a_decision_is_taken_over() -> None:
    numbered, _ = guard({"allow": True, "decision_id": "4ca636c1-55e4-417a-b1d8-4aceb67960d1"})
    assert numbered.decide(ANNA, "read", ("a:b",)).id == "4ca636c1-55e4-417a-b1d8-4aceb67960d1"


@pytest.mark.parametrize(
    "more",
    [
        {"decision_id": "d\ud800"},
        {"decision_id": "4ca6\r\nSet-Cookie: a"},
        {"decision_id": " "},
        {"decision_id": "z" * 129},
        {"reason": "because \ud800"},
        {"redact": ["\ud800"]},
    ],
)
def test_an_answer_that_no_journal_can_hold_is_no_decision(more: dict[str, Any]) -> None:
    odd, _ = guard({"allow": True, **more})
    found = odd.decide(ANNA, "read", ("a:b",))
    assert (found.allowed, found.failed) == (False, True)
    assert found.model_dump_json()


# --- the .rego files -------------------------------------------------------------------

SHIPPED = {
    "access": (access, "crp_integrations.guard.access", "access_test.rego"),
    "classification": (catalogue, "crp_integrations.dpe.catalogue", "classification_test.rego"),
}


@pytest.mark.requirement("SUM-policy-3")
@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_every_case_that_ships_with_a_policy_holds(name: str) -> None:
    bundle, package, tests = SHIPPED[name]
    source = (files(package) / tests).read_text(encoding="utf-8")
    results = list(run_tests(bundle(), {tests: source}))
    assert len(results) >= 10
    assert [f"{one.name}: {one.failure}" for one in results if not one.passed] == []


EVERY = """every label in labels {
		some theirs in tables
		theirs[label]
	}"""
OPEN = "with_everybody(true, labels, roles)"
SOME = """some label in labels
	some theirs in tables
	theirs[label]"""


@pytest.mark.requirement("SUM-policy-3")
@pytest.mark.parametrize(
    ("change", "case"),
    [
        (("\t\ttheirs[label]\n", ""), "each label must be granted"),
        (
            (
                "with_everybody(true, labels, roles) if {",
                f"{OPEN} if true\n\nunused(labels, roles) if {{",
            ),
            "what everybody reads stands for nothing else",
        ),
        (('array.concat(["*"], roles)', "roles"), "everybody reads what is public"),
        (
            ('startswith(label, "tenant:")', "false"),
            "another tenant's name is granted to nobody",
        ),
        (("data.every_label[role][input.action]", "true"), "only an operator erases"),
        (("[role][input.action]", "[role].read"), "an operator does nothing else"),
        (("[role][action]", "[role].read"), "a reader does not write"),
        (("labels[0]", "true"), "things without a label are denied"),
        (
            ("resource.tenant == input.subject.tenant", "true"),
            "things of another tenant are denied",
        ),
        (("\trule.unless[role]\n", ""), "high personal data lose every kind"),
        ((EVERY, SOME), "each label must be granted"),
    ],
)
def test_a_policy_that_was_loosened_fails_its_cases(change: tuple[str, str], case: str) -> None:
    shipped = access()
    assert change[0] in shipped.module
    loose = Bundle("loose@1", shipped.module.replace(*change), shipped.data, shipped.entrypoint)
    source = (files("crp_integrations.guard.access") / "access_test.rego").read_text("utf-8")
    failed = {one.name for one in run_tests(loose, {"access_test.rego": source}) if not one.passed}
    assert case in failed


WORDS = st.sampled_from(("reader", "writer", "operator", "privacy-officer", "*", "x"))


@pytest.mark.requirement("SUM-policy-3")
@given(
    st.lists(WORDS, unique=True),
    st.sampled_from((*ACTIONS, "redact")),
    st.lists(
        st.sampled_from(("class:public", "class:internal", "pii:low", "pii:high", "class:secret")),
        unique=True,
    ),
)
def test_the_shipped_policy_says_what_its_data_grant(
    roles: list[str], action: str, labels: list[str]
) -> None:
    """The same decision, made from `access.json` by other means than Rego."""
    told = ENGINE.decide(
        access(),
        {
            "subject": {"tenant": "acme", "name": "anna", "roles": roles},
            "action": action,
            "resource": {"tenant": "acme", "labels": labels},
        },
    )
    data = access().data
    who = {"*", *roles}
    tables = [data["granted"].get(role, {}).get(action, {}) for role in who]
    operates = any(action in data["every_label"].get(role, {}) for role in roles)
    each = all(any(label in table for table in tables) for label in labels)
    assert told["allow"] == (bool(labels) and (each or operates))
    if told["allow"]:
        rules = [data["redact"][label] for label in labels if label in data["redact"]]
        wanted = [
            kind for rule in rules if not set(roles) & set(rule["unless"]) for kind in rule["kinds"]
        ]
        assert told["redact"] == wanted


@pytest.mark.requirement("SUM-policy-3")
@given(st.lists(WORDS, unique=True), st.lists(st.sampled_from(tuple("abcd")), min_size=1))
def test_what_everybody_is_granted_need_not_be_listed_for_each_role(
    roles: list[str], labels: list[str]
) -> None:
    """Data may list it, for speed, or not: the decision is the same."""
    short = {"*": {"a"}, "reader": {"b"}, "writer": {"c"}}
    long = {"*": {"a"}, "reader": {"a", "b"}, "writer": {"a", "c"}, "x": {"a"}}
    question = {
        "subject": {"tenant": "acme", "roles": roles},
        "action": "read",
        "resource": {"tenant": "acme", "labels": labels},
    }
    found = [
        ENGINE.decide(
            Bundle("own@1", access().module, {"granted": _granted(labels_of)}, access().entrypoint),
            question,
        )
        for labels_of in (short, long)
    ]
    assert found[0] == found[1]
    each = all(any(label in short.get(who, ()) for who in ("*", *roles)) for label in labels)
    assert found[0]["allow"] == each


def _granted(labels_of: Mapping[str, set[str]]) -> dict[str, Any]:
    return {
        role: {"read": dict.fromkeys(sorted(labels), True)} for role, labels in labels_of.items()
    }


def test_a_decisions_id_is_the_hash_of_policy_question_and_answer_as_json() -> None:
    """Whoever holds the policy and the question can compute it again."""
    roles = ('a"b', "é\n火", "\x00")
    subject = Subject(tenant="ac\\me", name="\U0001f525", roles=roles)
    found = PolicyGuard(ENGINE, access()).decide(subject, "read", ("class:public", "x:y"))
    question = {
        "subject": {"tenant": subject.tenant, "name": subject.name, "roles": list(roles)},
        "action": "read",
        "resource": {"tenant": subject.tenant, "labels": ["class:public", "x:y"]},
    }
    said = json.dumps([access().digest, question, found.allowed])
    assert found.id == "pd:" + hashlib.sha256(said.encode()).hexdigest()[:24]


def test_an_engine_is_given_a_name_only_where_the_policy_reads_names() -> None:
    shared, engine = guard({"allow": True})
    shared.decide(ANNA, "read", ("a:b",))
    assert "name" not in engine.asked[0]["subject"]
    engine = Saying({"allow": True})
    reading = Bundle("own@1", NAMED % 'input.subject.name == "anna"', {}, "crp/access/decision")
    PolicyGuard(engine, reading).decide(ANNA, "read", ("a:b",))
    PolicyGuard(engine, access(), remember=False).decide(ANNA, "read", ("a:b",))
    assert [one["subject"]["name"] for one in engine.asked] == ["anna", "anna"]


@pytest.mark.requirement("SUM-policy-1")
def test_every_regulatory_word_is_said_by_rego_and_none_by_retrieval_or_summaries() -> None:
    """Stage 12 hands on what the rules say, and the rooms that select and shorten name no rule."""
    verdict = RegoEngine().decide(
        catalogue(),
        {"domain": "biometric-identification", "decides": False, "personal": False, "evidence": []},
    )
    # All that stage 12 and the compliance headers say of a call comes from here.
    assert set(verdict) == {"ai_act_class", "nist_tier", "iso_42001", "met", "open", "halts"}
    root = Path(crp_integrations.__file__).parent
    named = []
    for room in RETRIEVAL:
        for path in sorted((root / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                word = getattr(node, "id", getattr(node, "attr", getattr(node, "value", "")))
                if isinstance(word, str) and any(one in word for one in REGULATIONS):
                    named.append(f"{path.relative_to(root)}:{node.lineno} {word}")
    assert named == []


def test_a_rule_that_the_interpreter_would_take_for_true_is_refused() -> None:
    open_door = (
        "package crp.access\n\nimport rego.v1\n\n"
        'decision := {"allow": true} if {\n\tevery label in input.resource.labels {\n'
        '\t\tnot startswith(label, "secret:")\n\t}\n}\n'
    )
    bundle = Bundle("own@1", open_door, {}, "crp/access/decision")
    with pytest.raises(EngineError, match="`not` in an `every`"):
        RegoEngine().decide(bundle, {"resource": {"labels": ["secret:a"]}})
    assert not PolicyGuard(RegoEngine(), bundle).decide(ANNA, "read", ("secret:a",)).allowed

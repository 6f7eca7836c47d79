"""`crp guard …`."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.access import access
from crp_integrations.guard.decisions import Subject
from crp_integrations.relay.settings import Settings
from tests.cli.test_ask import KEY

NAME = "access_test.rego"


@pytest.fixture
def guard(here, tmp_path: Path):
    """Runs `crp guard` in a folder of its own."""

    def run(*words: object, status: int = 0, **environment: str):
        said = here("guard", *words, cwd=tmp_path, **environment)
        assert said.returncode == status, said.stdout + said.stderr
        return said

    return run


def bundle(folder: Path, change: tuple[str, str] = ("", "")) -> Path:
    made = folder / "policy"
    made.mkdir()
    (made / "access.rego").write_text(access().module.replace(*change), encoding="utf-8")
    (made / "data.json").write_text(json.dumps({"name": "own@1", **access().data}))
    tests = (files("crp_integrations.guard.access") / NAME).read_text(encoding="utf-8")
    (made / NAME).write_text(tests, encoding="utf-8")
    return made


def test_a_decision_is_told_with_its_id_and_a_denial_has_status_1(guard) -> None:
    words = ("--tenant", "acme", "--label", "class:internal")
    found = json.loads(guard(*words, "--role", "reader").stdout)
    assert found["allowed"]
    assert found["id"].startswith("pd:")
    assert not json.loads(guard(*words, status=1).stdout)["allowed"]
    assert "wanted one of" in guard(*words, "--action", "copy", status=1).stderr


@pytest.mark.requirement("SUM-policy-3")
def test_a_policy_that_breaks_its_tests_fails_the_command(guard, tmp_path: Path) -> None:
    assert "0 failed" in guard().stdout
    assert "own@1" in guard("--bundle", bundle(tmp_path)).stdout
    broken = tmp_path / "broken"
    broken.mkdir()
    loose = bundle(broken, ("\t\tsome theirs in tables\n\t\ttheirs[label]\n", "\t\tlabel\n"))
    said = guard("--bundle", loose, status=1).stdout
    assert "nobody without a role reads what is internal: decided" in said
    (loose / NAME).unlink()
    assert "no *_test.rego file" in guard("--bundle", loose, status=1).stderr


def test_registered_exceptions_are_listed_with_state_and_scope(guard, tmp_path: Path) -> None:
    with Relay.open(tmp_path / "kb", key=KEY) as relay:
        relay.add(["The vault of the old mill was opened by the miller's daughter in spring."])
    one = {
        "id": "old-dump",
        "owner": "kim",
        "reason": "The old dump runs until the new one is there.",
        "granted_at": "2026-05-25T11:00:00Z",
        "expires_at": "2026-05-25T13:00:00Z",
        "rollback": {"event": "POLICY_VIOLATION"},
        "scope": {"tenant": "local", "subjects": ["*"], "actions": ["read"], "labels": ["a:b"]},
        "decisions": ["board-7"],
        "hooks": ["journal"],
    }
    (tmp_path / "exceptions.json").write_text(json.dumps([one]))
    settings = {"CRP_KEY": KEY, "CRP_GUARD__EXCEPTIONS": "exceptions.json"}
    for clock, state in (("2026-05-25T12:00:00Z", "active"), ("2026-05-25T13:00:00Z", "expired")):
        words = ("--exceptions", "--store", "kb", "--json")
        (found,) = json.loads(guard(*words, CRP_CLOCK=clock, **settings).stdout)
        assert (found["id"], found["state"], found["uses"]) == ("old-dump", state, 0)
        assert found["scope"]["labels"] == ["a:b"]
    shown = guard("--exceptions", "--store", "kb", COLUMNS="200", **settings).stdout
    assert "old-dump" in shown
    assert json.loads(guard("--exceptions", "--store", "kb", "--json", CRP_KEY=KEY).stdout) == []


def test_uses_are_counted_where_the_exceptions_tenant_keeps_its_journal(
    guard, tmp_path: Path
) -> None:
    one = {
        "id": "acme-dump",
        "owner": "kim",
        "reason": "The old dump runs until the new one is there.",
        "granted_at": "2026-05-25T11:00:00Z",
        "expires_at": "2026-05-25T13:00:00Z",
        "rollback": {"event": "POLICY_VIOLATION"},
        "scope": {"tenant": "acme", "subjects": ["*"], "actions": ["read"], "labels": ["x:odd"]},
        "decisions": ["board-7"],
        "hooks": ["journal"],
    }
    (tmp_path / "exceptions.json").write_text(json.dumps([one]))
    acme = Subject(tenant="acme")
    clock = "2026-05-25T12:00:00Z"
    text = "The vault of the old mill was opened by the miller's daughter in spring."
    with Relay.open(tmp_path / "kb", key=KEY, subject=acme, clock=clock) as relay:
        relay.add([Fact(content=text, labels=("x:odd",))])
    with Relay.open(
        tmp_path / "kb", subject=acme,
        settings=Settings(key=KEY, clock=clock, guard={"policy": True, "exceptions": tmp_path / "exceptions.json"}),
    ) as relay:  # fmt: skip
        answer = relay.ask("Who opened the vault of the old mill?", model="extractive")
        assert answer.envelope.facts
    told = guard(
        "--exceptions", "--store", "kb", "--json",
        CRP_KEY=KEY, CRP_CLOCK=clock, CRP_GUARD__EXCEPTIONS="exceptions.json",
        CRP_GUARD__POLICY="true",
    )  # fmt: skip
    (found,) = json.loads(told.stdout)
    assert (found["id"], found["uses"] > 0) == ("acme-dump", True)


def test_a_server_that_the_settings_name_is_asked_and_denies_when_it_is_down(guard) -> None:
    words = ("--tenant", "acme", "--role", "reader", "--label", "class:public")
    assert json.loads(guard(*words).stdout)["allowed"]
    told = guard(*words, status=1, CRP_GUARD__OPA_URL="http://127.0.0.1:9")
    assert not json.loads(told.stdout)["allowed"]


def test_a_case_that_wants_nothing_or_no_object_fails_the_command(guard, tmp_path: Path) -> None:
    """An empty `want` would hold whatever a policy decides, and so would 1 for true."""
    policy = bundle(tmp_path)
    question = '{"resource": {"labels": []}}'
    (policy / NAME).write_text(
        "package crp.access_test\nimport rego.v1\ncases := {\n"
        f'"word": {{"input": {question}, "want": "no"}},\n'
        f'"nothing": {{"input": {question}, "want": {{}}}},\n'
        '"list": {"input": [1], "want": {"allow": false}},\n'
        f'"number": {{"input": {question}, "want": {{"allow": 0}}}},\n'
        f'"fine": {{"input": {question}, "want": {{"allow": false}}}},\n}}\n'
    )
    said = guard("--bundle", policy, status=1)
    assert "5 cases, 4 failed" in said.stdout
    assert ": fine" not in said.stdout
    assert said.stderr == ""


def test_the_entrypoint_of_the_settings_is_asked_for(guard, tmp_path: Path) -> None:
    policy = bundle(tmp_path, ("package crp.access", "package our.own"))
    named = {"CRP_GUARD__ENTRYPOINT": "our/own/decision"}
    assert "0 failed" in guard("--bundle", policy, **named).stdout
    words = ("--tenant", "acme", "--role", "reader", "--label", "class:public")
    assert json.loads(guard(*words, "--bundle", policy, **named).stdout)["allowed"]
    # The policy that ships has its own alone, and would have been asked for that.
    assert "guard.entrypoint" in guard(*words, status=1, **named).stderr
    # As Rego and OPA's address write it, nothing is there, and everything would be denied.
    for wrong in ("our.own.decision", "data/our/own/decision", "decision", "our/own/"):
        said = guard(*words, "--bundle", policy, status=1, CRP_GUARD__ENTRYPOINT=wrong).stderr
        assert f"guard.entrypoint is '{wrong}', wanted package and rule with slashes" in said

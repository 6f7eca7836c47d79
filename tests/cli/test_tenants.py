"""What a gateway's tenant, or a region, holds, looked at and kept from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.guard.decisions import Subject
from tests.cli.conftest import Here
from tests.cli.test_ask import KEY, SESSION, files

FIXED = {"CRP_KEY": KEY}
ACME = "The cost centre of the Oslo office is 4410, and Ann Berg approves its invoices."
LOCAL = "The gardens of the valley grow tulips and roses, and are open from April to October."
REGION = {"CRP_REGIONS": json.dumps({"eu": "kb-eu"})}


@pytest.fixture
def kb(here: Here, tmp_path: Path) -> Path:
    """A store that a gateway's tenant, and the local one, have written to."""
    for name, text in (("acme.md", ACME), ("local.md", LOCAL)):
        (tmp_path / name).write_text(text)
    for words in (("acme.md", "--tenant", "acme"), ("local.md",)):
        done = here("ingest", *words, "--store", "kb", cwd=tmp_path, **FIXED)
        assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.fixture
def run(here: Here, kb: Path):
    def said(*words: str, status: int = 0, **environment: str) -> str:
        done = here(*words, "--store", "kb", cwd=kb, **FIXED, **environment)
        assert done.returncode == status, done.stderr
        return done.stdout if not status else done.stderr

    return said


def contents(said: str) -> list[str]:
    return [one["content"] for one in map(json.loads, said.splitlines()) if "content" in one]


def test_what_a_tenant_ingested_is_the_tenants_alone(run, kb: Path) -> None:
    assert contents(run("fabric", "export", "--tenant", "acme")) == [ACME]
    assert contents(run("fabric", "export")) == [LOCAL]
    with Relay.open(kb / "kb", key=KEY, subject=Subject(tenant="acme")) as relay:
        assert relay.fabric.size() == 1
    stats = json.loads(run("fabric", "stats", "--tenant", "acme", "--json"))
    assert (stats["namespace"], stats["facts"]["ACTIVE"]) == ("acme", 1)


def test_every_verb_reaches_a_tenants_facts(run) -> None:
    (id_,) = [
        one["fact_id"]
        for one in map(json.loads, run("fabric", "export", "--tenant", "acme").splitlines())
        if "content" in one
    ]
    for status in ("quarantined", "lifted", "archived", "restored", "stale"):
        assert id_ in run("fabric", "mark", status, id_, "--json", "--tenant", "acme")
    assert "not in namespace 'local'" in run("fabric", "mark", "stale", id_, status=1)
    assert json.loads(run("fabric", "doctor", "--tenant", "acme", "--json"))["findings"] == []
    for words in ((), ("--recluster",)):
        run("fabric", "maintain", *words, "--tenant", "acme")
    run("fabric", "mark", "forgotten", id_, "--tenant", "acme")
    assert json.loads(run("fabric", "stats", "--tenant", "acme", "--json"))["facts"]["DELETED"] == 1
    run("fabric", "erase", "acme.md", "--yes", "--tenant", "acme")
    assert contents(run("fabric", "export")) == [LOCAL]


def test_the_trail_and_the_receipts_of_a_tenant(run, kb: Path) -> None:
    subject = Subject(tenant="acme")
    with Relay.open(kb / "kb", key=KEY, subject=subject) as relay:
        relay.ask("What is the cost centre of Oslo?", session_id=SESSION, model="extractive")
    assert SESSION in run("audit", "show", "--tenant", "acme")
    assert SESSION not in run("audit", "show")
    own = json.loads(run("audit", "verify", "--tenant", "acme", "--json"))
    local = json.loads(run("audit", "verify", "--json"))
    assert own["events"] > local["events"]
    assert SESSION in run("audit", "export", "--tenant", "acme")
    (receipt,) = json.loads(run("receipt", "show", "--tenant", "acme", "--json"))
    assert receipt["session_id"] == SESSION
    assert json.loads(run("receipt", "show", "--json")) == []


def test_a_tenant_that_never_wrote_is_told(run, kb: Path) -> None:
    before = files(kb / "kb")
    for command in (["stats"], ["doctor"], ["maintain"], ["export"], ["erase", "x", "--yes"]):
        told = run("fabric", *command, "--tenant", "acne", status=1)
        assert "tenant 'acne' has nothing in this store" in told
    for words in ((), ("--preview",)):
        told = run("ask", "What does Ann Berg approve?", *words, "--tenant", "acne", status=1)
        assert "tenant 'acne' has nothing in this store" in told
    assert files(kb / "kb") == before


def test_a_tenant_is_asked_and_its_facts_alone_are_shown(run) -> None:
    question = "What is the cost centre of the Oslo office?"
    answer = json.loads(run("ask", question, "--tenant", "acme", "--model", "extractive", "--json"))
    assert "4410" in answer["text"]
    seen = json.loads(run("ask", question, "--preview", "--tenant", "acme", "--json"))
    assert seen["facts_included"] == 1


@pytest.mark.parametrize("command", [["fabric", "stats"], ["ingest", "acme.md"], ["audit", "show"]])
def test_a_tenant_and_a_shared_namespace_are_two_places(run, command: list[str]) -> None:
    told = run(*command, "--tenant", "acme", "--shared", "law", status=1)
    assert "--tenant and --shared name different namespaces" in told


def test_a_region_is_kept_where_the_store_itself_holds_nothing(here: Here, tmp_path: Path) -> None:
    (tmp_path / "acme.md").write_text(ACME)

    def run(*words: str, status: int = 0) -> str:
        done = here(*words, "--store", "kb", cwd=tmp_path, **FIXED, **REGION)
        assert done.returncode == status, done.stderr
        return done.stdout if not status else done.stderr

    run("ingest", "acme.md", "--residency", "eu", "--tenant", "acme")
    assert (tmp_path / "kb-eu").is_dir()
    assert not (tmp_path / "kb").exists()
    where = ("--residency", "EU", "--tenant", "acme")
    assert contents(run("fabric", "export", *where)) == [ACME]
    assert json.loads(run("fabric", "stats", *where, "--json"))["facts"]["ACTIVE"] == 1
    assert json.loads(run("audit", "verify", *where, "--json"))["state"] == "VALID"
    assert "in region 'eu' of this store" in run(
        "fabric", "stats", "--residency", "eu", "--tenant", "acne", status=1
    )
    assert "no store at 'kb'" in run("fabric", "stats", status=1)
    assert "no store at 'kb'" in run("fabric", "stats", "--residency", "us", status=1)
    run("fabric", "erase", "acme.md", "--yes", *where)
    assert contents(run("fabric", "export", *where)) == []

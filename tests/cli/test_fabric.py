"""`crp fabric …` on a real store."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer

from crp_integrations import Relay
from crp_integrations.cli.app import app, load_command
from crp_integrations.fabric.records import Fact, Source, Where, source_id
from crp_integrations.stores.sqlite import SqliteStore
from tests.cli.test_ask import KEY, PAGE, SESSION, files
from tests.doubles import HashEmbedder
from tests.requirements.rows import ROOT

FIXED = {"CRP_KEY": KEY}
SECRET = "The vault opens with the violet phrase of the third archivist of Northfield."


@pytest.fixture
def kb(here, tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "meridian.md").write_text(PAGE)
    (tmp_path / "docs" / "vault.txt").write_text(SECRET)
    assert here("ingest", "docs", "--store", "kb", cwd=tmp_path, **FIXED).returncode == 0
    return tmp_path


@pytest.fixture
def fabric(here, kb):
    """Runs `crp fabric` with JSON output."""

    def run(*words: object, status: int = 0, **environment: str):
        said = here("fabric", *words, "--store", "kb", "--json", cwd=kb, **FIXED, **environment)
        assert said.returncode == status, said.stderr
        return json.loads(said.stdout)

    return run


def relay(kb: Path, **options) -> Relay:
    return Relay.open(kb / "kb", key=KEY, fabric={"maintain_on_open": False}, **options)


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


def exported(here, kb: Path, *words: str) -> list[dict]:
    said = here("fabric", "export", "--store", "kb", *words, cwd=kb, **FIXED)
    assert said.returncode == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


def fact_ids(here, kb: Path) -> list[str]:
    return [one["fact_id"] for one in exported(here, kb) if one["schema"].startswith("fact/")]


def test_stats_counts_what_is_there(fabric, kb, here):
    found = fabric("stats")
    assert found["facts"]["ACTIVE"] == 3
    assert found["sources"] == {"ACTIVE": 2}
    assert (found["dimensions"], found["search"]) == (384, "exact")
    (database,) = kb.rglob("*.sqlite")
    assert found["files"][database.name] == database.stat().st_size
    with relay(kb) as opened:
        assert found["state_hash"] == opened.fabric.state_hash()
    shown = here("fabric", "stats", "--store", "kb", cwd=kb, **FIXED).stdout
    for part in ("3 ACTIVE", found["state_hash"], "384", "exact"):
        assert part in shown


def test_looking_changes_no_byte(here, kb):
    before = files(kb / "kb")
    for command in ("stats", "doctor", "export"):
        assert here("fabric", command, "--store", "kb", cwd=kb, **FIXED).returncode == 0
    assert files(kb / "kb") == before


@pytest.mark.requirement("009-5.5-3", "009-6.2-3")
def test_recluster_finds_communities_at_once(fabric, here, kb):
    before = fabric("stats")
    report = fabric("maintain", "--recluster")
    assert report["facts"] == 3
    after = fabric("stats")
    assert report["state_hash"] == after["state_hash"] != before["state_hash"]
    assert after["epoch"] == before["epoch"] + 1
    said = here("fabric", "maintain", "--recluster", "--store", "kb", cwd=kb, **FIXED)
    assert "3 facts" in said.stdout


@pytest.mark.requirement("009-8.4-4", "009-8.4-2")
def test_quarantine_and_lift_by_hand(fabric, here, kb):
    ids = fact_ids(here, kb)
    report = fabric("mark", "quarantined", ids[0], "--reason", "It is false.")
    assert report["facts"] == [ids[0]]
    assert fact_ids(here, kb) == ids[1:]
    assert fabric("stats")["facts"]["QUARANTINED"] == 1
    assert fabric("mark", "lifted", ids[0])["facts"] == [ids[0]]
    assert fact_ids(here, kb) == ids


def test_what_is_set_aside_can_be_listed(fabric, here, kb):
    ids = fact_ids(here, kb)

    def listed(status: str) -> list[str]:
        said = exported(here, kb, "--status", status)
        return [one["fact_id"] for one in said if one["schema"].startswith("fact/")]

    fabric("mark", "quarantined", ids[0])
    fabric("mark", "archived", ids[1])
    fabric("mark", "stale", ids[2])
    assert (listed("quarantined"), listed("archived"), listed("stale")) == (
        [ids[0]],
        [ids[1]],
        [ids[2]],
    )
    assert set(listed("active")) == set(ids[3:])
    fabric("mark", "forgotten", ids[0])
    assert listed("quarantined") == []


def test_archive_restore_stale_and_forget(fabric, here, kb):
    # Ids follow from the folder's name, so their order differs from run to run.
    page = source_id((kb / "docs" / "meridian.md").as_uri())
    facts = [one for one in exported(here, kb) if "fact_id" in one]
    ids = [one["fact_id"] for one in sorted(facts, key=lambda one: one["source_id"] != page)]
    fabric("mark", "archived", ids[0], ids[1])
    assert set(fact_ids(here, kb)) == set(ids[2:])
    fabric("mark", "restored", ids[0], ids[1])
    assert fabric("mark", "stale", ids[0])["verb"] == "stale"
    statuses = {one["fact_id"]: one["status"] for one in exported(here, kb) if "fact_id" in one}
    assert statuses[ids[0]] == "STALE"
    assert fabric("mark", "forgotten", ids[0])["facts"] == [ids[0]]
    assert set(fact_ids(here, kb)) == set(ids[1:])
    shown = here(
        "fabric",
        "mark",
        "forgotten",
        "--source",
        "docs/vault.txt",
        "--store",
        "kb",
        cwd=kb,
        **FIXED,
    )
    assert shown.stdout == "1 fact of 1 source deleted\n"
    assert len(fact_ids(here, kb)) == 1


@pytest.mark.parametrize("name", ["id", "uri", "path", "gone"])
@pytest.mark.requirement("009-8.3-3", "009-8.3-5", "003-17.2-1")
def test_erase_takes_a_source_by_any_of_its_names(fabric, here, kb, name):
    place = kb / "docs" / "vault.txt"
    uri = place.as_uri()
    if name == "gone":
        place.unlink()
    named = {"id": source_id(uri), "uri": uri}.get(name, "docs/vault.txt")
    assert any(b"violet" in data for data in files(kb / "kb").values())
    (report,) = fabric("erase", named, "--yes")
    assert report["source_id"] == source_id(uri)
    assert (len(report["facts"]), report["scrubbed"]) == (1, True)
    for file, data in files(kb / "kb").items():
        assert b"violet" not in data, file
        assert b"vault" not in data, file
    assert len(fact_ids(here, kb)) == 2
    assert fabric("doctor")["findings"] == []
    (again,) = fabric("erase", named, "--yes")
    assert again["facts"] == []
    shown = here("fabric", "erase", named, "--yes", "--store", "kb", cwd=kb, **FIXED)
    assert "was erased already" in shown.stdout


def test_a_file_of_json_lines_is_erased_with_all_of_its_lines(fabric, here, kb):
    lines = [json.dumps({"id": n, "text": f"{SECRET} It is line {n} of them."}) for n in range(3)]
    (kb / "many.jsonl").write_text("\n".join(lines))
    assert here("ingest", "many.jsonl", "--store", "kb", cwd=kb, **FIXED).returncode == 0
    said = here(
        "fabric", "mark", "forgotten", "--source", "many.jsonl", "--store", "kb", cwd=kb, **FIXED
    )
    assert "is 3 sources" in said.stderr
    assert len(fabric("erase", "many.jsonl", "--yes")) == 3
    assert len(fact_ids(here, kb)) == 3


def test_erase_asks_first_and_without_a_terminal_refuses(here, kb, monkeypatch):
    before = files(kb / "kb")
    # What comes through a pipe is nobody's answer.
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    said = here("fabric", "erase", "docs/vault.txt", "--store", "kb", cwd=kb, **FIXED)
    assert said.returncode == 1
    assert "--yes" in said.stderr
    assert files(kb / "kb") == before
    for answer, erased in (("n", False), ("", False), ("y", True)):
        monkeypatch.setattr(sys, "stdin", Terminal(answer + "\n"))
        said = here("fabric", "erase", "docs/vault.txt", "--store", "kb", cwd=kb, **FIXED)
        assert "vault.txt: 1 fact" in said.stderr
        assert (said.returncode == 0) is erased
        assert (files(kb / "kb") == before) is not erased


def test_maintain_says_what_was_due(fabric, here, kb):
    ids = fact_ids(here, kb)
    fabric("mark", "forgotten", ids[0])
    assert fabric("maintain")["purged"] == 0
    later = {"CRP_CLOCK": "2100-01-01T00:00:00Z"}
    found = fabric("doctor", status=1, **later)
    assert [finding["check"] for finding in found["findings"]] == ["upkeep"]
    assert fabric("maintain", **later)["purged"] == 1
    assert "DELETED" not in {k for k, v in fabric("stats")["facts"].items() if v}
    shown = here("fabric", "maintain", "--store", "kb", cwd=kb, **FIXED, **later)
    assert shown.returncode == 0, shown.stderr


def test_compact_leaves_a_whole_store(fabric, here, kb):
    before = fabric("stats")["state_hash"]
    sizes = fabric("maintain", "--compact")
    assert set(sizes) == {"bytes_before", "bytes_after"}
    assert fabric("doctor")["findings"] == []
    assert fabric("stats")["state_hash"] == before
    assert re.search(
        r"before, .* after",
        here("fabric", "maintain", "--compact", "--store", "kb", cwd=kb, **FIXED).stdout,
    )


def test_export_gives_records_that_read_back(here, kb):
    lines = exported(here, kb)
    sources = [Source.model_validate(one) for one in lines if one["schema"].startswith("source/")]
    facts = [Fact.model_validate(one) for one in lines if one["schema"].startswith("fact/")]
    assert [s.title for s in sorted(sources, key=lambda s: s.uri)] == ["Meridian", "vault"]
    assert {fact.source_id for fact in facts} == {s.source_id for s in sources}
    with relay(kb) as opened:
        assert facts == opened.fabric.facts(opened.fabric.find(Where()))
    said = here("fabric", "export", "--out", "facts.jsonl", "--store", "kb", cwd=kb, **FIXED)
    assert said.returncode == 0, said.stderr
    assert [json.loads(x) for x in (kb / "facts.jsonl").read_text().splitlines()] == lines
    again = here("fabric", "export", "--out", "facts.jsonl", "--store", "kb", cwd=kb, **FIXED)
    assert again.returncode == 1
    assert "File exists" in again.stderr


@pytest.mark.requirement("CARD-7")
def test_the_graph_is_exported_as_graphml(here, fabric, kb):
    fabric("maintain", "--recluster")
    words = ["fabric", "export", "--format", "graphml", "--store", "kb"]
    assert "give --out" in here(*words, cwd=kb, **FIXED).stderr
    said = here(*words, "--out", "graph.xml", cwd=kb, **FIXED)
    assert said.returncode == 0, said.stderr
    root = ElementTree.parse(kb / "graph.xml").getroot()
    nodes = root.findall(".//{http://graphml.graphdrawing.org/xmlns}node")
    assert sorted(node.get("id") for node in nodes) == fact_ids(here, kb)


def test_doctor_names_what_is_wrong_and_ends_with_status_1(here, fabric, kb):
    assert fabric("doctor")["findings"] == []
    (database,) = (kb / "kb").rglob("*.sqlite")
    store = SqliteStore(kb / "kb")
    with store.begin("local") as transaction:
        source = next(iter(transaction.facts.sources()))
        transaction.facts.add_source(source.changed(fact_count=99))
    store.close()
    found = fabric("doctor", status=1)
    assert [finding["check"] for finding in found["findings"]] == ["sources"]
    shown = here("fabric", "doctor", "--store", "kb", cwd=kb, **FIXED)
    assert shown.returncode == 1
    assert source.source_id in shown.stdout
    assert "looked at; 1 thing is wrong" in shown.stdout
    assert database.is_file()


def test_the_operator_keeps_a_shared_namespace_and_the_tenant_reads_it(here, fabric, kb):
    sharing = {"CRP_FABRIC__SHARED": '["law"]'}
    (kb / "law.md").write_text("Article 9. " + SECRET.replace("vault", "public archive"))
    said = here("ingest", "law.md", "--shared", "law", "--store", "kb", cwd=kb, **FIXED, **sharing)
    assert said.returncode == 0, said.stderr
    assert fabric("stats", "--shared", "law", **sharing)["facts"]["ACTIVE"] == 1
    assert fabric("stats", **sharing)["facts"]["ACTIVE"] == 3
    asked = here("ask", "What opens the public archive?", "--session", SESSION, "--json",
                 "--store", "kb", cwd=kb, **FIXED, **sharing)  # fmt: skip
    assert "public archive opens" in json.loads(asked.stdout)["text"]
    fabric("erase", "law.md", "--yes", "--shared", "law", **sharing)
    assert sum(fabric("stats", "--shared", "law", **sharing)["facts"].values()) == 0
    unknown = here(
        "fabric", "stats", "--shared", "tax", "--store", "kb", cwd=kb, **FIXED, **sharing
    )
    assert unknown.returncode == 1
    assert "'tax'" in unknown.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["stats", "--store", "nowhere"], "no store at 'nowhere'"),
        (["mark", "lifted", "no-such-fact"], "no-such-fact"),
        (["mark", "lifted"], "no fact is named"),
        (["mark", "stale", "x", "--reason", "old"], "--reason is only for quarantined"),
        (["mark", "stale", "--source", "x"], "--source is only for forgotten"),
        (["maintain", "--compact", "--recluster"], "give one of --recluster"),
        (["maintain", "--model", "x"], "--model needs --reembed"),
        (["stats", "--least", "2"], "--least needs --distorted"),
        (["erase", "no-such-source", "--yes"], "no-such-source"),
        (["erase", "", "--yes"], "there is no source ''"),
        (["mark", "forgotten"], "neither facts nor a source"),
        (["export", "--out", "docs"], "cannot be written"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(here, kb, words, sentence):
    before = files(kb / "kb")
    place = [] if "--store" in words else ["--store", "kb"]
    said = here("fabric", *words, *place, cwd=kb, **FIXED)
    assert said.returncode == 1
    assert sentence in said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert said.stdout == ""
    assert files(kb / "kb") == before


def _leaves(group: typer.core.TyperGroup, path: str = "crp") -> dict[str, Any]:
    found: dict[str, Any] = {}
    places = getattr(group, "places", {})
    for name, named in group.commands.items():
        command = load_command(places[name], name) if name in places else named
        if hasattr(command, "commands"):
            found |= _leaves(command, f"{path} {name}")
        else:
            found[f"{path} {name}"] = command
    return found


def _commands(group: typer.core.TyperGroup) -> dict[str, set[str]]:
    return {
        name: {
            option for parameter in command.params for option in parameter.opts
            if option.startswith("--") and option != "--help"
        }
        for name, command in _leaves(group).items()
    }  # fmt: skip


def test_the_pages_name_every_command_and_every_option():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    commands = _commands(typer.main.get_command(app))
    told = re.findall(r"^\| `(crp [a-z ]*[a-z])", page, re.MULTILINE)
    assert sorted(told) == sorted(commands)
    named = {option for options in commands.values() for option in options}
    assert set(re.findall(r"--[a-z][a-z-]*", page)) <= named
    options = (ROOT / "docs" / "reference" / "cli-options.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.*)$((?:\n(?!## ).*)*)", options, re.MULTILINE)
    assert {
        name: set(re.findall(r"^\| `[^`]*?(--[\w-]+)", text, re.MULTILINE))
        for name, text in sections
    } == commands


# These write a file whose form does not depend on who reads it, or serve.
WRITERS = {
    "crp fabric export", "crp audit export", "crp receipt export", "crp receipt redact", "crp serve",
    "crp eval collect",
}  # fmt: skip


def test_there_are_at_most_33_commands_and_json_is_a_flag_of_each_that_prints_data() -> None:
    commands = _leaves(typer.main.get_command(app))
    assert len(commands) <= 33
    for name, command in commands.items():
        flags = [one for one in command.params if "--json" in one.opts]
        assert [one.is_flag for one in flags] == [True] * (name not in WRITERS), name


class _Other(HashEmbedder):
    identity = "other/32"


def test_reembed_moves_a_store_that_no_command_could_open(here, tmp_path):
    with Relay.open(tmp_path / "kb", key=KEY, embedder=_Other()) as opened:
        opened.add([SECRET])
    refused = here("fabric", "stats", "--store", "kb", cwd=tmp_path, **FIXED)
    assert refused.returncode == 1
    assert "other/32" in refused.stderr
    moved = here("fabric", "maintain", "--reembed", "--store", "kb", cwd=tmp_path, **FIXED)
    assert moved.returncode == 0, moved.stderr
    assert moved.stdout.startswith("1 fact moved from other/32 to ")
    again = here(
        "fabric", "maintain", "--reembed", "--store", "kb", "--json", cwd=tmp_path, **FIXED
    )
    told = json.loads(again.stdout)
    assert (told["facts"], told["before"]) == (0, told["embedder"])
    assert here("fabric", "stats", "--store", "kb", cwd=tmp_path, **FIXED).returncode == 0
    assert here("fabric", "doctor", "--store", "kb", cwd=tmp_path, **FIXED).returncode == 0


def test_reembed_refuses_what_is_no_embedder(here, kb):
    (kb / "empty").mkdir()
    said = here(
        "fabric", "maintain", "--reembed", "--store", "kb", "--model", "empty", cwd=kb, **FIXED
    )
    assert said.returncode == 1
    assert "there is no model.onnx in empty" in said.stderr
    said = here(
        "fabric", "maintain", "--reembed", "--store", "kb", "--shared", "law", cwd=kb, **FIXED
    )
    assert said.returncode == 1
    assert "law" in said.stderr

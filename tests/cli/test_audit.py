"""`crp audit …` on a store that answered questions."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.stores.keys import FileKeyRing
from tests.cli.test_ask import KEY, PAGE, SESSION

FIXED = {"CRP_KEY": KEY, "CRP_CLOCK": "2026-05-25T12:00:00Z"}
QUESTIONS = (
    "When was the Meridian reactor commissioned?",
    "Who operates the Meridian reactor?",
    "How many megawatts does it deliver?",
)
SECOND = "crp_sess_0000000000000000"


def answered(folder: Path, **opening: str) -> Path:
    """A store in which three questions were answered in two sessions."""
    (folder / "docs").mkdir()
    (folder / "docs" / "meridian.md").write_text(PAGE)
    with Relay.open(folder / "kb", model="extractive", **opening) as relay:
        relay.ingest(folder / "docs")
        for question, session in zip(QUESTIONS, (SESSION, SECOND, SESSION), strict=True):
            assert relay.ask(question, session_id=session).text
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return answered(tmp_path_factory.mktemp("audit"), key=KEY, clock="2026-05-25T12:00:00Z")


@pytest.fixture
def kb(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "kb", tmp_path / "kb")
    return tmp_path


@pytest.fixture
def audit(here, kb):
    """Runs `crp audit` on the store."""

    def run(*words: object, status: int = 0, **environment: str):
        said = here("audit", *words, "--store", "kb", cwd=kb, **{**FIXED, **environment})
        assert said.returncode == status, said.stdout + said.stderr
        return said

    return run


def tamper(kb: Path, change: str) -> None:
    """What somebody does who has the database and not the key."""
    (database,) = kb.rglob("*.sqlite")
    with closing(sqlite3.connect(database)) as raw:
        for table in ("events", "seals"):
            for verb in ("update", "delete"):
                raw.execute(f"DROP TRIGGER {table}_{verb}")
        assert raw.execute(change).rowcount > 0
        raw.commit()


def test_a_trail_that_nobody_touched_is_whole(audit, kb) -> None:
    found = json.loads(audit("verify", "--json").stdout)
    assert (found["state"], found["windows"], found["sessions"]) == ("VALID", 3, 2)
    with Relay.open(kb / "kb", key=KEY, fabric={"maintain_on_open": False}) as relay:
        trail = relay.verify()
    assert (found["events"], found["tip"]) == (trail.events, trail.tip)
    said = audit("verify").stdout
    assert f"{trail.events} events, 3 windows and 2 sessions checked: VALID" in said
    assert f"tip {trail.tip}" in said


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("UPDATE events SET timestamp = timestamp || '0' WHERE seq = 4", 3),
        ("DELETE FROM events WHERE seq = 5", 4),
        (f"UPDATE seals SET outcome = 'failed' WHERE session_id = '{SECOND}'", None),
        (f"UPDATE seals SET report_hash = 'x' WHERE session_id = '{SESSION}'", None),
        (f"DELETE FROM seals WHERE session_id = '{SESSION}' AND window_number = 2", None),
    ],
)
def test_what_was_changed_is_named_with_its_place_and_status_1(
    audit, kb, change: str, place: int | None
) -> None:
    tamper(kb, change)
    said = audit("verify", status=1)
    assert said.stderr.startswith("crp: ") and said.stderr.count("\n") == 1
    assert said.stdout == ""
    told = json.loads(audit("verify", "--json", status=1).stdout)
    assert told["state"] == "BROKEN" and told["problem"] in said.stderr
    if place is not None:
        assert told["index"] == place
    else:
        window = "window 2" if "= 2" in change else "window 1"
        assert window in told["problem"] and told["index"] > 0


def test_an_export_is_verified_elsewhere_with_the_key_alone(audit, kb, here, tmp_path) -> None:
    audit("export", "--out", "all.ndjson")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(kb / "all.ndjson", elsewhere / "all.ndjson")
    here_words = ("audit", "verify", "--file", "all.ndjson")
    said = here(*here_words, "--json", cwd=elsewhere, CRP_KEY=KEY)
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == json.loads(audit("verify", "--json").stdout)
    # Neither another key nor none will do.
    other = here(*here_words, cwd=elsewhere, CRP_KEY="ab" * 32)
    assert other.returncode == 1
    assert "the keys of another store, or a trail that is not of tenant 'local'" in other.stderr
    wrong = here(*here_words, "--tenant", "acme", cwd=elsewhere, CRP_KEY=KEY)
    assert wrong.returncode == 1
    assert "not of tenant 'acme' (--tenant)" in wrong.stderr
    none = here(*here_words, cwd=elsewhere).stderr
    assert "there is no store at 'crp-store'; give --store or --keys, or the key as CRP" in none
    lines = (elsewhere / "all.ndjson").read_text().splitlines()
    lines[6] = lines[6].replace("2026-05-25", "2026-05-24")
    (elsewhere / "all.ndjson").write_text("\n".join(lines) + "\n")
    broken = here(*here_words, "--json", cwd=elsewhere, CRP_KEY=KEY)
    assert broken.returncode == 1
    # Those before it fit, so it is not the key.
    told = json.loads(broken.stdout)
    assert (told["index"], told["problem"]) == (6, "the HMAC of event 7 does not match")


def test_a_session_s_export_leaves_the_rest_as_hashes_and_verifies(audit, kb) -> None:
    audit("export", "--session", SECOND, "--out", "one.ndjson")
    text = (kb / "one.ndjson").read_text()
    assert SESSION not in text and SECOND in text
    found = json.loads(audit("verify", "--file", "one.ndjson", "--json").stdout)
    whole = json.loads(audit("verify", "--json").stdout)
    assert (found["state"], found["windows"], found["sessions"]) == ("PARTIAL", 1, 1)
    assert found["events"] + found["left_out"] == whole["events"]
    said = audit("verify", "--file", "one.ndjson").stdout
    assert f"{found['left_out']} events left out" in said


def test_no_export_holds_content_or_a_key(audit) -> None:
    both = audit("export").stdout + audit("export", "--format", "ocsf").stdout
    for secret in ("Meridian", "Northfield", "megawatts", KEY, "commissioned"):
        assert secret.lower() not in both.lower()


def test_ocsf_and_the_filters(audit) -> None:
    told = [json.loads(line) for line in audit("export", "--format", "ocsf").stdout.splitlines()]
    assert {one["class_uid"] for one in told} == {6003}
    whole = json.loads(audit("verify", "--json").stdout)
    assert len(told) == whole["events"]
    chosen = audit(
        "export", "--format", "ocsf", "--type", "DISPATCH_COMPLETED", "--type", "SESSION_CREATED"
    ).stdout.splitlines()
    assert [json.loads(one)["metadata"]["event_code"] for one in chosen] == [
        "SESSION_CREATED",
        "DISPATCH_COMPLETED",
        "SESSION_CREATED",
        "DISPATCH_COMPLETED",
        "DISPATCH_COMPLETED",
    ]
    for words, count in (
        (("--since", "2026-05-25T12:00:00Z"), len(told)),
        (("--until", "2026-05-25T12:00:00Z"), 0),
        (("--since", "2026-05-25T14:00:01+02:00"), 0),
    ):
        assert len(audit("export", "--format", "ocsf", *words).stdout.splitlines()) == count
    assert "no time zone" in audit("export", "--since", "2026-05-25", status=1).stderr
    assert "not ISO 8601" in audit("export", "--until", "noon", status=1).stderr


def test_a_file_that_is_there_is_not_written_over(audit, kb) -> None:
    (kb / "all.ndjson").write_text("mine")
    assert "cannot be written" in audit("export", "--out", "all.ndjson", status=1).stderr
    assert (kb / "all.ndjson").read_text() == "mine"
    assert "cannot be read" in audit("verify", "--file", "none.ndjson", status=1).stderr
    assert "not an exported event" in audit("verify", "--file", "all.ndjson", status=1).stderr
    assert "no key file" in audit("verify", "--file", "a", "--keys", "k", status=1).stderr
    assert "--keys needs" in audit("verify", "--keys", "k", status=1).stderr


def test_show_lists_sessions_and_one_session_s_windows(audit) -> None:
    listed = audit("show").stdout
    assert SESSION in listed and SECOND in listed
    said = audit("show", SESSION, COLUMNS="200").stdout
    for part in ("released", "2026-05-25T12:00:00Z", "DPE_COMPLETED", "SESSION_CONTINUED"):
        assert part in said
    assert SECOND not in said
    assert "no sealed window of session" in audit("show", "crp_sess_nobody", status=1).stderr


def test_after_a_rotation_old_windows_verify_and_new_ones_name_the_new_key(here, tmp_path) -> None:
    answered(tmp_path, clock="2026-05-25T12:00:00Z")
    store = tmp_path / "kb"
    old = (store / "keys").read_bytes()
    FileKeyRing(store / "keys").rotate()
    with Relay.open(store, model="extractive", clock="2026-05-25T12:00:00Z") as relay:
        assert relay.verify().windows == 3
        relay.ask(QUESTIONS[0], session_id=SESSION)
        assert relay.verify().windows == 4
    said = here("audit", "verify", "--json", "--store", "kb", cwd=tmp_path)
    assert json.loads(said.stdout)["windows"] == 4
    here("audit", "export", "--store", "kb", "--out", "all.ndjson", cwd=tmp_path)
    lines = (tmp_path / "all.ndjson").read_text()
    keys = json.loads((store / "keys").read_text())
    assert keys["schema"] == "keys/2" and len(keys["retired"]) == 1
    assert "key_id" in lines and keys["master"] not in lines and keys["retired"][0] not in lines
    # All keys in the environment do as well as the file; the old one alone does not.
    both = ",".join([*keys["retired"], keys["master"]])
    words = ("audit", "verify", "--file", "all.ndjson", "--json")
    assert here(*words, cwd=tmp_path, CRP_KEY=both).returncode == 0
    assert here(*words, cwd=tmp_path, CRP_KEY=keys["retired"][0]).returncode == 1
    assert here("audit", "verify", cwd=tmp_path, CRP_STORE="kb", CRP_KEY=both).returncode == 0
    (store / "keys").write_bytes(old)
    refused = here("audit", "verify", "--store", "kb", cwd=tmp_path)
    assert refused.returncode == 1 and "another key" in refused.stderr

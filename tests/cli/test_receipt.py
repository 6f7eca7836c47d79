"""`crp receipt …`: on a machine that has the file and nothing else, and on the store."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.receipt.canonical import dumps
from crp_integrations.receipt.records import read, write
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.verify import verify
from tests.cli.test_ask import KEY, SESSION
from tests.cli.test_audit import FIXED, SECOND, answered
from tests.receipt.page.real import session
from tests.receipt.relayed import opened

OPENED = {"key": KEY, "clock": "2026-05-25T12:00:00Z"}
RECEIPTS = session(judge=None)
LAST = read(RECEIPTS[-1])


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """A folder with the receipts of a session and no store."""
    for number, data in enumerate(RECEIPTS, start=1):
        (tmp_path / f"{number}.json").write_bytes(data)
    return tmp_path


@pytest.fixture
def receipt(here, alone):
    """Runs `crp receipt` where there are the files alone."""
    return lambda *words: here("receipt", *words, cwd=alone)


def _fact(begins: str) -> str:
    return next(
        leaf.fact_id
        for number, leaf in enumerate(LAST.leaves)
        if leaf.fact_id and (LAST.text(number) or "").startswith(begins)
    )


def test_show_tells_question_answer_facts_claims_and_policy(receipt) -> None:
    run = receipt("show", "3.json")
    assert run.returncode == 0, run.stderr
    for words in (
        "How long may a worker be posted",
        "extended once by eight months",
        "8 facts, 130 of 130 tokens; tier A",
        "Dropped: 6 for budget",
        "Risk UNKNOWN by exact comparison; 1 of 5 claims read",
        "warned of: warn-on MEDIUM, found UNKNOWN, 4 of 5 claims were not read",
        LAST.receipt_id,
        "holds",
    ):
        assert words in run.stdout, words


def test_show_says_that_there_was_no_answer(receipt, alone: Path) -> None:
    relay, _ = opened(RuntimeError("gone"))
    with pytest.raises(RuntimeError):
        relay.ask("What is it?", model="any/model")
    found = relay.receipt(relay.receipts().ids()[-1])
    assert found is not None
    (alone / "failed.json").write_bytes(write(found))
    run = receipt("show", "failed.json")
    assert run.returncode == 0, run.stderr
    assert "No answer, failed" in run.stdout


def test_verify_takes_the_file_alone(receipt) -> None:
    run = receipt("verify", "3.json")
    assert run.returncode == 0
    assert "the file cannot show whose key this is" in run.stdout
    assert run.stdout.rstrip().endswith("\nholds")
    told = json.loads(receipt("verify", "3.json", "--json").stdout)
    assert told["ok"]
    assert told["pinned"] is False


def test_verify_with_the_windows_before(receipt) -> None:
    run = receipt("verify", "3.json", "--parent", "2.json", "--json")
    chain = json.loads(run.stdout)["steps"][5]
    assert "receipts of the windows" not in chain["reason"]
    wrong = receipt("verify", "3.json", "--parent", "1.json")
    assert wrong.returncode == 1
    assert "is none of them" in wrong.stdout


@pytest.mark.parametrize("writing", ["raw", "hex", "base64", "pem"])
def test_verify_with_a_key_that_is_known(receipt, alone: Path, writing: str) -> None:
    from crp_integrations.cli.receipt import public_key_pem

    def written(key: bytes) -> bytes:
        return {
            "raw": key,
            "hex": key.hex().encode() + b"\n",
            "base64": base64.b64encode(key) + b"\n",
            "pem": (public_key_pem(bytes(range(32, 64))) + public_key_pem(key)).encode(),
        }[writing]

    (alone / "key").write_bytes(written(LAST.key))
    run = receipt("verify", "3.json", "--key", "key")
    assert run.returncode == 0, run.stdout
    assert "the given key" in run.stdout
    other = read(RECEIPTS[0]).key[:-1] + b"\x00"
    (alone / "key").write_bytes(written(other))
    run = receipt("verify", "3.json", "--key", "key")
    assert run.returncode == 1
    assert run.stdout.rstrip().endswith("\nbroken")
    assert "wanted" in run.stdout
    assert "not the given key" in run.stdout


@pytest.mark.parametrize(
    ("spoil", "place"),
    [
        (lambda data: data.replace(b"eight months", b"seven months", 1), "texts["),
        (lambda data: data.replace(b'"sig":"', b'"sig":"A', 1), "sig"),
        (lambda data: data[:-1], "line feed"),
        (lambda data: data.replace(b'{"envelope"', b'{ "envelope"', 1), "byte 1"),
    ],
)
def test_a_changed_file_is_status_1_and_the_place(receipt, alone: Path, spoil, place: str) -> None:
    (alone / "3.json").write_bytes(spoil(RECEIPTS[-1]))
    run = receipt("verify", "3.json")
    assert run.returncode == 1
    assert place in run.stdout
    for command in ("show", "replay"):
        run = receipt(command, "3.json")
        assert run.returncode == 1
        assert place in run.stdout + run.stderr


def test_replay_does_everything_again(receipt) -> None:
    run = receipt("replay", "3.json")
    assert run.returncode == 0, run.stdout
    assert run.stdout.rstrip().endswith("\nholds")
    assert "no model is called" in run.stdout
    told = json.loads(receipt("replay", "3.json", "--json").stdout)
    states = {part["name"]: part["state"] for part in told["parts"]}
    assert set(states.values()) == {"equal"}, states
    # Without an engine, what only an engine can say is not said.
    told = json.loads(receipt("replay", "3.json", "--recorded", "--json").stdout)
    states = {part["name"]: part["state"] for part in told["parts"]}
    assert states["context"] == states["examination"] == states["policy"] == "equal"
    assert states["signals"] == "not-run"
    lacking = [name for name, state in states.items() if state == "not-run"]
    run = receipt("replay", "3.json", "--recorded")
    assert run.returncode == 0
    assert run.stdout.rstrip().endswith(f"\nholds; not run: {', '.join(lacking)}")


def test_strict_is_status_3_where_nothing_that_decides_was_recomputed(receipt, alone: Path) -> None:
    (alone / "copy.json").write_bytes(write(redact(LAST, names=["answer"])))
    for options, status in (((), 0), (("--strict",), 3)):
        run = receipt("replay", "copy.json", *options)
        assert run.returncode == status, run.stderr
        assert run.stdout.splitlines()[-1].startswith("not recomputed; not run: ")


def test_verify_lists_what_the_signer_states(receipt) -> None:
    for command in ("verify", "replay"):
        run = receipt(command, "3.json")
        stated = run.stdout.partition("Stated by the signer, not recomputed:")[2]
        for words in ("model asked: gpt-4o", "sources of the candidates: user", LAST.chain.hmac):
            assert words in stated


def test_what_if_the_budget_were_another(receipt) -> None:
    run = receipt("replay", "3.json", "--budget", "80", "--json")
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["context"]["tokens_after"] <= 80 < told["context"]["tokens_before"] <= 130
    assert told["context"]["facts_out"]
    assert told["verdict"] is None
    assert told["limits"]
    assert json.loads(receipt("replay", "3.json", "--budget", "80").stdout) == told


def test_what_if_a_fact_were_not_there(receipt) -> None:
    gone = _fact("Transport workers")
    told = json.loads(receipt("replay", "3.json", "--without", gone, "--json").stdout)
    assert gone in told["context"]["facts_out"]
    assert receipt("replay", "3.json", "--without", "nobody").returncode == 1


def test_what_if_the_policy_were_another(receipt) -> None:
    told = json.loads(receipt("replay", "3.json", "--policy", "halt-on HIGH", "--json").stdout)
    assert told["verdict"]["decision_before"] == "deliver"
    assert told["verdict"]["decision_after"] == "withhold"
    assert told["verdict"]["violations_after"] == ["halt-on HIGH"]
    wrong = receipt("replay", "3.json", "--policy", "halt-on NOTHING")
    assert wrong.returncode == 1
    assert wrong.stderr.count("\n") == 1


def test_diff_of_two_receipts(receipt) -> None:
    run = receipt("show", "2.json", "--diff", "3.json")
    assert run.returncode == 1
    assert "First differences" in run.stdout
    same = receipt("show", "3.json", "--diff", "3.json")
    assert same.returncode == 0
    assert "nothing differs" in same.stdout
    told = json.loads(receipt("show", "2.json", "--diff", "3.json", "--json").stdout)
    assert told["same"] is False


def test_redact_leaves_a_fact_out_and_the_copy_verifies(receipt, alone: Path) -> None:
    gone = _fact("Transport workers")
    run = receipt("redact", "3.json", "--fact", gone, "-o", "copy.json")
    assert run.returncode == 0, run.stderr
    assert f"fact/{gone}" in run.stdout
    assert "answer" in run.stdout
    copy = (alone / "copy.json").read_bytes()
    assert b"Transport workers" not in copy
    assert verify(copy).ok
    assert read(copy).receipt_id == LAST.receipt_id
    shown = receipt("show", "copy.json")
    assert shown.returncode == 0
    assert "(left out of this copy)" in shown.stdout
    assert receipt("verify", "copy.json").returncode == 0
    # What can be done again without the text still is.
    assert receipt("replay", "copy.json").returncode == 0
    kept = receipt("redact", "3.json", "--fact", gone, "--keep-quoting", "-o", "kept.json")
    assert kept.returncode == 0
    assert b"extended once by eight months" in (alone / "kept.json").read_bytes()


def test_html_writes_one_page(receipt, alone: Path) -> None:
    run = receipt("show", "3.json", "--html", "page.html")
    assert run.returncode == 0
    text = (alone / "page.html").read_text(encoding="utf-8")
    assert base64.b64encode(RECEIPTS[-1]).decode() in text
    assert "default-src 'none'" in text
    assert receipt("show", "3.json", "--with", "1.json", "--html", "two.html").returncode == 0
    assert base64.b64encode(RECEIPTS[0]).decode() in (alone / "two.html").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("show", "nowhere.json"),
        ("verify", "."),
        ("verify", "3.json", "--key", "1.json"),
        ("verify", "3.json", "--proof", "1.json"),
        ("verify", "3.json", "--proof", "1.json", "--head", "2.json"),
        ("show", "key", "--html", "page.html"),
        ("show", "3.json", "--html", "1.json"),
        ("show", "3.json", "--diff", "nowhere.json"),
        ("show", "--diff", "3.json"),
        ("show", "3.json", "--with", "1.json"),
        ("show", "3.json", "--session", "x"),
        ("export",),
        ("export", "x", "--key"),
        ("export", "--key", "--head"),
        ("export", "x", "--size", "1"),
        ("export", "x", "--proof", "--bundle"),
        ("redact", "3.json"),
        ("replay", "3.json", "--store", "nowhere"),
    ],
    ids=" ".join,
)
def test_an_error_is_one_sentence(receipt, alone: Path, words: tuple[str, ...]) -> None:
    (alone / "key").write_bytes(b"\xff\x00 no key")
    run = receipt(*words)
    assert run.returncode == 1
    assert run.stderr.startswith("crp: ")
    assert run.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return answered(tmp_path_factory.mktemp("receipts"), **OPENED)


@pytest.fixture
def kb(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "kb", tmp_path / "kb")
    return tmp_path


@pytest.fixture
def stored(here, kb):
    """Runs `crp receipt` where there is a store."""
    return lambda *words: here("receipt", *words, "--store", "kb", cwd=kb, **FIXED)


def _ids(stored: Any, *words: str) -> list[list[str]]:
    return [line.split() for line in stored("show", *words).stdout.splitlines()]


def test_list_and_export(stored, here, kb: Path) -> None:
    listed = _ids(stored)
    assert len(listed) == 3
    assert [line[2] for line in listed] == [SESSION, SECOND, SESSION]
    assert [line[0] for line in _ids(stored, "--session", SECOND)] == [listed[1][0]]
    for name, out in ((listed[2][0], "a.json"), (listed[2][4], "b.json")):
        run = stored("export", name, "-o", out)
        assert run.returncode == 0, run.stderr
    assert (kb / "a.json").read_bytes() == (kb / "b.json").read_bytes()
    assert stored("export", listed[2][0]).stdout.encode() == (kb / "a.json").read_bytes()
    assert here("receipt", "verify", "a.json", cwd=kb).returncode == 0
    missing = stored("export", "crp_rcpt_" + "0" * 32)
    assert missing.returncode == 1
    assert "crp receipt show lists them" in missing.stderr


def test_key_head_and_proof_verify_elsewhere(stored, here, kb: Path) -> None:
    ids = [line[0] for line in _ids(stored)]
    for words, out in (
        (("export", ids[1]), "r.json"),
        (("export", "--key"), "key.pem"),
        (("export", "--head"), "head.json"),
        (("export", ids[1], "--proof"), "proof.json"),
    ):
        assert stored(*words, "-o", out).returncode == 0
    run = here(
        "receipt", "verify", "r.json", "--key", "key.pem", "--proof", "proof.json",
        "--head", "head.json", cwd=kb,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
    assert "the given key" in run.stdout
    assert stored("export", ids[0], "-o", "other.json").returncode == 0
    wrong = here(
        "receipt", "verify", "other.json", "--proof", "proof.json", "--head", "head.json", cwd=kb
    )
    assert wrong.returncode == 1
    assert "proof" in wrong.stdout


def test_a_bundle_is_verified_shown_and_redacted_elsewhere(stored, here, kb: Path) -> None:
    name = _ids(stored)[1][0]
    run = stored("export", name, "--bundle", "-o", "bundle.json")
    assert run.returncode == 0, run.stderr
    assert stored("export", "--key", "-o", "key.pem").returncode == 0
    (kb / "other.pem").write_bytes(bytes(32))

    def elsewhere(*words: str) -> Any:
        return here("receipt", *words, cwd=kb)

    run = elsewhere("verify", "bundle.json", "--key", "key.pem")
    assert run.returncode == 0, run.stdout
    assert "signed 3 receipts, from" in run.stdout
    assert "no proof" not in run.stdout
    assert elsewhere("show", "bundle.json").returncode == 0
    run = elsewhere("redact", "bundle.json", "--unshown", "--text", "asker", "-o", "copy.json")
    assert run.returncode == 0, run.stderr
    assert json.loads(elsewhere("verify", "copy.json", "--json").stdout)["redacted"] > 0
    wrong = elsewhere("verify", "bundle.json", "--key", "other.pem")
    assert wrong.returncode == 1
    assert "names none of the keys wanted" in wrong.stderr
    bundle = json.loads((kb / "bundle.json").read_bytes())
    changes: dict[str, dict[str, Any]] = {
        "proof": {"proof": {**bundle["proof"], "path": bundle["proof"]["path"][::-1]}},
        "timestamp": {"timestamp": "bm90IERFUg=="},
    }
    for place, change in changes.items():
        (kb / "wrong.json").write_bytes(dumps({**bundle, **change}) + b"\n")
        for words in (("verify",), ("replay", "--recorded"), ("show",)):
            wrong = elsewhere(*words, "wrong.json")
            assert (wrong.returncode, "broken" in wrong.stdout) == (1, True), (place, words)
        assert elsewhere("show", "wrong.json", "--html", f"{place}.html").returncode == 0
        (said,) = re.findall(r'atob\("([^"]+)"', (kb / f"{place}.html").read_text())
        verified = json.loads(base64.b64decode(said))
        assert (verified["word"], place in verified["place"]) == ("broken", True)


@pytest.mark.parametrize("value", [None, 7, [], "proof"])
def test_a_proof_of_another_form_is_named_with_what_it_is(here, kb: Path, value: object) -> None:
    file = json.loads(session()[0])
    bundle = dict.fromkeys(("head", "keys", "mediaType", "proof", "receipt", "timestamp"))
    media = "application/vnd.crp-integrations.receipt-bundle+json"
    keys = {"envelope": None, "schema": "receipt-keys/1"}
    bundle |= {"schema": "receipt-bundle/1", "mediaType": media, "receipt": file, "keys": keys}
    (kb / "odd.json").write_bytes(dumps({**bundle, "proof": value}) + b"\n")
    run = here("receipt", "verify", "odd.json", cwd=kb)
    seen = {"None": "null", "[]": "a list"}.get(str(value), repr(value))
    assert run.returncode == 1
    assert f"proof: is {seen}, wanted a JSON object with index, path, schema, size" in run.stderr


@pytest.mark.parametrize("words", [("show",), ("export", "--key"), ("export", "--head")])
def test_a_tenant_that_is_misspelt_has_no_key_and_no_log(stored, words: tuple[str, ...]) -> None:
    run = stored(*words, "--tenant", "acne")
    assert run.returncode == 1
    assert run.stderr == "crp: tenant 'acne' has nothing in this store\n"
    assert run.stdout == ""


def test_the_log_only_goes_on(stored, here, kb: Path) -> None:
    assert stored("export", "--head", "-o", "early.json").returncode == 0
    with Relay.open(kb / "kb", model="extractive", **OPENED) as relay:
        relay.ask("Who operates the Meridian reactor?", session_id=SECOND)
    later = stored("export", "--head", "--since", "early.json", "-o", "late.json")
    assert later.returncode == 0, later.stderr
    assert "log of 4 receipts" in later.stdout
    # A log that is shorter than it was, or another's, is not the same.
    shutil.rmtree(kb / "kb")
    with Relay.open(kb / "kb", model="extractive", **OPENED) as relay:
        relay.fabric.add(["The Meridian reactor delivers 412 megawatts to the grid."])
        relay.ask("How many megawatts does it deliver?", session_id=SESSION)
    run = stored("export", "--head", "--since", "late.json")
    assert run.returncode == 1
    assert "head.size: is 1, but 4 in the earlier head" in run.stderr


def test_ask_writes_the_receipt(here, kb: Path) -> None:
    question = ("ask", "Who operates the Meridian reactor?", "--model", "extractive")
    words = (*question, "--store", "kb", "--receipt", "asked.json")
    run = here(*words, cwd=kb, **FIXED)
    assert run.returncode == 0, run.stderr
    assert here("receipt", "verify", "asked.json", cwd=kb).returncode == 0
    again = here(*words, cwd=kb, **FIXED)
    assert again.returncode == 1
    assert "exists already" in again.stderr
    off = here(*words[:-1], "off.json", cwd=kb, **FIXED, CRP_RECEIPTS="false")
    assert off.returncode == 1
    assert "the setting receipts is off" in off.stderr

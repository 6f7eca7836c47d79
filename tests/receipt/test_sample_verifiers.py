"""The verifiers of `examples/`, which share no code with the package, say what it says."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.dpe.records import CONTRADICTION
from crp_integrations.receipt.canonical import b64, dumps, unb64
from crp_integrations.receipt.records import write
from crp_integrations.receipt.signed_statement import IN_TOTO
from crp_integrations.receipt.verify import verify
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import ScriptedModel
from tests.receipt.page import real
from tests.receipt.page.samples import KEY
from tests.requirements.rows import ROOT

GOLDEN = ROOT / "tests/receipt/golden/receipt-1"
EXAMPLES = ROOT / "examples"
DRIVER = """
import { check } from "./verify_receipt.mjs";
import { readFile } from "node:fs/promises";
const results = [];
for (const path of process.argv.slice(1)) results.push(await check(new Uint8Array(await readFile(path))));
console.log(JSON.stringify(results));
"""


@cache
def _sample() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_receipt", EXAMPLES / "verify_receipt.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def receipts() -> dict[str, bytes]:
    """Receipts of ten kinds: judged or not, first and later windows, with texts left out."""
    names = ("erased", "first", "judged", "redacted", "second")
    files = {name: (GOLDEN / f"{name}.json").read_bytes() for name in names}
    files |= {f"judged {number}": data for number, data in enumerate(real.session(), start=1)}
    files["contradicts itself"] = _contradicting()
    unread = enumerate(real.session(judge=None), start=1)
    return files | {f"unread {number}": data for number, data in unread}


def _contradicting() -> bytes:
    """The receipt of an answer with a claim that an earlier one contradicts."""
    model = ScriptedModel(
        "The fee was approved by the board. The fee was not approved by the board."
    )
    with Relay.open(MemoryStore(), models=model) as relay:
        relay.add(["The board of the harbour met in May and talked about the fee for ships."])
        receipt = relay.receipt(relay.ask("Was the fee approved?", model="gpt-4o").receipt_id)
    assert receipt is not None
    (finding,) = receipt.content["report"]["claims"][1]["findings"]
    assert finding["kind"] == CONTRADICTION
    return write(receipt)


Change = Callable[[dict[str, Any]], object]


def _report(**values: Any) -> Change:
    return lambda content: content["report"].update(values)


FORGERIES: dict[str, Change] = {
    "another level": _report(risk_level="LOW"),
    "another score": _report(risk_score=50_000),
    "another count": lambda content: content["report"]["claim_counts"].update(wrong=0),
    "another status": lambda content: content["report"]["claims"][1].update(status="SUPPORTED"),
    "a candidate gone": lambda content: content["candidates"].pop(),
    "a dropped record gone": lambda content: content["envelope"]["facts"].pop(),
    "another etag": lambda content: content["envelope"].update(etag="sha256:" + "0" * 64),
    "another policy": lambda content: content["policy"].update(text="block-pii"),
}


def _signed(change: Change) -> bytes:
    file = json.loads(receipts()["judged"])
    statement = json.loads(unb64(file["envelope"]["payload"], ""))
    change(statement["predicate"]["content"])
    signed = KEY.sign(IN_TOTO, dumps(statement)).to_json()
    file["envelope"] |= {"payload": b64(dumps(statement)), "signatures": signed["signatures"]}
    file["key"] = b64(KEY.public)
    return dumps(file) + b"\n"


def _by_python(data: bytes, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    path = folder / "receipt.json"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["verify_receipt.py", str(path)])
        status = _sample().main()
    lines = capsys.readouterr().out.splitlines()
    assert (status == 0) == ("FAILS" not in lines[-1])
    return lines


def test_sample_verifiers_accept_what_the_package_issues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, data in receipts().items():
        assert verify(data).ok
        lines = _by_python(data, tmp_path, capsys)
        assert "FAILS" not in lines[-1], (name, lines)
    assert len(receipts()) >= 10


@pytest.mark.parametrize("name", sorted(FORGERIES))
def test_the_sample_verifier_finds_what_a_keys_holder_changed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "FAILS" in _by_python(_signed(FORGERIES[name]), tmp_path, capsys)[-1]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_verifier_in_javascript_prints_the_same_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {**receipts(), **{name: _signed(change) for name, change in FORGERIES.items()}}
    files["another byte"] = receipts()["judged"].replace(b"412 megawatts", b"413 megawatts")
    files["no line feed"] = receipts()["judged"][:-1]
    files["a bundle"] = receipts()["judged"].replace(b"receipt/1", b"receipt-bundle/1")
    paths = []
    for number, data in enumerate(files.values()):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_bytes(data)
    ran = subprocess.run(
        ["node", "--input-type=module", "-e", DRIVER, *map(str, paths)],
        cwd=EXAMPLES,
        capture_output=True,
        check=True,
        text=True,
    )
    for (name, data), result in zip(files.items(), json.loads(ran.stdout), strict=True):
        lines = _by_python(data, tmp_path, capsys)
        assert result["ok"] == ("FAILS" not in lines[-1]), name
        # Numbers in the reason of a failure are written as each language writes them.
        assert [line.partition(",")[0] for line in result["lines"]] == [
            line.partition(",")[0] for line in lines
        ], name


def test_the_sample_verifiers_say_how_to_take_a_receipt_out_of_a_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = json.loads(receipts()["judged"])
    bundle = dumps({"receipt": file, "schema": "receipt-bundle/1"}) + b"\n"
    (line,) = _by_python(bundle, tmp_path, capsys)
    assert "receipt-bundle/1" in line and "export without --bundle" in line
    assert "FAILS" not in _by_python(dumps(file) + b"\n", tmp_path, capsys)[-1]


def test_the_prompt_of_a_receipt_is_recomputed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = _sample()
    prompt = module.prompt_of(module.Receipt(receipts()["judged"]))
    assert "<context>\n[1] The Meridian reactor is operated" in prompt
    assert prompt.endswith("What revenue did Northfield Energy report?")

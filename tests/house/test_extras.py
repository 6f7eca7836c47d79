"""The default installation works without what the extras bring, and a missing one is a sentence."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

ABSENT = (
    *("litellm", "regopy", "phonenumbers", "networkx", "graspologic_native", "selectolax"),
    *("markdown_it", "langchain_core", "llama_index"),
)
BEFORE = f"""
import sys
for name in {ABSENT}:
    sys.modules[name] = None
"""
FACT = "A ticket to the museum costs 4 euros for adults and for children over six."


def alone(script: str) -> str:
    """What a script prints in a process without the extras."""
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_what_needs_no_extra() -> None:
    printed = alone(
        f"""
        from pathlib import Path
        from tempfile import TemporaryDirectory
        from crp_integrations import Relay, examine, pack
        from crp_integrations.receipt.replay import replay
        from crp_integrations.receipt.verify import verify

        fact = {FACT!r}
        print(examine(fact.replace("4", "5"), [fact]).risk_level)
        print(pack("What does a ticket cost?", [fact], model="gpt-4o", budget_tokens=100).text)
        with TemporaryDirectory() as folder:
            relay = Relay.open(folder)
            relay.add([fact])
            answer = relay.ask("What does a ticket to the museum cost?", model="extractive")
            print(answer.report.risk_level, answer.report.eu_ai_act_class)
            receipt = relay.receipt(answer.receipt_id)
        print(verify(receipt).ok, replay(receipt).same)
        """
    )
    assert printed.splitlines() == ["HIGH", f"[1] {FACT}", "LOW UNKNOWN", "True True"]


def test_an_openai_server_is_asked_and_judges_without_litellm() -> None:
    printed = alone(
        f"""
        from crp_integrations import examine
        from tests.judges import judge_double, named

        with judge_double() as server:
            report = examine("Adults pay 4 euros.", [{FACT!r}], judge=named(server))
        print(report.risk_level, "|", report.checked_by)
        """
    )
    assert printed.strip() == "LOW | judge openai/judge-1"


@pytest.mark.parametrize(
    ("script", "extra"),
    [
        ("examine('x', ['y'], judge='anthropic/claude-haiku')", "litellm"),
        ("relay.ask('What is it?', model='mistral/small')", "litellm"),
        ("relay.ingest(page)", "documents"),
        ("relay.fabric.recluster()", "communities"),
        ("relay.ask('What is it?', model='extractive', policy='block-pii')", "pii"),
        ("Relay.open(settings=load(system={'domain': 'employment'}))", "policy"),
        ("Relay.open(settings=load(guard={'policy': True})).ask('What is it?')", "policy"),
    ],
)
def test_a_missing_extra_is_named_with_the_pip_line(script: str, extra: str) -> None:
    printed = alone(
        f"""
        from pathlib import Path
        from tempfile import TemporaryDirectory
        from crp_integrations import CRPError, Relay, examine
        from crp_integrations.relay.settings import load

        relay = Relay.open()
        page = Path(TemporaryDirectory().name + ".html")
        page.write_text("<html><body><main><p>{FACT}</p></main></body></html>")
        try:
            {script}
        except CRPError as error:
            print(error)
        """
    )
    assert f"pip install 'crp-integrations[{extra}]'" in printed


def test_openai_itself_is_asked_with_a_key_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    printed = alone(
        """
        from crp_integrations import ModelAuthError, Relay
        try:
            Relay.open().ask("What is it?", model="openai/gpt-4o-mini")
        except ModelAuthError as error:
            print(error)
        """
    )
    assert "set OPENAI_API_KEY" in printed


def test_without_numbering_plans_telephone_numbers_are_not_checked() -> None:
    printed = alone(
        """
        from crp_integrations import examine
        personal = examine("Call +49 30 901820.", ["Call us."]).personal
        print("phone" in personal.not_checked, [one.kind for one in personal.found])
        """
    )
    assert printed.split() == ["True", "[]"]

"""The page names who asked, the documents, the judge's prompt, and what is not in a copy."""

from __future__ import annotations

from crp_integrations.dpe.judge.messages import JudgePrompt
from crp_integrations.receipt.records import read, write
from crp_integrations.receipt.redaction import redact
from tests.receipt.page.conftest import Open
from tests.receipt.page.real import session


def test_the_page_names_what_an_auditor_asks(show: Open) -> None:
    receipt = read(session()[-1])
    text = show(write(receipt)).text
    assert "local" in text
    assert "crp_subj_" in text
    assert "user:user" in text
    assert JudgePrompt().text in text
    copy = redact(receipt, names=["asker"])
    text = show(write(copy)).text
    assert "crp_subj_" not in text
    assert "Not in this copy" in text

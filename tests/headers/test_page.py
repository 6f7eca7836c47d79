"""The page on headers says what is so."""

from __future__ import annotations

import contextlib
import io

from crp_integrations.headers.grammar import LIMITS, MOST_CHARACTERS
from crp_integrations.headers.propagate import DOWN, UP
from tests.house.pages import blocks
from tests.requirements.rows import ROOT

PAGE = ROOT / "docs" / "headers.md"


def test_the_code_of_the_page_runs() -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for block in blocks(PAGE):
            if block.language == "python":
                exec(compile(block.body, str(PAGE), "exec"), {})
    assert "is a response header and does not belong here" in said.getvalue()
    assert "scope='cross-window'" in said.getvalue()


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for number in {MOST_CHARACTERS, *LIMITS.values()}:
        assert f"{number:,}" in text
    assert len(DOWN) == len(UP) == 6

"""The table of the page on policies has every directive."""

from __future__ import annotations

import re

from crp_integrations.policy.directives import DIRECTIVES
from tests.requirements.rows import ROOT

PAGE = ROOT / "docs" / "reference" / "policy.md"


def test_the_table_of_the_page_has_every_directive() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"[a-z-]+", row)}
    assert [name for name in DIRECTIVES if name not in named] == []
